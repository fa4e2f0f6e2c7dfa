//! The outcome of the demo: a table for people and one JSON object for programs.

use std::time::Duration;

use serde::Serialize;
use stream_testkit::history::{Rule, Verdict};

use super::plan::Plan;
use super::worker::MAX_ATTEMPTS;
use crate::table::table;

/// The last line of `cargo xtask demo --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) ok: bool,
    pub(crate) published: u64,
    pub(crate) handled: u64,
    pub(crate) expected_handled: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) overlapping: u64,
    pub(crate) redelivered: u64,
    pub(crate) handled_again: u64,
    pub(crate) burned_by_crashes: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) expected_dead_lettered: u64,
    pub(crate) innocent_dead_lettered: u64,
    pub(crate) bad_provenance: u64,
    pub(crate) bad_attempts: u64,
    /// The highest attempt, without those of `repeated_alone`.
    pub(crate) max_attempt: u32,
    /// Starts beyond the limit, of orders whose last attempt was cut short by the death of their process.
    pub(crate) repeated_alone: u64,
    pub(crate) pending: u64,
    /// From the first order until nothing was left to do, the leases of dead workers included.
    pub(crate) seconds: f64,
    /// Orders handled or dead-lettered in each of these seconds.
    pub(crate) per_second: f64,
    /// Orders handled in the busiest second.
    pub(crate) busiest_second: u64,
    pub(crate) server: String,
    pub(crate) server_version: String,
}

impl Outcome {
    pub(crate) fn new(
        verdict: &Verdict,
        plan: &Plan,
        took: Duration,
        busiest: u64,
        server: String,
        version: String,
    ) -> Self {
        let (counts, count) = (&verdict.counts, |rule| verdict.count(rule));
        let dead = plan.orders().filter(|(_, kind)| kind.is_dead()).count() as u64;
        let seconds = (took.as_secs_f64() * 1_000.0).round() / 1_000.0;
        let per_second = (counts.handled + counts.dead_lettered) as f64 / seconds.max(0.001);
        Self {
            ok: verdict.holds(),
            published: counts.published,
            handled: counts.handled,
            expected_handled: plan.len() - dead,
            lost: count(Rule::Lost),
            doubled: count(Rule::Doubled),
            overlapping: count(Rule::Overlapping),
            redelivered: counts.redelivered,
            handled_again: counts.handled_again,
            burned_by_crashes: counts.burned,
            dead_lettered: counts.dead_lettered,
            expected_dead_lettered: dead,
            innocent_dead_lettered: count(Rule::Innocent),
            bad_provenance: count(Rule::Provenance),
            bad_attempts: count(Rule::Attempts),
            max_attempt: counts.max_attempt,
            repeated_alone: counts.repeated_alone,
            pending: count(Rule::Pending),
            seconds,
            per_second: (per_second * 10.0).round() / 10.0,
            busiest_second: busiest,
            server,
            server_version: version,
        }
    }
}

/// What was expected, what came of it, and whether that is right.
pub(crate) fn shown(verdict: &Verdict, outcome: &Outcome) -> String {
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut row = |what: &str, found: String, expected: String, ok: bool| {
        rows.push([what.to_owned(), found, expected, if ok { "ok" } else { "NOT OK" }.to_owned()]);
    };
    let mut exactly = |what: &str, found: u64, expected: u64| {
        row(what, found.to_string(), expected.to_string(), found == expected);
    };
    exactly("handled", outcome.handled, outcome.expected_handled);
    exactly("lost", outcome.lost, 0);
    exactly("published twice", outcome.doubled, 0);
    exactly("dead letters", outcome.dead_lettered, outcome.expected_dead_lettered);
    exactly("  missing", verdict.count(Rule::LetterMissing), 0);
    exactly("  of innocent orders", outcome.innocent_dead_lettered, 0);
    exactly("  with wrong provenance", outcome.bad_provenance, 0);
    exactly("overlapping runs", outcome.overlapping, 0);
    exactly("wrong attempts", outcome.bad_attempts, 0);
    exactly("handled again without a reason", verdict.count(Rule::HandledAgain), 0);
    exactly("records that do not fit", verdict.count(Rule::Journal), 0);
    exactly("still pending", outcome.pending, 0);
    let most = format!("at most {MAX_ATTEMPTS}");
    row("highest attempt", outcome.max_attempt.to_string(), most, outcome.max_attempt <= MAX_ATTEMPTS);
    let mut info = |what: &str, found: String| rows.push([what.to_owned(), found, String::new(), String::new()]);
    info("published", outcome.published.to_string());
    info("redelivered after crashes", outcome.redelivered.to_string());
    info("  handled again", outcome.handled_again.to_string());
    info("attempts burned by crashes", outcome.burned_by_crashes.to_string());
    info("last attempts repeated alone", outcome.repeated_alone.to_string());
    info("seconds", format!("{:.1}", outcome.seconds));
    info("orders a second", format!("{:.0}", outcome.per_second));
    info("  in the busiest one", outcome.busiest_second.to_string());
    info("server", format!("{} {}", outcome.server, outcome.server_version));
    table(["", "found", "expected", ""], &rows)
}
