//! [`Journal`]: which handler ran when and for which entry, as the handlers themselves write it down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use streamkeeper::{Context, EntryId};
use tokio::time::Instant;

/// One run of a handler.
#[derive(Debug, Clone)]
pub struct Run {
    /// The entry.
    pub id: EntryId,
    /// The number of the start, as the handler was told.
    pub attempt: u32,
    /// The consumer that ran it.
    pub consumer: String,
    /// When it started.
    pub start: Instant,
    /// When it ended; `None` while it runs, or if its future was dropped.
    pub end: Option<Instant>,
}

/// All runs, in the order of their starts. Clones are the same journal.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<Mutex<Vec<Run>>>);

/// A run that has begun.
#[derive(Debug)]
#[must_use = "the run has to be ended"]
pub struct Open {
    journal: Journal,
    index: usize,
}

impl Open {
    /// The handler is at its end.
    pub fn end(self) {
        self.journal.runs_mut()[self.index].end = Some(Instant::now());
    }
}

impl Journal {
    /// Notes the start of a run.
    pub fn begin(&self, cx: &Context) -> Open {
        let mut runs = self.runs_mut();
        runs.push(Run {
            id: cx.id(),
            attempt: cx.attempt(),
            consumer: cx.consumer().to_string(),
            start: Instant::now(),
            end: None,
        });
        Open { journal: self.clone(), index: runs.len() - 1 }
    }

    /// All runs so far.
    pub fn runs(&self) -> Vec<Run> {
        self.runs_mut().clone()
    }

    /// How many handlers were started.
    pub fn starts(&self) -> usize {
        self.runs_mut().len()
    }

    /// How many runs came to their end.
    pub fn ends(&self) -> usize {
        self.runs_mut().iter().filter(|run| run.end.is_some()).count()
    }

    /// How many entries had a run that came to its end.
    pub fn finished(&self) -> usize {
        let mut ids: Vec<_> = self.runs_mut().iter().filter(|run| run.end.is_some()).map(|run| run.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    /// The attempts of every entry, in the order of their starts.
    pub fn attempts(&self) -> BTreeMap<EntryId, Vec<u32>> {
        let mut attempts: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for run in self.runs_mut().iter() {
            attempts.entry(run.id).or_default().push(run.attempt);
        }
        attempts
    }

    /// The attempts of one entry.
    pub fn attempts_of(&self, id: EntryId) -> Vec<u32> {
        self.attempts().remove(&id).unwrap_or_default()
    }

    /// Entries of which two runs overlapped. A run whose future was dropped has no end and is not looked at: it ended with
    /// its consumer.
    pub fn overlaps(&self) -> Vec<(EntryId, String, String)> {
        let mut by_entry: BTreeMap<EntryId, Vec<Run>> = BTreeMap::new();
        for run in self.runs().into_iter().filter(|run| run.end.is_some()) {
            by_entry.entry(run.id).or_default().push(run);
        }
        let mut overlaps = Vec::new();
        for (id, runs) in by_entry {
            for (n, first) in runs.iter().enumerate() {
                for second in &runs[n + 1..] {
                    if second.start < first.end.unwrap_or(first.start) {
                        overlaps.push((id, first.consumer.clone(), second.consumer.clone()));
                    }
                }
            }
        }
        overlaps
    }

    fn runs_mut(&self) -> MutexGuard<'_, Vec<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
