//! `cargo xtask test`: everything that a change has to pass.

use clap::Args;

use crate::Failure;
use crate::demo::Demo;
use crate::instructions::Instructions;
use crate::integration::Integration;
use crate::simulate::Simulate;
use crate::soak::Soak;
use crate::steps::{cargo, run, timed};
use crate::table::table;

/// Runs everything that a change has to pass: format, lints, docs, unit, property and doc tests, 500 seeds of the simulation,
/// the instruction counts of the parts (with valgrind), the integration suites on every server of this machine, a soak of two minutes on three topologies at a
/// time, and the demo.
///
/// All steps run, also after one that failed, so that one run shows all there is to mend. Servers of the matrix that are
/// missing are named. The exit code is 0 only if every step passed.
#[derive(Debug, Args)]
pub(crate) struct Test {}

/// Enough for every part of the demo to meet handlers at work.
const DEMO_MESSAGES: u64 = 20_000;

type Step = fn() -> Result<(), Failure>;

impl Test {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(crate) fn run(self) -> Result<(), Failure> {
        let steps: [(&str, Step); 9] = [
            ("format", || cargo_step(&["fmt", "--all", "--check"])),
            ("lints", || {
                cargo_step(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
            }),
            ("docs", docs),
            ("unit, property and doc tests", units),
            ("simulation", Simulate::guard),
            ("instructions of the parts", || Instructions::guard().run()),
            ("integration on every server", || Integration::everything().run()),
            ("soak on three topologies", || Soak::short().run()),
            ("demo", || Demo::with_messages(DEMO_MESSAGES).run()),
        ];
        let mut rows = Vec::new();
        let mut failed = 0;
        for (number, (name, step)) in steps.iter().enumerate() {
            println!("\n=== {}/{} {name}", number + 1, steps.len());
            let (result, took) = timed(step);
            let took = format!("{:.1} s", took.as_secs_f64());
            let state = match result {
                Ok(()) => "ok".to_owned(),
                Err(error) => {
                    failed += 1;
                    eprintln!("error: {error}");
                    "FAILED".to_owned()
                }
            };
            println!("=== {name}: {state} in {took}");
            rows.push([(*name).to_owned(), took, state]);
        }
        println!("\n{}", table(["step", "time", ""], &rows));
        if failed == 0 { Ok(()) } else { Err(format!("{failed} of {} steps failed", steps.len()).into()) }
    }
}

/// Some of these run on real servers with deadlines, which a machine that is shared may miss: one more run tells that from
/// a test that is broken, and says so.
fn units() -> Result<(), Failure> {
    // The integration suites and the simulation have steps of their own.
    let others = ["--exclude", "streamkeeper-tests", "--exclude", "streamkeeper-simulation"];
    let tests = [&["test", "--quiet", "--workspace"][..], &others, &["--all-features"]].concat();
    cargo_step(&tests).or_else(|_| {
        println!("\nUNSTEADY, or broken: a test above failed; once more, one at a time");
        cargo_step(&[&tests[..], &["--no-fail-fast", "--", "--test-threads=1"]].concat())
    })
}

fn docs() -> Result<(), Failure> {
    let mut command = cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    succeeded(run(command)?)
}

fn cargo_step(arguments: &[&str]) -> Result<(), Failure> {
    succeeded(run(cargo(arguments))?)
}

fn succeeded(success: bool) -> Result<(), Failure> {
    if success { Ok(()) } else { Err("the command failed; its output is above".into()) }
}
