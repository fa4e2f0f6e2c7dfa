//! Histories that hold, and each with one thing in it that must not be.

use super::*;
use stream_core::EntryId;

/// Times of a history are in milliseconds here.
const MS: u64 = 1_000;

fn id(entry: u64) -> EntryId {
    EntryId::new(entry, 0)
}

/// A history that is written down message by message.
#[derive(Debug, Clone, Default)]
struct Case {
    history: History,
    expectations: Expectations,
}

impl Case {
    fn new() -> Self {
        let mut case = Self::default();
        for process in 1..=4 {
            case.at(0, What::ProcessStarted { process, consumer: format!("host-{process}") });
        }
        case
    }

    fn at(&mut self, ms: u64, what: What) -> &mut Self {
        self.history.add(ms * MS, what);
        self
    }

    /// Message and entry have the same number; it is published at that time.
    fn published(&mut self, number: u64, fate: Fate) -> &mut Self {
        self.at(number, What::Published { entry: id(number), number, key: None, fate })
    }

    fn keyed(&mut self, number: u64, key: u64) -> &mut Self {
        self.at(number, What::Published { entry: id(number), number, key: Some(key), fate: Fate::Handled })
    }

    fn started(&mut self, ms: u64, process: u32, entry: u64, attempt: u32) -> &mut Self {
        self.at(ms, What::Started { process, entry: id(entry), number: entry, attempt })
    }

    fn finished(&mut self, ms: u64, process: u32, entry: u64, attempt: u32, result: Returned) -> &mut Self {
        self.at(ms, What::Finished { process, entry: id(entry), attempt, result })
    }

    /// A whole run of ten milliseconds.
    fn ran(&mut self, ms: u64, process: u32, entry: u64, attempt: u32, result: Returned) -> &mut Self {
        self.started(ms, process, entry, attempt).finished(ms + 10, process, entry, attempt, result)
    }

    fn done(&mut self, ms: u64, process: u32, entry: u64, attempt: u32) -> &mut Self {
        self.ran(ms, process, entry, attempt, Returned::Done)
    }

    fn failed(&mut self, ms: u64, process: u32, entry: u64, attempt: u32) -> &mut Self {
        self.ran(ms, process, entry, attempt, Returned::Failed)
    }

    fn ended(&mut self, ms: u64, process: u32, how: Ending) -> &mut Self {
        self.at(ms, What::ProcessEnded { process, how })
    }

    fn silent(&mut self, process: Option<u32>, cause: Cause, from: u64, until: u64) -> &mut Self {
        self.at(until, What::Silence { process, cause, since: from * MS })
    }

    fn lost_group(&mut self, ms: u64) -> &mut Self {
        self.at(ms, What::GroupLost { since: ms * MS })
    }

    fn letter(&mut self, entry: u64, attempts: u32, reason: Reason) -> &mut Self {
        self.at(
            60_000,
            What::DeadLettered { entry: id(entry), number: None, attempts, reason, consumer: "host-1".to_owned() },
        )
    }

    fn verdict(&self) -> Verdict {
        self.history.check(&self.expectations)
    }

    /// Expects one violation, of this rule, with this in its text.
    #[track_caller]
    fn fails(&self, rule: Rule, text: &str) {
        let verdict = self.verdict();
        let found: Vec<_> = verdict.violations.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(verdict.count(rule), 1, "{found:#?}");
        assert!(found[0].contains(text), "{found:#?}");
    }

    #[track_caller]
    fn holds(&self) -> Counts {
        let verdict = self.verdict();
        let found: Vec<_> = verdict.violations.iter().map(ToString::to_string).collect();
        assert!(verdict.holds(), "{found:#?}");
        verdict.counts
    }
}

/// What is published, handled and dead-lettered with nothing in the way.
fn good() -> Case {
    let mut case = Case::new();
    case.published(1, Fate::Handled).done(100, 1, 1, 1);
    case.published(2, Fate::Handled).failed(100, 1, 2, 1).failed(300, 1, 2, 2).done(500, 2, 2, 3);
    case.published(3, Fate::Exhausted).failed(100, 2, 3, 1).failed(300, 2, 3, 2).failed(500, 2, 3, 3);
    case.letter(3, 3, Reason::Exhausted);
    case.published(4, Fate::Undecodable).letter(4, 1, Reason::Undecodable);
    case.published(5, Fate::Rejected).ran(100, 1, 5, 1, Returned::Rejected).letter(5, 1, Reason::Rejected);
    case.at(70_000, What::End { delivered: id(5) });
    case.expectations.messages = 5;
    case
}

mod attempts;
mod delivery;
mod letters;
mod order;
mod text;
