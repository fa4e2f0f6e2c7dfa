//! `cargo xtask integration`: the tests that need a real server, once per server.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use stream_testkit::matrix::{HOW_TO_GET_SERVERS, Surroundings};
use stream_testkit::{ServerBinary, remove_leftovers};

use crate::Failure;
use crate::containers::{provide, wants_containers};
use crate::servers::missing;
use crate::steady::{self, Count, State};
use crate::steps::{cargo, output_of, timed};
use crate::table::table;

const PACKAGE: &str = "streamkeeper-tests";

/// Runs the integration suites on real servers and prints what passed.
///
/// With several servers it is one run, in which each test goes over all of them and names the one that it failed on.
///
/// A server that is asked for by name and is not there is an error that tells how to get it.
#[derive(Debug, Args)]
pub(crate) struct Integration {
    /// A server's name, several with commas between, or `all` of this machine (see `cargo xtask servers`). Default: all,
    /// or what `STREAMKEEPER_SERVER` says. `container:redis-8.0` is that server as a container, `container:all` are those whose
    /// images the Docker engine has; images are made by the program that `STREAMKEEPER_IMAGES` names,
    /// else pulled.
    #[arg(long, value_name = "NAME|all")]
    server: Option<String>,

    /// Only tests whose path begins with this: a suite as in `delivery`, or deeper as in `delivery::crash`.
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,

    /// The long form of the tests that have one, such as ten failovers in place of one, with exact bounds and the figures
    /// printed, one test at a time. Needs a machine that does nothing else.
    #[arg(long)]
    thorough: bool,
}

impl Integration {
    /// Everything on every server.
    pub(crate) fn everything() -> Self {
        Self { server: Some("all".to_owned()), suite: None, thorough: false }
    }

    /// One suite on one server.
    pub(crate) fn on(server: &str, suite: &str) -> Self {
        Self { server: Some(server.to_owned()), suite: Some(suite.to_owned()), thorough: false }
    }

    /// What came of it, if it is good.
    pub(crate) fn run(self) -> Result<State, Failure> {
        let mut surroundings = Surroundings::from_env();
        let selection = self.server.or_else(|| surroundings.selection.clone());
        let containers = selection.as_deref().is_some_and(wants_containers);
        if let Some(selection) = selection {
            provide(&mut surroundings, &selection);
        }
        let servers = surroundings.servers()?;
        let names: Vec<&str> = servers.iter().map(ServerBinary::name).collect();
        println!("servers: {}", names.join(", "));
        if surroundings.selection.as_deref().is_none_or(|selection| selection.trim() == "all") {
            tell_missing(&servers);
        }

        let mut filter = match &self.suite {
            Some(suite) => exact_filter(suite, &listed()?)?,
            None => Vec::new(),
        };
        if self.thorough {
            filter.extend(["--test-threads=1", "--show-output"].map(str::to_owned));
        }
        for server in &servers {
            println!("== {} {} ({})", server.name(), server.version(), server.location());
        }
        let selection = names.join(",");
        let (outcome, took) = timed(|| {
            steady::run(|again| on(&selection, if again.is_empty() { &filter } else { again }, self.thorough))
        });
        if containers && let Ok(left @ 1..) = remove_leftovers() {
            println!("removed {left} containers and networks that tests had left");
        }
        let (count, state) = outcome?;
        let row = row(&selection, &count, &state, took);
        println!("\n{}", table(["servers", "passed", "failed", "time", ""], &[row]));
        if state.is_ok() { Ok(state) } else { Err(format!("integration failed on {selection}").into()) }
    }
}

/// Names the servers of the matrix that this run does without: they must not go unnoticed.
fn tell_missing(servers: &[ServerBinary]) {
    let missing = missing(servers);
    if !missing.is_empty() {
        println!("NOT tested, for want of a server: {}\n{HOW_TO_GET_SERVERS}", missing.join(", "));
    }
}

fn on(selection: &str, filter: &[String], thorough: bool) -> Command {
    let mut command = cargo(&["test", "--quiet", "--package", PACKAGE, "--tests", "--no-fail-fast", "--"]);
    // Most of them wait for a server most of the time; more at once would miss their deadlines.
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).max(3);
    if !filter.iter().any(|argument| argument.starts_with("--test-threads")) {
        command.arg(format!("--test-threads={threads}"));
    }
    command.args(filter).env("STREAMKEEPER_SERVER", selection);
    if thorough {
        command.envs([("STREAMKEEPER_THOROUGH", "1"), ("STREAMKEEPER_SILENCE", "60")]);
    }
    command
}

fn row(servers: &str, count: &Count, state: &State, took: Duration) -> [String; 5] {
    [
        servers.to_owned(),
        count.passed.to_string(),
        count.failed.to_string(),
        format!("{:.1} s", took.as_secs_f64()),
        state.shown(),
    ]
}

/// The paths of all tests.
fn listed() -> Result<Vec<String>, Failure> {
    let output =
        output_of(cargo(&["test", "--quiet", "--package", PACKAGE, "--tests", "--", "--list", "--format=terse"]))?;
    Ok(output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Arguments that run exactly the tests below `suite`; the test runner's own filter takes any part of a path.
fn exact_filter(suite: &str, tests: &[String]) -> Result<Vec<String>, Failure> {
    let chosen: Vec<String> = tests.iter().filter(|test| test.starts_with(suite)).cloned().collect();
    if chosen.is_empty() {
        let suites: BTreeSet<&str> = tests.iter().filter_map(|test| Some(test.split_once("::")?.0)).collect();
        let suites: Vec<&str> = suites.into_iter().collect();
        return Err(format!("no test begins with {suite}; the suites are: {}", suites.join(", ")).into());
    }
    Ok(std::iter::once("--exact".to_owned()).chain(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_the_beginning_of_a_path_and_not_any_part_of_it() {
        let tests = ["delivery::plain", "delivery::crash::one", "recovery::delivery"].map(str::to_owned);
        let filter = exact_filter("delivery", &tests).unwrap();
        assert_eq!(filter, ["--exact", "delivery::plain", "delivery::crash::one"]);
        let error = exact_filter("maint", &tests).unwrap_err().to_string();
        assert_eq!(error, "no test begins with maint; the suites are: delivery, recovery");
    }
}
