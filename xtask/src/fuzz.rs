//! `cargo xtask fuzz`: every target of `fuzz/` for a while each, on the pinned compiler.
//!
//! What must stay true: it needs no nightly compiler and no other tool than cargo and a C++ compiler, which libFuzzer is built
//! with; what `cargo fuzz` would instrument is instrumented, but for the address sanitizer, which code without `unsafe` does
//! not need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::Failure;
use crate::steps::{cargo, output_of, root, run, timed};
use crate::table::table;

/// What `cargo fuzz` passes as well: counters at every edge, and the operands of comparisons.
const INSTRUMENTED: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// A target that needs more has found something: no input that it is given is longer than a few KiB.
const MOST_MEMORY_MIB: u32 = 512;

/// Feeds the decoders and the state machines with whatever a fuzzer comes up with.
///
/// It begins with the inputs in `fuzz/corpus`, and leaves those that reach new code in `target/fuzz/corpus`, from which the next
/// run goes on; `--keep` takes the fewest that are needed into `fuzz/corpus`. One that fails is left in `fuzz/artifacts`, and the
/// command fails. Needs a C++ compiler.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Takes what was found into `fuzz/corpus`, as the smallest set of inputs that reaches the same code.
    #[arg(long)]
    keep: bool,
    /// Only these targets, by the name of their file in `fuzz/fuzz_targets`.
    targets: Vec<String>,
}

impl Fuzz {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let all = targets()?;
        if let Some(unknown) = self.targets.iter().find(|target| !all.contains(target)) {
            return Err(format!("no target is called {unknown}; there are: {}", all.join(", ")).into());
        }
        let chosen = if self.targets.is_empty() { all } else { self.targets };
        let programs = build(&chosen)?;
        let mut rows = Vec::new();
        let mut failed = Vec::new();
        for (target, program) in programs {
            let (result, took) = timed(|| fuzz(&target, &program, self.seconds));
            let state = if result? && (!self.keep || keep(&target, &program)?) { "ok" } else { "FAILED" };
            if state != "ok" {
                failed.push(target.clone());
            }
            rows.push([target, format!("{:.0} s", took.as_secs_f64()), state.to_owned()]);
        }
        println!("\n{}", table(["target", "time", ""], &rows));
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("failed: {}; the inputs are in fuzz/artifacts", failed.join(", ")).into())
        }
    }
}

fn targets() -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for file in std::fs::read_dir(root().join("fuzz/fuzz_targets"))? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    Ok(names)
}

/// Builds the targets, instrumented with all they depend on, and tells where their programs are.
fn build(chosen: &[String]) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut compiler = Command::new("rustc");
    compiler.arg("-vV").current_dir(root());
    let compiler = output_of(compiler)?;
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    // With a target named, build scripts and macros are not instrumented.
    let mut command = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    let folder = root().join("target/fuzz");
    command.arg("--target-dir").arg(&folder).env("RUSTFLAGS", INSTRUMENTED);
    for target in chosen {
        command.args(["--bin", target]);
    }
    if !run(command)? {
        return Err("the targets cannot be built; the compiler's output is above".into());
    }
    let programs = folder.join(host).join("release");
    Ok(chosen.iter().map(|target| (target.clone(), programs.join(target))).collect())
}

fn fuzz(target: &str, program: &Path, seconds: u64) -> Result<bool, Failure> {
    let [kept, found] = corpora(target)?;
    let artifacts = root().join("fuzz/artifacts").join(target);
    std::fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-rss_limit_mb={MOST_MEMORY_MIB}"))
        .args(["-timeout=10", "-print_final_stats=1", "-verbosity=0"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([found, kept])
        .current_dir(root().join("fuzz"));
    run(command)
}

/// Makes of what is kept and what was found the smallest set that reaches as much code, however often, and keeps that.
fn keep(target: &str, program: &Path) -> Result<bool, Failure> {
    let [kept, found] = corpora(target)?;
    let merged = kept.with_extension("merged");
    std::fs::create_dir_all(&merged)?;
    let mut command = Command::new(program);
    command
        .args(["-set_cover_merge=1", "-use_counters=0", "-verbosity=0"])
        .args([&merged, &found, &kept])
        .current_dir(root().join("fuzz"));
    let done = run(command)?;
    if done {
        std::fs::remove_dir_all(&kept)?;
        std::fs::rename(&merged, &kept)?;
    }
    Ok(done)
}

/// The folders of a target: what is kept, and what was found on this machine.
fn corpora(target: &str) -> Result<[PathBuf; 2], Failure> {
    let folders = [root().join("fuzz/corpus").join(target), root().join("target/fuzz/corpus").join(target)];
    for folder in &folders {
        std::fs::create_dir_all(folder)?;
    }
    Ok(folders)
}
