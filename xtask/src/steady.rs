//! Running tests, and once more those that failed: what `units` and the integration have in common.
//!
//! On a machine that others use as well, a deadline may pass for want of a processor. Such a test is named, run once more
//! without its neighbours, and counted as what it is. Only a run of which every failure is known by name is made good so: a
//! program that does not build, or that dies before it has told its result, has failed.

use std::collections::BTreeSet;
use std::process::Command;

use crate::Failure;
use crate::steps::run_reading;

/// What the test runners of one command told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// The paths of those that failed.
    failures: BTreeSet<String>,
    /// Test programs that began and have not told their result.
    unfinished: u32,
    /// The list of paths that is being read.
    list: Option<Vec<String>>,
}

/// What came of tests, and of those that were run again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    /// All passed, these only at the second run.
    Unsteady(Vec<String>),
    /// Nothing could be tested here; the reason was told.
    Skipped,
    NoTestRan,
    Failed,
}

impl State {
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self, Self::Ok | Self::Unsteady(_))
    }

    /// For a table.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Ok => "ok".to_owned(),
            Self::Unsteady(tests) => format!("ok, UNSTEADY: {}", tests.join(", ")),
            Self::Skipped => "SKIPPED".to_owned(),
            Self::NoTestRan => "NO TEST RAN".to_owned(),
            Self::Failed => "FAILED".to_owned(),
        }
    }
}

/// Runs tests by `command`, which is given arguments for the test runner: none at first, then those that run what failed
/// once more, one at a time.
pub(crate) fn run(command: impl Fn(&[String]) -> Command) -> Result<(Count, State), Failure> {
    let (mut count, success) = once(command(&[]))?;
    let Some(failed) = count.to_run_again(success) else {
        let state = count.state(success);
        return Ok((count, state));
    };
    println!("\nUNSTEADY, or broken; once more, one at a time: {}", failed.join(", "));
    let alone = ["--exact", "--test-threads=1"].map(str::to_owned).into_iter().chain(failed);
    let (again, success) = once(command(&alone.collect::<Vec<_>>()))?;
    let state = count.make_good(&again, success);
    Ok((count, state))
}

fn once(command: Command) -> Result<(Count, bool), Failure> {
    let mut count = Count::default();
    let success = run_reading(command, |line| count.add(line))?;
    Ok((count, success))
}

impl Count {
    /// Adds a line that a test runner prints.
    ///
    /// Each program begins with `running 3 tests` and ends with `test result: ok. 3 passed; 0 failed; ...`. Right before
    /// that is, if any failed, a line `failures:` and the path of each, four spaces in.
    fn add(&mut self, line: &str) {
        if let Some(result) = line.trim().strip_prefix("test result: ") {
            let number = |what: &str| {
                let before = result.split(what).next()?;
                before.split_whitespace().last()?.parse::<u32>().ok()
            };
            self.passed += number(" passed").unwrap_or(0);
            self.failed += number(" failed").unwrap_or(0);
            self.unfinished = self.unfinished.saturating_sub(1);
            self.failures.extend(self.list.take().unwrap_or_default());
        } else if line.strip_prefix("running ").is_some_and(|rest| rest.ends_with(" tests") || rest.ends_with(" test"))
        {
            self.unfinished += 1;
        } else if line == "failures:" {
            self.list = Some(Vec::new());
        } else if let Some(list) = &mut self.list
            && let Some(path) = line.strip_prefix("    ")
        {
            list.push(path.to_owned());
        } else if self.list.as_ref().is_some_and(|list| list.is_empty() || !line.is_empty()) {
            // The first of the two lists is of what the tests have printed.
            self.list = None;
        }
    }

    /// The paths of all that failed; `None` if nothing did, or if more went wrong than tests that can be run again.
    fn to_run_again(&self, success: bool) -> Option<Vec<String>> {
        // An example in the docs is called by its file and line, which the runner does not take as one name. It waits for
        // nothing, so its failure is one.
        let known = self.failures.iter().all(|path| !path.contains(' '));
        // Tests of two programs may share a path.
        let all = !self.failures.is_empty() && self.failures.len() <= self.failed as usize && self.unfinished == 0;
        (!success && known && all).then(|| self.failures.iter().cloned().collect())
    }

    /// What the first run is worth after its failures were run `again`.
    fn make_good(&mut self, again: &Self, success: bool) -> State {
        if !success || again.failed > 0 || again.unfinished > 0 || again.passed < self.failed {
            return State::Failed;
        }
        self.passed += self.failed;
        self.failed = 0;
        State::Unsteady(self.failures.iter().cloned().collect())
    }

    fn state(&self, success: bool) -> State {
        match (success, self.passed + self.failed) {
            (false, _) => State::Failed,
            (true, 0) => State::NoTestRan,
            (true, _) => State::Ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(output: &str) -> Count {
        let mut count = Count::default();
        output.lines().for_each(|line| count.add(line));
        count
    }

    const FAILED: &str = "
running 3 tests
.F.
failures:

---- recovery::killed::one stdout ----
failures:
    printed::by_the_test

failures:
    alone
    recovery::killed::one

test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s
";
    const PASSED: &str = "
running 3 tests
...
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.54s
";

    #[test]
    fn results_of_several_programs_add_up_and_failures_are_named() {
        let found = count(&[PASSED, FAILED].concat());
        assert_eq!((found.passed, found.failed, found.unfinished), (13, 2, 0));
        let names = ["alone", "recovery::killed::one"].map(str::to_owned);
        assert_eq!(found.to_run_again(false), Some(names.to_vec()));
    }

    #[test]
    fn a_run_without_tests_is_not_a_success() {
        assert_eq!(Count::default().state(true), State::NoTestRan);
        assert_eq!(count(PASSED).state(true), State::Ok);
        assert_eq!(count(PASSED).state(false), State::Failed);
    }

    #[test]
    fn only_failures_that_are_all_known_by_name_are_run_again() {
        assert_eq!(count(PASSED).to_run_again(true), None);
        // It was not built.
        assert_eq!(Count::default().to_run_again(false), None);
        // A program was killed before it told what failed.
        assert_eq!(count(&[FAILED, "running 7 tests\n.."].concat()).to_run_again(false), None);
        let documented = FAILED.replace("    alone", "    crates/a/src/lib.rs - (line 12)");
        assert_eq!(count(&documented).to_run_again(false), None);
    }

    #[test]
    fn what_passes_at_the_second_run_is_named_and_what_fails_twice_fails() {
        let mut first = count(FAILED);
        assert_eq!(first.make_good(&count(FAILED), false), State::Failed);
        // One of the two was not among those that ran.
        let one = count(&PASSED.replace("3 passed", "1 passed"));
        assert_eq!(first.make_good(&one, true), State::Failed);
        assert_eq!((first.passed, first.failed), (10, 2));
        let state = first.make_good(&count(PASSED), true);
        assert_eq!(state.shown(), "ok, UNSTEADY: alone, recovery::killed::one");
        assert_eq!((first.passed, first.failed, state.is_ok()), (12, 0, true));
    }
}
