//! The rules, one after the other over the same [`Facts`].

mod acknowledged;
mod attempts;
mod fate;
mod order;
mod overlap;
mod readers;

use super::Expectations;
use super::facts::Facts;
use super::verdict::{Rule, Verdict};

pub(super) fn check(facts: &Facts, expectations: &Expectations) -> Verdict {
    let mut verdict = Verdict::default();
    count(facts, &mut verdict);
    fate::check(facts, expectations, &mut verdict);
    acknowledged::check(facts, &mut verdict);
    overlap::check(facts, &mut verdict);
    attempts::check(facts, expectations, &mut verdict);
    order::check(facts, &mut verdict);
    readers::check(facts, expectations, &mut verdict);
    for what in &facts.broken {
        verdict.complain(Rule::Journal, what.clone());
    }
    verdict
}

fn count(facts: &Facts, verdict: &mut Verdict) {
    let counts = &mut verdict.counts;
    counts.published = facts.confirmed.len() as u64;
    counts.unconfirmed = facts.unconfirmed.iter().filter(|number| !facts.confirmed.contains_key(number)).count() as u64;
    for (id, entry) in &facts.entries {
        counts.handled += u64::from(entry.is_handled());
        counts.dead_lettered += u64::from(!entry.letters.is_empty());
        counts.starts += entry.runs.len() as u64;
        for run in &entry.runs {
            let open = match run.ended {
                Some((at, _)) => facts.may_come_again(*id, run.process, at),
                None => true,
            };
            counts.in_flight += u64::from(open);
        }
    }
}
