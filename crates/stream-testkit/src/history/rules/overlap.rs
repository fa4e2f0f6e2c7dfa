//! No two owners run an entry at a time while the first one lives, reaches its server, and was not told to stop.

use super::super::facts::Facts;
use super::super::verdict::{Rule, Verdict};
use super::fate::named;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    for (id, entry) in &facts.entries {
        for (place, second) in entry.runs.iter().enumerate() {
            let Some(first) = entry.runs[..place].iter().max_by_key(|run| facts.over(run)) else { continue };
            if facts.over(first) <= second.began {
                continue;
            }
            // Either may be the one that does not know better: who comes back from a silence may begin what it holds no more.
            let excused = facts.is_unaware(first.process, second.began)
                || facts.is_unaware(second.process, second.began)
                || facts.lost_group_between(first.began, second.began);
            if excused {
                verdict.counts.excused_overlaps += 1;
            } else {
                let what = format!("{}: {}", named(*id, entry), facts.told(&entry.runs));
                verdict.complain(Rule::Overlapping, what);
            }
        }
    }
}
