//! The outcome of a soak, for people.

use std::collections::BTreeMap;
use std::fmt;

use stream_testkit::history::{Rule, Verdict};

use super::drive::Faults;
use super::memory::Memory;
use crate::table::table;

/// So many examples of what does not hold.
const EXAMPLES: usize = 5;

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// By the number of the process.
    pub(crate) memory: BTreeMap<u32, Memory>,
    pub(crate) tally: Faults,
    /// Messages that were sent.
    pub(crate) sent: u64,
    pub(crate) seconds: f64,
    pub(crate) server: String,
    pub(crate) seed: u64,
    pub(crate) topology: &'static str,
}

impl Outcome {
    pub(crate) fn holds(&self) -> bool {
        self.verdict.holds() && self.is_flat() && self.is_bounded() && self.verdict.counts.handled > 0
    }

    /// Where the system tells nothing of memory, nothing is shown.
    fn is_flat(&self) -> bool {
        !self.memory.is_empty() && self.memory.values().all(|memory| memory.is_flat())
    }

    /// Nothing comes again but what was in flight when something died.
    fn is_bounded(&self) -> bool {
        self.verdict.counts.handled_again <= self.verdict.counts.in_flight
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.verdict.counts;
        let mut rows: Vec<[String; 4]> = Vec::new();
        let mut row = |what: &str, found: String, expected: String, ok: bool| {
            rows.push([what.to_owned(), found, expected, if ok { "ok" } else { "NOT OK" }.to_owned()]);
        };
        for (rule, name) in [
            (Rule::Lost, "lost"),
            (Rule::Overlapping, "overlapping runs"),
            (Rule::Order, "out of order"),
            (Rule::Attempts, "wrong attempts"),
            (Rule::LetterMissing, "dead letters missing"),
            (Rule::Innocent, "dead letters of innocents"),
            (Rule::Provenance, "dead letters with wrong provenance"),
            (Rule::AcknowledgedEarly, "acknowledged before the outcome"),
            (Rule::TrimmedEarly, "trimmed before the outcome"),
            (Rule::Doubled, "published twice"),
            (Rule::HandledAgain, "handled again without a reason"),
            (Rule::Missed, "missed by readers"),
            (Rule::Pending, "still pending"),
            (Rule::Journal, "records that do not fit"),
        ] {
            let found = self.verdict.count(rule);
            row(name, found.to_string(), "0".to_owned(), found == 0);
        }
        let again = format!("at most {}, in flight at faults", counts.in_flight);
        row("handled again", counts.handled_again.to_string(), again, self.is_bounded());
        let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
        for (process, memory) in &self.memory {
            let most = format!("at most {} MiB", mib(memory.second_quarter * 11 / 10));
            let what = format!("memory of process {process}, last quarter");
            row(&what, format!("{} MiB", mib(memory.last_quarter)), most, memory.is_flat());
        }
        if self.memory.is_empty() {
            row("memory, last quarter", "unknown".to_owned(), "of one process at least".to_owned(), false);
        }
        let mut info = |what: &str, found: String| rows.push([what.to_owned(), found, String::new(), String::new()]);
        info("sent", self.sent.to_string());
        info("confirmed", counts.published.to_string());
        info("handled", counts.handled.to_string());
        info("dead letters", counts.dead_lettered.to_string());
        info("  innocent, all their owners died", counts.unlucky.to_string());
        info("redelivered", counts.redelivered.to_string());
        info("attempts burned by deaths", counts.burned.to_string());
        info("last attempts repeated alone", counts.repeated_alone.to_string());
        info("overlaps after a silence", counts.excused_overlaps.to_string());
        info("read without a group", counts.read.to_string());
        info("handled a second", format!("{:.0}", counts.handled as f64 / self.seconds.max(1.0)));
        info("seconds", format!("{:.0}", self.seconds));
        for (fault, count) in &self.tally {
            info(fault, count.to_string());
        }
        info("server", format!("{}, {}", self.server, self.topology));
        info("seed", self.seed.to_string());
        writeln!(f, "{}", table(["", "found", "expected", ""], &rows))?;
        for complaint in self.verdict.complaints(EXAMPLES) {
            writeln!(f, "NOT OK: {complaint}")?;
        }
        Ok(())
    }
}
