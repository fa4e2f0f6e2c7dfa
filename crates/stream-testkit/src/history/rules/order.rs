//! In one process, entries of one key run one at a time and in the order of their ids.

use std::collections::HashMap;

use stream_core::EntryId;

use super::super::event::Returned;
use super::super::facts::{Entry, Facts, Run};
use super::super::verdict::{Rule, Verdict};
use super::fate::named;

/// A run, and the entry that it is of.
type Turn<'a> = (EntryId, &'a Entry, &'a Run);

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    let mut lanes: HashMap<(u32, u64), Vec<Turn<'_>>> = HashMap::new();
    for (id, entry) in &facts.entries {
        let Some(key) = entry.key else { continue };
        for run in &entry.runs {
            lanes.entry((run.process, key)).or_default().push((*id, entry, run));
        }
    }
    let mut lanes: Vec<_> = lanes.into_iter().collect();
    lanes.sort_unstable_by_key(|(lane, _)| *lane);
    for ((process, key), mut runs) in lanes {
        runs.sort_by_key(|(_, _, run)| run.began);
        let mut latest: Option<EntryId> = None;
        for (place, (id, entry, run)) in runs.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| runs[before]);
            let wrong = before.and_then(|before| out_of_turn(facts, before, (*id, entry, run))).or_else(|| {
                let first = latest.is_some_and(|latest| *id < latest);
                (first && !came_late(facts, entry, run)).then(|| format!("it began after {}", latest.unwrap_or(*id)))
            });
            if let Some(what) = wrong {
                let what = format!("{} of key {key} in process {process}: {what}", named(*id, entry));
                verdict.complain(Rule::Order, format!("{what}; {}", facts.told(&entry.runs)));
            }
            latest = latest.max(Some(*id));
        }
    }
}

/// Whether a run began while the one before it held the key.
fn out_of_turn(facts: &Facts, before: Turn<'_>, this: Turn<'_>) -> Option<String> {
    let ((id, entry, held), (this_id, _, run)) = (before, this);
    if id == this_id {
        return None;
    }
    let over = facts.over(held);
    if over > run.began {
        // It may have been lost, which frees the key before its handler has returned.
        let lost = facts.is_unaware(held.process, run.began) || facts.lost_group_between(held.began, run.began);
        return (!lost).then(|| format!("{id} was still running at {:.1} ms", facts.ms(run.began)));
    }
    let failed = held.ended.is_some_and(|(_, result)| result == Returned::Failed);
    let given_up = !entry.letters.is_empty() || held.told.is_some();
    // While it waited for its retry it may have gone to somebody else, by whom it was handled, or begun.
    let elsewhere = entry.runs.iter().any(|other| {
        other.process != held.process && other.began > held.began && facts.is_unaware(held.process, other.began)
    });
    let lost = facts.is_unaware(held.process, run.began) || facts.lost_group_between(held.began, run.began);
    (failed && !given_up && !elsewhere && !lost).then(|| format!("{id} had failed and held the key"))
}

/// Whether something explains that an entry came to a process after later ones: an owner that ended or was silent, a group
/// that was lost, since it was published.
fn came_late(facts: &Facts, entry: &Entry, run: &Run) -> bool {
    let since = entry.published.unwrap_or(0).min(run.began);
    let handed_on = facts.processes.values().any(|process| {
        let gone = process.ended.map(|(at, _)| at).into_iter().chain(process.stopping);
        gone.into_iter().any(|at| (since..=run.began).contains(&at))
            || process.silences.iter().any(|silence| silence.touches(since, run.began))
    });
    let silent = facts.silences.iter().any(|silence| silence.touches(since, run.began));
    let elsewhere = entry.runs.iter().any(|other| other.began < run.began);
    handed_on || silent || elsewhere || facts.lost_group_between(since, run.began)
}
