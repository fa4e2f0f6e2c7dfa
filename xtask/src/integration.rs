//! `cargo xtask integration`: the tests that need a real server, once per server.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::time::Duration;

use clap::Args;
use stream_testkit::ServerBinary;
use stream_testkit::matrix::{HOW_TO_GET_SERVERS, Surroundings};

use crate::Failure;
use crate::servers::missing;
use crate::steps::{cargo, output_of, run_reading, timed};
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
    /// or what `STREAMKEEPER_SERVER` says.
    #[arg(long, value_name = "NAME|all")]
    server: Option<String>,

    /// Only tests whose path begins with this: a suite as in `delivery`, or deeper as in `delivery::crash`.
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
}

/// What one server's run came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u32,
    failed: u32,
    /// The paths of those that failed.
    failures: BTreeSet<String>,
}

impl Integration {
    /// Everything on every server.
    pub(crate) fn everything() -> Self {
        Self { server: Some("all".to_owned()), suite: None }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut surroundings = Surroundings::from_env();
        if let Some(server) = self.server {
            surroundings.selection = Some(server);
        }
        let servers = surroundings.servers()?;
        let names: Vec<&str> = servers.iter().map(ServerBinary::name).collect();
        println!("servers: {}", names.join(", "));
        if surroundings.selection.as_deref().is_none_or(|selection| selection.trim() == "all") {
            tell_missing(&servers);
        }

        let filter = match &self.suite {
            Some(suite) => exact_filter(suite, &listed()?)?,
            None => Vec::new(),
        };
        for server in &servers {
            println!("== {} {} ({})", server.name(), server.version(), server.location());
        }
        let selection = names.join(",");
        let (outcome, took) = timed(|| on(&selection, &filter));
        let (mut count, exit) = outcome?;
        let mut state = state(&count, exit).to_owned();
        if !count.failures.is_empty() {
            // On a machine that others use as well, a deadline may pass for want of a processor. Such a test is named, run
            // once more without its neighbours, and counted as what it is.
            let failures: Vec<String> = count.failures.iter().cloned().collect();
            println!("\nUNSTEADY, or broken; once more, one at a time: {}", failures.join(", "));
            let alone = ["--exact", "--test-threads=1"].map(str::to_owned).into_iter().chain(failures);
            let (again, exit) = on(&selection, &alone.collect::<Vec<_>>())?;
            if exit && again.passed >= count.failed {
                count.passed += count.failed;
                state = format!("ok, {} at the second run", count.failed);
                count.failed = 0;
            }
        }
        println!("\n{}", table(["servers", "passed", "failed", "time", ""], &[row(&selection, &count, &state, took)]));
        if state.starts_with("ok") { Ok(()) } else { Err(format!("integration failed on {selection}").into()) }
    }
}

/// Names the servers of the matrix that this run does without: they must not go unnoticed.
fn tell_missing(servers: &[ServerBinary]) {
    let missing = missing(servers);
    if !missing.is_empty() {
        println!("NOT tested, for want of a server: {}\n{HOW_TO_GET_SERVERS}", missing.join(", "));
    }
}

fn on(selection: &str, filter: &[String]) -> Result<(Count, bool), Failure> {
    let mut command = cargo(&["test", "--quiet", "--package", PACKAGE, "--tests", "--no-fail-fast", "--"]);
    // Most of them wait for a server most of the time; more at once would miss their deadlines.
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).max(3);
    if !filter.iter().any(|argument| argument.starts_with("--test-threads")) {
        command.arg(format!("--test-threads={threads}"));
    }
    command.args(filter).env("STREAMKEEPER_SERVER", selection);
    let mut count = Count::default();
    let success = run_reading(command, |line| count.add(line))?;
    Ok((count, success))
}

fn state(count: &Count, success: bool) -> &'static str {
    match (success, count.passed + count.failed) {
        (false, _) => "FAILED",
        (true, 0) => "NO TEST RAN",
        (true, _) => "ok",
    }
}

fn row(servers: &str, count: &Count, state: &str, took: Duration) -> [String; 5] {
    [
        servers.to_owned(),
        count.passed.to_string(),
        count.failed.to_string(),
        format!("{:.1} s", took.as_secs_f64()),
        state.to_owned(),
    ]
}

impl Count {
    /// Adds a line as in `test result: ok. 3 passed; 0 failed; 0 ignored; ...`, of which each test binary prints one.
    fn add(&mut self, line: &str) {
        if let Some(result) = line.trim().strip_prefix("test result: ") {
            let number = |what: &str| {
                let before = result.split(what).next()?;
                before.split_whitespace().last()?.parse::<u32>().ok()
            };
            self.passed += number(" passed").unwrap_or(0);
            self.failed += number(" failed").unwrap_or(0);
        }
        // The list of failures at the end: a path on each line, four spaces in.
        if let Some(path) = line.strip_prefix("    ")
            && path.contains("::")
            && path.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        {
            self.failures.insert(path.to_owned());
        }
    }
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
    fn results_of_several_binaries_add_up() {
        let mut count = Count::default();
        count.add("running 3 tests");
        count.add("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.54s");
        count.add("test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s");
        count.add("    recovery::killed::one");
        let failures = ["recovery::killed::one".to_owned()].into();
        assert_eq!(count, Count { passed: 13, failed: 2, failures });
    }

    #[test]
    fn a_run_without_tests_is_not_a_success() {
        assert_eq!(state(&Count::default(), true), "NO TEST RAN");
        assert_eq!(state(&Count { passed: 1, ..Count::default() }, true), "ok");
        assert_eq!(state(&Count { passed: 1, ..Count::default() }, false), "FAILED");
    }

    #[test]
    fn a_suite_is_the_beginning_of_a_path_and_not_any_part_of_it() {
        let tests = ["delivery::plain", "delivery::crash::one", "recovery::delivery"].map(str::to_owned);
        let filter = exact_filter("delivery", &tests).unwrap();
        assert_eq!(filter, ["--exact", "delivery::plain", "delivery::crash::one"]);
        let error = exact_filter("maint", &tests).unwrap_err().to_string();
        assert_eq!(error, "no test begins with maint; the suites are: delivery, recovery");
    }
}
