//! `cargo xtask test`: everything that a change has to pass.

use clap::Args;

use crate::Failure;
use crate::containers;
use crate::demo::Demo;
use crate::instructions::Instructions;
use crate::integration::Integration;
use crate::simulate::Simulate;
use crate::soak::Soak;
use crate::steady::{self, State};
use crate::steps::{cargo, run, timed};
use crate::table::table;

/// Runs everything that a change has to pass: format, lints, docs, unit, property and doc tests, 500 seeds of the
/// simulation, the instruction counts of the parts (with valgrind), the integration suites on every server of this machine,
/// nodes that are cut off on containers (with a Docker engine), a soak of two minutes on three topologies at a time, and the demo.
///
/// All steps run, also after one that failed, so that one run shows all there is to mend. Servers of the matrix that are
/// missing are named. The exit code is 0 only if every step passed.
#[derive(Debug, Args)]
pub(crate) struct Test {}

/// Enough for every part of the demo to meet handlers at work.
const DEMO_MESSAGES: u64 = 20_000;

type Step = fn() -> Result<State, Failure>;

impl Test {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(crate) fn run(self) -> Result<(), Failure> {
        let steps: [(&str, Step); 10] = [
            ("format", || cargo_step(&["fmt", "--all", "--check"])),
            ("lints", || {
                cargo_step(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
            }),
            ("docs", docs),
            ("unit, property and doc tests", units),
            ("simulation", || Simulate::guard().map(|()| State::Ok)),
            ("instructions of the parts", || Instructions::guard().run().map(|()| State::Ok)),
            ("integration on every server", || Integration::everything().run()),
            ("nodes cut off, on containers", containers::guard),
            ("soak on three topologies", || Soak::short().run().map(|()| State::Ok)),
            ("demo", demo),
        ];
        let mut rows = Vec::new();
        let mut failed = 0;
        for (number, (name, step)) in steps.iter().enumerate() {
            println!("\n=== {}/{} {name}", number + 1, steps.len());
            let (result, took) = timed(step);
            let took = format!("{:.1} s", took.as_secs_f64());
            let state = match result {
                Ok(state) => state.shown(),
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

fn units() -> Result<State, Failure> {
    let tests = [
        "--workspace",
        "--exclude",
        "streamkeeper-tests",
        "--exclude",
        "streamkeeper-simulation",
        "--all-features",
        "--no-fail-fast",
        "--",
    ];
    let (_, state) = steady::run(|filter| {
        let mut command = cargo(&[&["test", "--quiet"], &tests[..]].concat());
        command.args(filter);
        command
    })?;
    if state.is_ok() { Ok(state) } else { Err("tests failed; they are named above".into()) }
}

/// Processes and a server that stand still for longer than a lease are not told from dead ones, by anybody: one more run
/// tells a machine that others use from a demo that is broken.
fn demo() -> Result<State, Failure> {
    let demo = || Demo::with_messages(DEMO_MESSAGES).run();
    demo().map(|()| State::Ok).or_else(|error| {
        eprintln!("error: {error}");
        println!("\nUNSTEADY, or broken; once more: the demo");
        demo().map(|()| State::Unsteady(vec!["the demo".to_owned()]))
    })
}

fn docs() -> Result<State, Failure> {
    let mut command = cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--all-features"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    succeeded(run(command)?)
}

fn cargo_step(arguments: &[&str]) -> Result<State, Failure> {
    succeeded(run(cargo(arguments))?)
}

fn succeeded(success: bool) -> Result<State, Failure> {
    if success { Ok(State::Ok) } else { Err("the command failed; its output is above".into()) }
}
