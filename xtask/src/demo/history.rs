//! The history of a run of the demo: the journals of all processes put together, and how each process ended.

use std::collections::{BTreeMap, HashMap, HashSet};

use streamkeeper::EntryId;

use super::journal::{Record, Start};

/// A handler run. Times are nanoseconds of the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) process: u32,
    pub(crate) what: Start,
    pub(crate) began: u64,
    /// `None` where its process died, or has not come to it yet.
    pub(crate) ended: Option<Ended>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) at: u64,
    pub(crate) done: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By SIGKILL.
    Killed,
    /// By its own abort.
    Aborted,
    /// By itself, after it was asked to stop.
    Stopped,
}

impl End {
    /// Whether it took down what it was working on.
    pub(crate) fn is_crash(self) -> bool {
        matches!(self, Self::Killed | Self::Aborted)
    }
}

/// A process that ended, no later than `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) process: u32,
    pub(crate) at: u64,
    pub(crate) how: End,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) runs: Vec<Run>,
    pub(crate) exits: Vec<Exit>,
    /// When the server was killed and when it answered again.
    pub(crate) outages: Vec<(u64, u64)>,
    /// The names under which the processes consume.
    pub(crate) consumers: BTreeMap<u32, String>,
    /// Records that do not fit together.
    pub(crate) broken: Vec<String>,
    /// The run that is not over yet, as an index.
    open: HashMap<(u32, EntryId), usize>,
    handled: HashSet<u64>,
}

impl History {
    pub(crate) fn add(&mut self, process: u32, record: Record) {
        match record {
            Record::Worker { consumer, .. } => {
                self.consumers.insert(process, consumer);
            }
            Record::Started { what, at } => {
                if self.open.insert((process, what.entry), self.runs.len()).is_some() {
                    self.broken
                        .push(format!("worker {process} began entry {} anew before it had ended it", what.entry));
                }
                self.runs.push(Run { process, what, began: at, ended: None });
            }
            Record::Ended { what, at, done } => {
                match self.open.remove(&(process, what.entry)).map(|run| &mut self.runs[run]) {
                    Some(run) if run.what == what => run.ended = Some(Ended { at, done }),
                    _ => self.broken.push(format!("worker {process} ended entry {} without a beginning", what.entry)),
                }
                if done {
                    self.handled.insert(what.order);
                }
            }
        }
    }

    /// Orders that were handled at least once.
    pub(crate) fn handled(&self) -> u64 {
        self.handled.len() as u64
    }

    /// When a run was over at the latest: processes that died run nothing any more.
    pub(crate) fn over(&self, run: &Run) -> u64 {
        let exit = || self.exits.iter().find(|exit| exit.process == run.process).map(|exit| exit.at);
        run.ended.map(|ended| ended.at).or_else(exit).unwrap_or(u64::MAX)
    }

    /// Most orders handled within one second.
    pub(crate) fn busiest_second(&self) -> u64 {
        let mut seconds: HashMap<u64, u64> = HashMap::new();
        for ended in self.runs.iter().filter_map(|run| run.ended).filter(|ended| ended.done) {
            *seconds.entry(ended.at / 1_000_000_000).or_default() += 1;
        }
        seconds.into_values().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(entry: u64, attempt: u32) -> Start {
        Start { entry: EntryId::new(entry, 0), order: entry, attempt }
    }

    #[test]
    fn starts_and_ends_become_runs_and_a_dead_process_ends_its_own() {
        let mut history = History::default();
        history.add(1, Record::Started { what: what(1, 1), at: 10 });
        history.add(1, Record::Started { what: what(2, 1), at: 11 });
        history.add(1, Record::Ended { what: what(1, 1), at: 12, done: true });
        assert_eq!(history.handled(), 1);
        assert_eq!(history.runs[0].ended, Some(Ended { at: 12, done: true }));
        assert_eq!(history.over(&history.runs[1]), u64::MAX);
        history.exits.push(Exit { process: 1, at: 20, how: End::Killed });
        assert_eq!((history.over(&history.runs[0]), history.over(&history.runs[1])), (12, 20));
        assert_eq!(history.broken, Vec::<String>::new());
    }

    #[test]
    fn records_that_do_not_fit_together_are_noticed() {
        let mut history = History::default();
        history.add(1, Record::Started { what: what(1, 1), at: 10 });
        history.add(1, Record::Started { what: what(1, 2), at: 11 });
        history.add(2, Record::Ended { what: what(1, 2), at: 12, done: true });
        assert_eq!(history.broken.len(), 2, "{:?}", history.broken);
    }
}
