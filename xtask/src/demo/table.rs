//! The outcome of the demo: a table for people and one JSON object for programs.

use std::time::Duration;

use serde::Serialize;

use super::check::Verdict;
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
    pub(crate) fn new(verdict: &Verdict, took: Duration, busiest: u64, server: String, version: String) -> Self {
        let seconds = (took.as_secs_f64() * 1_000.0).round() / 1_000.0;
        let per_second = (verdict.handled + verdict.dead_lettered) as f64 / seconds.max(0.001);
        Self {
            ok: verdict.holds(),
            published: verdict.published,
            handled: verdict.handled,
            expected_handled: verdict.expected_handled,
            lost: verdict.lost,
            doubled: verdict.doubled,
            overlapping: verdict.overlapping,
            redelivered: verdict.redelivered,
            handled_again: verdict.handled_again,
            burned_by_crashes: verdict.burned_by_crashes,
            dead_lettered: verdict.dead_lettered,
            expected_dead_lettered: verdict.expected_dead_lettered,
            innocent_dead_lettered: verdict.innocent,
            bad_provenance: verdict.bad_provenance,
            bad_attempts: verdict.bad_attempts,
            max_attempt: verdict.max_attempt,
            repeated_alone: verdict.repeated_alone,
            pending: verdict.pending,
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
    exactly("handled", verdict.handled, verdict.expected_handled);
    exactly("lost", verdict.lost, 0);
    exactly("published twice", verdict.doubled, 0);
    exactly("dead letters", verdict.dead_lettered, verdict.expected_dead_lettered);
    exactly("  missing", verdict.missing_letters, 0);
    exactly("  of innocent orders", verdict.innocent, 0);
    exactly("  with wrong provenance", verdict.bad_provenance, 0);
    exactly("overlapping runs", verdict.overlapping, 0);
    exactly("wrong attempts", verdict.bad_attempts, 0);
    exactly("records that do not fit", verdict.broken, 0);
    exactly("still pending", verdict.pending, 0);
    let most = format!("at most {MAX_ATTEMPTS}");
    row("highest attempt", verdict.max_attempt.to_string(), most, verdict.max_attempt <= MAX_ATTEMPTS);
    let mut info = |what: &str, found: String| rows.push([what.to_owned(), found, String::new(), String::new()]);
    info("published", verdict.published.to_string());
    info("redelivered after crashes", verdict.redelivered.to_string());
    info("  handled again", verdict.handled_again.to_string());
    info("attempts burned by crashes", verdict.burned_by_crashes.to_string());
    info("last attempts repeated alone", verdict.repeated_alone.to_string());
    info("seconds", format!("{:.1}", outcome.seconds));
    info("orders a second", format!("{:.0}", outcome.per_second));
    info("  in the busiest one", outcome.busiest_second.to_string());
    info("server", format!("{} {}", outcome.server, outcome.server_version));
    table(["", "found", "expected", ""], &rows)
}
