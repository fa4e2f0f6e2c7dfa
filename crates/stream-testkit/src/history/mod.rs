//! [`History`]: what publishers, handlers, maintenance and those who disturb them have written down, and the judge of it.
//!
//! One history is of one stream and one group; with several, there are several histories. Whoever does something adds an
//! [`Event`] with the time of one clock that all share (the machine's monotonic clock, or virtual time), in any order.
//! [`History::check`] says whether every guarantee held. It is pure: the same events give the same verdict.
//!
//! What must stay true: the judge excuses only what the guarantees themselves except (a process that died, that was silent
//! for a lease, a group that was destroyed), and only where the history shows the cause in the place where it has to be.
//!
//! ```
//! use stream_core::EntryId;
//! use stream_testkit::history::{Event, Expectations, Fate, History, What};
//!
//! let mut history = History::default();
//! let entry = EntryId::new(1, 0);
//! history.add(10, What::Published { entry, number: 1, key: None, fate: Fate::Handled });
//! let verdict = history.check(&Expectations::default());
//! assert_eq!(verdict.violations[0].to_string(), "lost: 1-0 (message 1) was neither handled nor dead-lettered");
//! ```

mod event;
mod facts;
mod rules;
mod text;
mod verdict;

use std::time::Duration;

pub use event::{Cause, Ending, Event, Fate, Reason, Returned, What};
pub use text::BadLine;
pub use verdict::{Counts, Rule, Verdict, Violation};

use facts::Facts;

/// Events, in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Event>,
}

/// What the system under test was set to, as far as the judge has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectations {
    /// Starts of one entry that are allowed. Default: 3.
    pub max_attempts: u32,
    /// The lease: whoever was silent for most of it may have lost what it held, and has noticed that a lease after its
    /// return. Default: 3 s.
    pub lease: Duration,
    /// Within what time a finished entry is acknowledged while nothing disturbs. Default: 2 s.
    pub settle: Duration,
    /// How old what a process knows of the group's position may be, while it is not silent. After a loss of the group,
    /// nothing comes again that was seen to be finished that long before. Default: 10 s.
    pub stale: Duration,
    /// How long a reader without a group may take to tell of what it missed. Default: 2 s.
    pub told_within: Duration,
    /// Whether nothing may be left to do in the end. Default: yes.
    pub settled: bool,
    /// Messages are numbered from 1, and those up to this one have to be on the stream. Default: 0.
    pub messages: u64,
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            lease: Duration::from_secs(3),
            settle: Duration::from_secs(2),
            stale: Duration::from_secs(10),
            told_within: Duration::from_secs(2),
            settled: true,
            messages: 0,
        }
    }
}

impl Expectations {
    /// A silence of this length may have cost a lease, in microseconds: a lease is up to half its length old before it is
    /// renewed (`stream_core::LeasePolicy`), so a silence that begins just before the renewal costs it after the other half.
    pub(crate) fn silence(&self) -> u64 {
        micros(self.lease) / 2
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl History {
    /// Adds what happened `at` this time, in microseconds.
    pub fn add(&mut self, at: u64, what: What) {
        self.events.push(Event { at, what });
    }

    /// All events, in the order in which they were added.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether every guarantee held.
    pub fn check(&self, expectations: &Expectations) -> Verdict {
        let facts = Facts::of(self, expectations);
        rules::check(&facts, expectations)
    }
}

impl Extend<Event> for History {
    fn extend<I: IntoIterator<Item = Event>>(&mut self, events: I) {
        self.events.extend(events);
    }
}

#[cfg(test)]
mod tests;
