//! `cargo xtask instructions`: how many instructions the parts of the library take, held against what they took when
//! that was last written down.
//!
//! Instructions repeat where times do not, so a part that became dearer is seen on a busy machine as well. What must stay
//! true: a machine without valgrind is told so and skips nothing silently, and what is compared is one item's share of a
//! longer run less that of a shorter one, so that starting up is not in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;

use crate::Failure;
use crate::bench::release;
use crate::steps::{output_of, root};
use crate::table::table;

/// A part may take so much more than is written down. Compilers, allocators and the copying routines of the C library
/// differ a little from one machine to the next.
const TOLERANCE: f64 = 0.10;
/// Where the numbers are.
const FILE: &str = "bench/instructions.json";
/// The architecture that they were counted on.
const ARCHITECTURE: &str = "x86_64";
/// Runs of a part in the shorter and in the longer run.
const RUNS: [u64; 2] = [2, 5];

/// Counts the instructions of the library's parts (decoding, ledger, dispatch, ...) with valgrind and fails if one takes
/// over 10 % more than bench/instructions.json says.
///
/// Needs valgrind (`apt-get install valgrind`) and an x86-64 Linux; elsewhere it says that it is skipped. A part that takes
/// less is no failure, but the new number should be written down: --update.
#[derive(Debug, Args)]
pub(crate) struct Instructions {
    /// Writes down what is counted.
    #[arg(long)]
    update: bool,
}

/// Instructions per item, by part.
type Counts = BTreeMap<String, f64>;

impl Instructions {
    /// The guard as a part of all tests.
    pub(crate) fn guard() -> Self {
        Self { update: false }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            println!("SKIPPED: instructions are compared on {ARCHITECTURE} Linux only; nothing was checked");
            return Ok(());
        }
        if !has_valgrind() {
            println!(
                "SKIPPED: there is no valgrind on this machine, so nothing was checked: a part that became slower goes \
                 unnoticed. Install it (`apt-get install valgrind`) and run `cargo xtask instructions`"
            );
            return Ok(());
        }
        let folder = release("parts")?;
        let program = folder.join("bench-parts");
        let counted = counted(&program)?;
        let file = root().join(FILE);
        if self.update {
            fs::write(&file, serde_json::to_string_pretty(&rounded(&counted))? + "\n")?;
            println!("wrote {} parts to {FILE}", counted.len());
            return Ok(());
        }
        let known: Counts = serde_json::from_slice(&fs::read(&file).map_err(|error| format!("{FILE}: {error}"))?)?;
        let (rows, complaints) = compare(&known, &counted);
        print!("{}", table(["part", "instructions per item", "written down", "change", ""], &rows));
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(format!("{}\nif that is as it has to be: cargo xtask instructions --update", complaints.join("\n"))
                .into())
        }
    }
}

fn has_valgrind() -> bool {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Two parts at a time, as most machines have two processors and each takes one.
fn counted(program: &Path) -> Result<Counts, Failure> {
    let names = output_of(Command::new(program))?;
    let parts: Vec<(String, f64)> = names
        .lines()
        .filter_map(|line| {
            let (name, items) = line.split_once(' ')?;
            Some((name.to_owned(), items.parse().ok()?))
        })
        .collect();
    if parts.is_empty() {
        return Err("there are no parts to count".into());
    }
    let count = |(name, items): &(String, f64)| -> Result<(String, f64), String> {
        let [short, long] = RUNS.map(|runs| total(program, name, runs));
        Ok((name.clone(), (long? - short?) as f64 / ((RUNS[1] - RUNS[0]) as f64 * items)))
    };
    let half = parts.len() / 2;
    let all = |parts: &[(String, f64)]| parts.iter().map(count).collect::<Result<Vec<_>, String>>();
    let (here, there) = std::thread::scope(|scope| {
        let there = scope.spawn(|| all(&parts[..half]));
        (all(&parts[half..]), there.join())
    });
    let there = there.map_err(|_| "a thread that counts panicked")??;
    Ok(here?.into_iter().chain(there).collect())
}

/// The instructions of a whole process that runs a part so often.
fn total(program: &Path, name: &str, runs: u64) -> Result<u64, String> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).args([name, &runs.to_string()]);
    let output = command.output().map_err(|error| format!("cannot run valgrind: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name} failed under valgrind:\n{words}"));
    }
    collected(&words).ok_or_else(|| format!("valgrind counted nothing for {name}:\n{words}"))
}

/// The number in a line as in `==17== Collected : 87287973`.
fn collected(words: &str) -> Option<u64> {
    words.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

fn rounded(counts: &Counts) -> Counts {
    counts.iter().map(|(name, count)| (name.clone(), (count * 10.0).round() / 10.0)).collect()
}

fn compare(known: &Counts, counted: &Counts) -> (Vec<[String; 5]>, Vec<String>) {
    let mut rows = Vec::new();
    let mut complaints = Vec::new();
    for (name, &count) in counted {
        let Some(&before) = known.get(name) else {
            rows.push([name.clone(), format!("{count:.1}"), "-".to_owned(), String::new(), "NEW".to_owned()]);
            complaints.push(format!("{name} is not in {FILE}"));
            continue;
        };
        let change = count / before - 1.0;
        let state = if change > TOLERANCE {
            complaints.push(format!("{name} takes {count:.1} instructions per item, {before:.1} are written down"));
            "DEARER"
        } else if change < -TOLERANCE {
            "cheaper: write it down"
        } else {
            "ok"
        };
        let change = format!("{:+.1} %", change * 100.0);
        rows.push([name.clone(), format!("{count:.1}"), format!("{before:.1}"), change, state.to_owned()]);
    }
    complaints.extend(known.keys().filter(|name| !counted.contains_key(*name)).map(|name| format!("{name} is gone")));
    (rows, complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, f64)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn the_number_is_found_in_what_valgrind_says() {
        let words = "==7== Events    : Ir\n==7== Collected : 87287973\n==7== \n==7== I   refs:      87,287,973\n";
        assert_eq!(collected(words), Some(87_287_973));
        assert_eq!(collected("==7== nothing"), None);
    }

    #[test]
    fn what_became_dearer_fails_and_what_became_cheaper_does_not() {
        let known = counts(&[("a", 100.0), ("b", 100.0), ("c", 100.0), ("gone", 1.0)]);
        let (rows, complaints) = compare(&known, &counts(&[("a", 109.0), ("b", 111.0), ("c", 50.0), ("new", 1.0)]));
        assert_eq!(
            rows.iter().map(|row| row[4].as_str()).collect::<Vec<_>>(),
            ["ok", "DEARER", "cheaper: write it down", "NEW"]
        );
        assert_eq!(complaints.len(), 3, "{complaints:?}");
    }
}
