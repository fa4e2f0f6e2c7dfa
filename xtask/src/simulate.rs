//! `cargo xtask simulate`: the deterministic simulation, in the package `simulation`.
//!
//! It is a package of its own, built in a way of its own: the library in it has a feature that is for nothing else, and it
//! has to be fast.

use std::process::Command;

use clap::Args;

use crate::Failure;
use crate::steps::{cargo, root, run};

/// So many seeds with every `cargo xtask test`.
const SEEDS: u64 = 500;

/// Runs the whole fleet (publishers, consumers, maintenance, server, network) on virtual time, decided by a seed.
///
/// Processes crash, freeze and come again, the server is restarted with and without its latest writes, the network cuts,
/// delays and loses; then every guarantee is checked. A seed that failed is told with what did not hold and the path of its
/// journal, and gives the same run again with `--seed`.
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// How many seeds, one after the other. Without it 500, or the one that `--seed` names.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed. Without it 0.
    #[arg(long)]
    seed: Option<u64>,
    /// A bug to put in, to see that it is found; a wrong name lists them.
    #[arg(long)]
    mutation: Option<String>,
}

impl Simulate {
    /// What every change has to pass: some seeds, that a seed decides everything, and that bugs are found.
    pub(crate) fn guard() -> Result<(), Failure> {
        let tests = cargo(&["test", "--quiet", "--release", "--package", "streamkeeper-simulation"]);
        let found = run(tests)?;
        Self { seeds: Some(SEEDS), seed: None, mutation: None }.run()?;
        if found { Ok(()) } else { Err("a test of the simulation failed; its output is above".into()) }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut command = cargo(&["run", "--quiet", "--release", "--package", "streamkeeper-simulation", "--"]);
        self.pass_on(&mut command);
        if run(command)? { Ok(()) } else { Err("not every seed is clean; see above".into()) }
    }

    fn pass_on(&self, command: &mut Command) {
        let mut option = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                command.args([name, value.as_str()]);
            }
        };
        option("--seeds", self.seeds.map(|seeds| seeds.to_string()));
        option("--seed", self.seed.map(|seed| seed.to_string()));
        option("--mutation", self.mutation.clone());
        command.arg("--journals").arg(root().join("target").join("simulation"));
    }
}
