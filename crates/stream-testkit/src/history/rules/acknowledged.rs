//! Nothing is acknowledged, and nothing trimmed, before its outcome.

use stream_core::EntryId;

use super::super::facts::Facts;
use super::super::verdict::{Rule, Verdict};
use super::fate::named;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    for (id, entry) in &facts.entries {
        if let Some(at) = entry.acknowledged
            && entry.settled().is_none_or(|settled| settled > at)
        {
            let (what, at, runs) = (named(*id, entry), facts.ms(at), facts.told(&entry.runs));
            verdict.complain(Rule::AcknowledgedEarly, format!("{what} was not pending any more at {at:.1} ms; {runs}"));
        }
    }
    sightings(facts, &facts.done_up_to, true, Rule::AcknowledgedEarly, "the group was done with it", verdict);
    sightings(facts, &facts.trimmed_below, false, Rule::TrimmedEarly, "it was gone", verdict);
}

/// Entries up to an id were seen to be done with at a time. Each is looked at once, by the first sighting: the later ones
/// allow more.
fn sightings(facts: &Facts, seen: &[(u64, EntryId)], inclusive: bool, rule: Rule, what: &str, verdict: &mut Verdict) {
    let mut seen = seen.iter().filter(|(at, _)| !facts.was_taken_back(*at));
    let mut sighting = seen.next();
    // The highest so far: a group that was made anew may fall back, which takes nothing back.
    for (id, entry) in &facts.entries {
        while sighting.is_some_and(|(_, until)| if inclusive { until < id } else { until <= id }) {
            sighting = seen.next();
        }
        let Some((at, _)) = sighting else { return };
        let last = entry.runs.iter().map(|run| run.began).filter(|began| began < at).max().unwrap_or(0);
        let excused = facts.is_copy_taken_back(entry, last) || (last > 0 && facts.lost_twice_between(last, *at));
        let open = entry.fate.is_some() && !entry.forgotten && !excused;
        if open && entry.settled().is_none_or(|settled| settled > *at) {
            let told = format!("{}; {what} at {:.1} ms; {}", named(*id, entry), facts.ms(*at), facts.told(&entry.runs));
            verdict.complain(rule, told);
        }
    }
}
