//! Attempt N is the Nth start, and what was handled comes again only where it may not have been acknowledged.

use stream_core::EntryId;

use super::super::Expectations;
use super::super::event::{Fate, Returned};
use super::super::facts::{Entry, Facts, Run};
use super::super::verdict::{Rule, Verdict};
use super::fate::named;

pub(super) fn check(facts: &Facts, expectations: &Expectations, verdict: &mut Verdict) {
    for (id, entry) in &facts.entries {
        let mut count = Count { facts, expectations, entry, burned: 0, wrong: Vec::new() };
        count.starts();
        count.letter();
        let (again, redelivered) = (count.again(*id), count.is_redelivered());
        verdict.counts.burned += u64::from(count.burned);
        verdict.counts.redelivered += u64::from(redelivered);
        let highest = entry.runs.iter().map(|run| run.attempt).max().unwrap_or(0);
        verdict.counts.repeated_alone += u64::from(highest > expectations.max_attempts);
        // One more than allowed is allowed, where the death of its process had cut short the last one.
        verdict.counts.max_attempt = verdict.counts.max_attempt.max(if highest == expectations.max_attempts + 1 {
            expectations.max_attempts
        } else {
            highest
        });
        let told = |what: &str| format!("{}: {what}; {}", named(*id, entry), facts.told(&entry.runs));
        if let Some(what) = count.wrong.first() {
            verdict.complain(Rule::Attempts, told(what));
        }
        match again {
            Again::Never => {}
            Again::Excused => verdict.counts.handled_again += 1,
            Again::Wrong(what) => {
                verdict.counts.handled_again += 1;
                verdict.complain(Rule::HandledAgain, told(what));
            }
        }
    }
}

enum Again {
    Never,
    Excused,
    Wrong(&'static str),
}

struct Count<'a> {
    facts: &'a Facts,
    expectations: &'a Expectations,
    entry: &'a Entry,
    burned: u32,
    wrong: Vec<String>,
}

impl Count<'_> {
    /// Attempts begin at 1 and go up by 1; by more only where a death can have used up one in between.
    fn starts(&mut self) {
        let facts = self.facts;
        let max = self.expectations.max_attempts;
        // The highest attempt so far, and since when deaths count for the next.
        let mut highest = 0;
        let mut since = self.entry.published.unwrap_or(0);
        let mut before: Option<&Run> = None;
        // Whether the last start was counted before a loss, which the server's count does not know of.
        let mut carried = false;
        // The first start since the group last counted anew.
        let mut anew = 0;
        // The highest number before the last start, where that began with a lower one.
        let mut passed_by = None;
        for (place, run) in self.entry.runs.iter().enumerate() {
            let lost = carried || before.is_some_and(|before| facts.lost_group_between(before.began, run.began));
            let held = facts.held_through_a_loss(run.process, since, run.began);
            if lost && (1..=highest).contains(&run.attempt) {
                // Who owned what, and how often it was started, went with the group, all of it or the latest.
                highest = run.attempt - 1;
                anew = place;
            }
            if let Some(passed_by) = passed_by.take() {
                // The server's count is that of whichever of the two was set last.
                highest = if run.attempt > passed_by { passed_by } else { before.map_or(highest, |run| run.attempt) };
            }
            let due = highest + 1;
            // A stop that cuts the last start short is nobody's death: it is started once more, as often as that happens.
            let stopped = before.is_some_and(|before| {
                (before.attempt, run.attempt) == (max + 1, max + 1)
                    && before.ended.is_none()
                    && facts.stopped_between(before.process, before.began, run.began)
            });
            if run.attempt < due {
                // A later one of the same number is judged in its turn.
                let seen = self.entry.runs[anew..place].iter().any(|other| other.attempt == run.attempt);
                // Who took it over by a command whose reply was lost finds it as if it had read it, and counts its start as
                // the one that was cut off.
                let took_it_blindly = before.is_some_and(|before| {
                    (before.attempt, true) == (run.attempt, before.process != run.process)
                        && facts.was_silent_between(run.process, before.began, run.began)
                });
                passed_by = (!took_it_blindly && !stopped).then_some(highest);
                if passed_by.is_some() && (seen || !facts.is_unaware(run.process, run.began)) {
                    self.wrong.push(format!("attempt {} where {due} was due", run.attempt));
                }
            } else if run.attempt > due && !(lost && self.goes_on(place)) {
                // Who took it over before the loss goes on with the count from before.
                let peak = self.entry.runs[..place].iter().map(|before| before.attempt).max().unwrap_or(0);
                let due_to_it = if held { due.max(peak + 1).min(run.attempt) } else { due };
                self.skipped(run.attempt - due_to_it, since, run.began, || {
                    format!("attempt {} where {due} was due", run.attempt)
                });
            }
            let repeated = run.attempt == max + 1 && (stopped || lost || facts.deaths(since, run.began) > 0);
            if run.attempt > max && !repeated {
                self.wrong.push(format!("attempt {} of {max}", run.attempt));
            }
            highest = highest.max(run.attempt);
            (since, carried) = (run.began, held);
            before = Some(run);
        }
    }

    /// Whether a process goes on with its own count: it held the entry all the time, although the group was lost and others
    /// had the entry meanwhile.
    fn goes_on(&self, place: usize) -> bool {
        let run = &self.entry.runs[place];
        let own = self.entry.runs[..place].iter().rfind(|before| before.process == run.process);
        own.is_some_and(|before| before.attempt + 1 == run.attempt && before.ended.is_some())
    }

    fn skipped(&mut self, count: u32, since: u64, until: u64, what: impl Fn() -> String) {
        self.burned += count;
        let deaths = self.facts.deaths(since, until);
        if u64::from(count) > deaths {
            let why = if deaths == 0 { ", without a death".to_owned() } else { format!(", with {deaths} deaths") };
            self.wrong.push(what() + &why);
        }
    }

    /// A letter counts as many attempts as there were.
    fn letter(&mut self) {
        let (Some(last), Some(letter)) = (self.entry.runs.last(), self.entry.letters.first()) else { return };
        if self.entry.fate == Some(Fate::Free) || self.entry.letters.len() > 1 {
            return;
        }
        let attempts = letter.attempts;
        let before_a_loss = |run: &Run| run.attempt == attempts && self.facts.lost_group_between(run.began, last.began);
        if self.entry.runs.iter().any(before_a_loss) {
            return;
        }
        if attempts < last.attempt && !self.facts.is_unaware(last.process, last.began) {
            self.wrong.push(format!("dead-lettered after {attempts} attempts"));
        } else if attempts > last.attempt {
            self.skipped(attempts - last.attempt, last.began, u64::MAX, || {
                format!("dead-lettered after {attempts} attempts")
            });
        }
    }

    /// After a failure another attempt is due; whatever else comes again, comes because something died.
    fn is_redelivered(&self) -> bool {
        let failed = |run: &Run| run.ended.is_some_and(|(_, result)| result == Returned::Failed);
        let again = self.entry.runs.windows(2).any(|pair| !failed(&pair[0]));
        again || self.burned > 0
    }

    /// Whether it was started after it had been handled well, and whether that is right.
    fn again(&self, id: EntryId) -> Again {
        let (facts, runs) = (self.facts, &self.entry.runs);
        let mut state = Again::Never;
        for (place, run) in runs.iter().enumerate() {
            let done = |before: &&Run| before.is_done() && before.ended.is_some_and(|(at, _)| at <= run.began);
            let Some((at, before)) = runs[..place]
                .iter()
                .filter(done)
                .filter_map(|before| Some((before.ended?.0, before)))
                .max_by_key(|x| x.0)
            else {
                continue;
            };
            if facts.may_be_unacknowledged(before.process, at) || before.told.is_some() {
                state = Again::Excused;
            } else if let Some(lost) = facts.loss_between(before.began, run.began) {
                if facts.was_long_done(id, lost) {
                    return Again::Wrong("the group was known to be done with it long before it was lost");
                }
                state = Again::Excused;
            } else if facts.is_back_from_silence(run.process, run.began) {
                // It begins what it held before, which somebody else has handled meanwhile.
                state = Again::Excused;
            } else {
                return Again::Wrong("nothing kept it from being acknowledged");
            }
        }
        state
    }
}
