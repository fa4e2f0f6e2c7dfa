//! Every message has one of the two ends, and the right one.

use stream_core::EntryId;

use super::super::Expectations;
use super::super::event::{Fate, Reason, Returned};
use super::super::facts::{Entry, Facts, Letter, Run};
use super::super::verdict::{Rule, Verdict};

pub(super) fn check(facts: &Facts, expectations: &Expectations, verdict: &mut Verdict) {
    for number in 1..=expectations.messages {
        if !facts.confirmed.contains_key(&number) && !facts.unconfirmed.contains(&number) {
            verdict.complain(Rule::Lost, format!("message {number} is not on the stream"));
        }
    }
    for (number, ids) in &facts.confirmed {
        if let [_, more @ ..] = &ids[..]
            && !more.is_empty()
            && !facts.unconfirmed.contains(number)
        {
            verdict.complain(Rule::Doubled, format!("message {number} is on the stream more than once: {ids:?}"));
        }
    }
    for (id, entry) in &facts.entries {
        check_entry(*id, entry, facts, expectations, verdict);
    }
}

fn check_entry(id: EntryId, entry: &Entry, facts: &Facts, expectations: &Expectations, verdict: &mut Verdict) {
    let name = named(id, entry);
    if expectations.settled && entry.pending {
        verdict.complain(Rule::Pending, format!("{name} is pending in the end; {}", facts.told(&entry.runs)));
    }
    let Some(fate) = entry.fate else {
        if !entry.runs.is_empty() || !entry.letters.is_empty() {
            verdict.complain(Rule::Journal, format!("{name} was handled or dead-lettered, and nobody published it"));
        }
        return;
    };
    if let (None, Some(number)) = (entry.published, entry.number)
        && !facts.unconfirmed.contains(&number)
    {
        verdict.complain(Rule::Doubled, format!("{name} is a copy of a message that was sent once"));
    }
    if fate == Fate::Undecodable && !entry.runs.is_empty() {
        verdict.complain(Rule::Journal, format!("{name} cannot be decoded, but its handler was started"));
    }
    let (handled, dead) = (entry.is_handled(), !entry.letters.is_empty());
    let still_to_do =
        !expectations.settled && (entry.pending || facts.delivered.is_none_or(|delivered| id > delivered));
    // A copy of what was a letter, or the letter's own entry after its group began anew, comes when it is cured.
    let cured = entry.number.and_then(|number| facts.cured.get(&number)).copied().unwrap_or(u64::MAX);
    let handled_sick = entry.runs.iter().any(|run| run.is_done() && run.ended.is_some_and(|(at, _)| at < cured));
    if fate.is_dead() && handled_sick {
        verdict.complain(Rule::Journal, format!("{name} ({fate:?}) cannot have been handled well"));
    } else if !handled && !dead && !entry.forgotten && !entry.pending && !still_to_do && !facts.was_cut_in_a_loss(id) {
        let last = entry.runs.last().map_or(0, |run| run.began);
        if facts.is_copy_taken_back(entry, last) {
            // It went with the server that had it.
        } else if entry.published.is_none() {
            // A copy that nobody counts on, of which something was seen all the same: it was delivered, and has to end.
            verdict.complain(Rule::Lost, format!("{name}, a copy, came to no end; {}", facts.told(&entry.runs)));
        } else if fate.is_dead() && ended(entry).is_some_and(|at| facts.was_forgotten_unnoticed(at)) {
            // So did its letter, and who made the group anew had seen that it was done.
        } else if fate.is_dead() {
            verdict.complain(Rule::LetterMissing, format!("{name} ({fate:?}); {}", facts.told(&entry.runs)));
        } else {
            let what = format!("{name} was neither handled nor dead-lettered");
            let runs = if entry.runs.is_empty() { String::new() } else { format!("; {}", facts.told(&entry.runs)) };
            verdict.complain(Rule::Lost, format!("{what}{runs}"));
        }
    }
    let [letter, more @ ..] = &entry.letters[..] else { return };
    if !more.is_empty() && !may_be_doubled(entry, facts) {
        verdict.complain(Rule::Provenance, format!("{name} is in the dead letters more than once"));
    }
    if let Some(wrong) = wrong_letter(fate, letter, entry, facts, expectations) {
        let what = format!("{name} ({fate:?}): {wrong}; {}", facts.told(&entry.runs));
        verdict.complain(if fate == Fate::Handled { Rule::Innocent } else { Rule::Provenance }, what);
    } else if fate == Fate::Handled {
        verdict.counts.unlucky += 1;
    }
}

/// When its last run ended, after which its letter was written.
fn ended(entry: &Entry) -> Option<u64> {
    Some(entry.runs.last()?.ended?.0)
}

/// A group that begins anew may give up again what it had given up.
fn may_be_doubled(entry: &Entry, facts: &Facts) -> bool {
    facts.lost_group_between(entry.published.unwrap_or(0), u64::MAX)
}

fn wrong_letter(
    fate: Fate,
    letter: &Letter,
    entry: &Entry,
    facts: &Facts,
    expectations: &Expectations,
) -> Option<String> {
    let max = expectations.max_attempts;
    let known = facts.processes.values().any(|process| process.consumer.as_ref() == Some(&letter.consumer));
    if !known {
        return Some(format!("its consumer {} is none of the processes", letter.consumer));
    }
    let used_up = (max..=max + 1).contains(&letter.attempts);
    let fits = match (fate, letter.reason) {
        // The owners of any of them may have died before it could be decoded, rejected or fail.
        (Fate::Exhausted, Reason::Exhausted)
        | (Fate::Exhausted | Fate::Kills | Fate::Undecodable | Fate::Rejected, Reason::OwnerDied) => used_up,
        (Fate::Undecodable, Reason::Undecodable) | (Fate::Rejected, Reason::Rejected) => {
            (1..=max + 1).contains(&letter.attempts)
        }
        // It may have come to one that survives it.
        (Fate::Kills, Reason::Exhausted) => {
            used_up && entry.runs.iter().any(|run| run.ended.is_some_and(|(_, end)| end == Returned::Failed))
        }
        (Fate::Handled, Reason::OwnerDied) => used_up && is_unlucky(entry, letter, facts),
        (Fate::Free, _) => true,
        _ => false,
    };
    (!fits).then(|| format!("{:?} after {} attempts", letter.reason, letter.attempts).to_lowercase())
}

/// Whether every run of the entry that the letter may speak of ended with its process, or fell into a time in which that was
/// silent. Where the group was lost, attempts are counted anew, and one of the counts came to the letter.
fn is_unlucky(entry: &Entry, letter: &Letter, facts: &Facts) -> bool {
    let cut_short = |run: &Run| match run.ended {
        None => run.told.is_some() || facts.ended(run.process).is_some_and(|(_, how)| how.is_crash()),
        // That it was handled may have been unknown to the server when the process died, or forgotten by it.
        Some((at, _)) => {
            run.told.is_some()
                || facts.is_unaware(run.process, at)
                || facts.may_be_unacknowledged(run.process, at)
                || facts.lost_group_between(run.began, u64::MAX)
        }
    };
    if entry.runs.is_empty() {
        // Each of its owners died between counting the start and starting.
        return facts.deaths(entry.published.unwrap_or(0), u64::MAX) >= u64::from(letter.attempts);
    }
    let anew =
        |before: &Run, run: &Run| run.attempt <= before.attempt && facts.lost_group_between(before.began, run.began);
    let counts: Vec<&[Run]> = entry.runs.chunk_by(|before, run| !anew(before, run)).collect();
    let came_to_it = |runs: &[Run]| counts.len() == 1 || runs.iter().any(|run| run.attempt + 1 >= letter.attempts);
    counts.iter().any(|runs| came_to_it(runs) && runs.iter().all(cut_short))
}

pub(super) fn named(id: EntryId, entry: &Entry) -> String {
    match entry.number {
        Some(number) => format!("{id} (message {number})"),
        None => id.to_string(),
    }
}
