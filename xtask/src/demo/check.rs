//! The checker: holds what happened against what was published. Pure, so that it can be tried on histories that must fail.
//!
//! It trusts the journals for what handlers did, and the server for what there is in the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use streamkeeper::{DeadLetter, DeadReason, EntryId};

use super::history::{History, Run};
use super::plan::{Kind, Plan};
use super::server::Final;
use super::worker::{GROUP, MAX_ATTEMPTS, NUMBER_FIELD, STREAM};

/// What came of a run of the demo, in numbers; every one that has to be 0 has its examples in `complaints`.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) published: u64,
    /// Orders that were to be handled.
    pub(crate) expected_handled: u64,
    /// Of them, those handled well.
    pub(crate) handled: u64,
    /// Of them, those neither handled nor in the dead letters, or not even on the stream.
    pub(crate) lost: u64,
    /// Orders on the stream more than once.
    pub(crate) doubled: u64,
    /// Runs of an entry that began while another run of it was not over.
    pub(crate) overlapping: u64,
    /// Entries that came again although their handler had not failed: a crash had cut them off.
    pub(crate) redelivered: u64,
    /// Of them, those that had been handled already, but not acknowledged.
    pub(crate) handled_again: u64,
    /// Attempts that were used up by a process that died before it began them, or by the death of the server.
    pub(crate) burned_by_crashes: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) expected_dead_lettered: u64,
    /// Dead letters of orders that were not to end there.
    pub(crate) innocent: u64,
    /// Orders that were to end in the dead letters and did not.
    pub(crate) missing_letters: u64,
    /// Dead letters whose provenance is wrong.
    pub(crate) bad_provenance: u64,
    /// Entries whose attempts were not counted exactly.
    pub(crate) bad_attempts: u64,
    /// Starts beyond the limit, of entries whose last attempt was cut short because their process died.
    pub(crate) repeated_alone: u64,
    /// The highest attempt, without those.
    pub(crate) max_attempt: u32,
    /// Entries that the group holds in the end.
    pub(crate) pending: u64,
    /// Records that do not fit together.
    pub(crate) broken: u64,
    /// What does not hold, with examples.
    pub(crate) complaints: Vec<String>,
}

impl Verdict {
    pub(crate) fn holds(&self) -> bool {
        self.complaints.is_empty()
    }
}

/// So many examples of one complaint.
const EXAMPLES: usize = 5;

/// Collects complaints of one kind.
struct Complaints {
    what: &'static str,
    examples: Vec<String>,
    count: u64,
}

impl Complaints {
    fn new(what: &'static str) -> Self {
        Self { what, examples: Vec::new(), count: 0 }
    }

    fn add(&mut self, example: String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example);
        }
    }

    /// Adds them to the verdict's and returns how many there are.
    fn into(self, complaints: &mut Vec<String>) -> u64 {
        let left = self.count - self.examples.len() as u64;
        complaints.extend(self.examples.into_iter().map(|example| format!("{}: {example}", self.what)));
        if left > 0 {
            complaints.push(format!("{}: and {left} more", self.what));
        }
        self.count
    }
}

/// Holds `history` and the server's `found` against `plan`.
pub(crate) fn check(plan: &Plan, history: &History, found: &Final) -> Verdict {
    let mut verdict = Verdict {
        expected_handled: plan.orders().filter(|(_, kind)| !kind.is_dead()).count() as u64,
        expected_dead_lettered: plan.orders().filter(|(_, kind)| kind.is_dead()).count() as u64,
        dead_lettered: (found.letters.len() + found.bad_letters.len()) as u64,
        pending: found.pending,
        ..Verdict::default()
    };
    let mut runs: BTreeMap<EntryId, Vec<&Run>> = BTreeMap::new();
    for run in &history.runs {
        runs.entry(run.what.entry).or_default().push(run);
    }
    for runs in runs.values_mut() {
        runs.sort_by_key(|run| run.began);
    }
    let orders = orders_on_stream(plan, found, &mut verdict);
    check_orders(plan, &orders, &runs, found, &mut verdict);
    check_letters(plan, &orders, &runs, history, found, &mut verdict);
    check_runs(plan, &orders, &runs, history, found, &mut verdict);
    check_pending(found, &mut verdict);
    verdict
}

/// The number of the order in each entry. Each order has to be there once.
fn orders_on_stream(plan: &Plan, found: &Final, verdict: &mut Verdict) -> HashMap<EntryId, u64> {
    let mut orders = HashMap::new();
    let mut seen = HashSet::new();
    let mut doubled = Complaints::new("doubled");
    let mut broken = Complaints::new("foreign");
    for (id, entry) in &found.entries {
        let number = entry.get(NUMBER_FIELD).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        match number.filter(|number| plan.kind(*number).is_some()) {
            Some(number) => {
                orders.insert(*id, number);
                if !seen.insert(number) {
                    doubled.add(format!("order {number} is on the stream more than once, also as {id}"));
                }
            }
            None => broken.add(format!("entry {id} holds no order of ours")),
        }
    }
    verdict.published = seen.len() as u64;
    verdict.doubled = doubled.into(&mut verdict.complaints);
    broken.into(&mut verdict.complaints);
    orders
}

/// Every order has one of the two ends.
fn check_orders(
    plan: &Plan,
    orders: &HashMap<EntryId, u64>,
    runs: &BTreeMap<EntryId, Vec<&Run>>,
    found: &Final,
    verdict: &mut Verdict,
) {
    let done = |run: &&Run| run.ended.is_some_and(|ended| ended.done);
    let handled: HashSet<u64> = runs.values().flatten().copied().filter(done).map(|run| run.what.order).collect();
    let dead: HashSet<u64> =
        found.letters.iter().filter_map(|letter| orders.get(&letter.entry.id()).copied()).collect();
    let on_stream: HashSet<u64> = orders.values().copied().collect();
    let mut lost = Complaints::new("lost");
    let mut missing = Complaints::new("not in the dead letters");
    let mut wrong = Complaints::new("handled");
    for (number, kind) in plan.orders() {
        let is_handled = handled.contains(&number);
        match (kind.is_dead(), is_handled, dead.contains(&number)) {
            (true, true, _) => wrong.add(format!("order {number} ({kind:?}) cannot have been handled well")),
            (true, false, false) => missing.add(format!("order {number} ({kind:?})")),
            (false, false, false) if on_stream.contains(&number) => {
                lost.add(format!("order {number} ({kind:?}) was neither handled nor dead-lettered"));
            }
            (false, false, false) => lost.add(format!("order {number} ({kind:?}) is not on the stream")),
            (false, true, _) => verdict.handled += 1,
            (true | false, false, true) => {}
        }
    }
    verdict.lost = lost.into(&mut verdict.complaints);
    verdict.missing_letters = missing.into(&mut verdict.complaints);
    wrong.into(&mut verdict.complaints);
}

/// Dead letters are those expected, once each, and say truly where they come from.
fn check_letters(
    plan: &Plan,
    orders: &HashMap<EntryId, u64>,
    runs: &BTreeMap<EntryId, Vec<&Run>>,
    history: &History,
    found: &Final,
    verdict: &mut Verdict,
) {
    let mut innocent = Complaints::new("dead-lettered though innocent");
    let mut provenance = Complaints::new("provenance");
    found.bad_letters.iter().for_each(|error| provenance.add(error.clone()));
    let mut seen = HashSet::new();
    for letter in &found.letters {
        let id = letter.entry.id();
        if !seen.insert(id) {
            provenance.add(format!("entry {id} is in the dead letters more than once"));
        }
        let Some(kind) = orders.get(&id).and_then(|number| plan.kind(*number)) else {
            innocent.add(format!("entry {id}, which is no order of ours"));
            continue;
        };
        let starts: &[&Run] = runs.get(&id).map_or(&[], Vec::as_slice);
        if !kind.is_dead() {
            innocent.add(format!("{id} ({kind:?}): {}, {}", why(letter), told(starts, history)));
            continue;
        }
        if let Err(what) = check_provenance(letter, kind, history, found) {
            provenance.add(format!("{id} ({kind:?}): {what}; {}", told(starts, history)));
        }
    }
    verdict.innocent = innocent.into(&mut verdict.complaints);
    verdict.bad_provenance = provenance.into(&mut verdict.complaints);
}

fn check_provenance(letter: &DeadLetter, kind: Kind, history: &History, found: &Final) -> Result<(), String> {
    if letter.stream.as_bytes() != STREAM.as_bytes() || letter.group.as_bytes() != GROUP.as_bytes() {
        return Err(format!("it says that it is of {} and {}", letter.stream, letter.group));
    }
    let consumer = letter.consumer.to_string();
    if !history.consumers.values().any(|name| *name == consumer) {
        return Err(format!("its consumer {consumer} is none of the workers"));
    }
    if found.entries.get(&letter.entry.id()) != Some(&letter.entry) {
        return Err("its fields are not those of the entry".to_owned());
    }
    let fits = match (kind, &letter.reason) {
        (Kind::Poison, DeadReason::Exhausted { .. } | DeadReason::OwnerDied) | (Kind::Abort, DeadReason::OwnerDied) => {
            (MAX_ATTEMPTS..=MAX_ATTEMPTS + 1).contains(&letter.attempts)
        }
        (Kind::Undecodable, DeadReason::Undecodable(_)) => (1..=MAX_ATTEMPTS).contains(&letter.attempts),
        _ => false,
    };
    if fits { Ok(()) } else { Err(why(letter)) }
}

fn why(letter: &DeadLetter) -> String {
    format!("{} after {} attempts", letter.reason.as_str(), letter.attempts)
}

/// Runs of an entry follow one another, and their attempts are counted exactly.
fn check_runs(
    plan: &Plan,
    orders: &HashMap<EntryId, u64>,
    runs: &BTreeMap<EntryId, Vec<&Run>>,
    history: &History,
    found: &Final,
    verdict: &mut Verdict,
) {
    let mut overlapping = Complaints::new("overlapping");
    let mut attempts = Complaints::new("attempts");
    let mut broken = Complaints::new("journal");
    history.broken.iter().for_each(|what| broken.add(what.clone()));
    let letters: HashMap<EntryId, u32> =
        found.letters.iter().map(|letter| (letter.entry.id(), letter.attempts)).collect();
    for (id, starts) in runs {
        let number = orders.get(id).copied();
        let Some(kind) = number.and_then(|number| plan.kind(number)) else {
            broken.add(format!("{id} was handled and is no order of ours"));
            continue;
        };
        if starts.iter().any(|run| Some(run.what.order) != number) {
            broken.add(format!("{id} was handled as another order than it holds"));
        }
        if kind == Kind::Undecodable {
            broken.add(format!("{id} cannot be decoded, but its handler was started"));
        }
        let mut over = 0;
        for run in starts {
            if run.began < over {
                overlapping.add(format!("{id}: {}", told(starts, history)));
            }
            over = over.max(history.over(run));
        }
        let count = count_attempts(starts, letters.get(id).copied(), kind, history);
        let highest = starts.iter().map(|run| run.what.attempt).max().unwrap_or(0);
        verdict.repeated_alone += u64::from(highest > MAX_ATTEMPTS);
        // One more than allowed is allowed, where a crash had cut short the last one.
        verdict.max_attempt = verdict.max_attempt.max(if highest == MAX_ATTEMPTS + 1 { MAX_ATTEMPTS } else { highest });
        verdict.burned_by_crashes += u64::from(count.burned);
        verdict.redelivered += u64::from(count.redelivered);
        verdict.handled_again += u64::from(count.handled_again);
        if let Some(what) = count.wrong {
            attempts.add(format!("{id} ({kind:?}): {what}; {}", told(starts, history)));
        }
    }
    verdict.overlapping = overlapping.into(&mut verdict.complaints);
    verdict.bad_attempts = attempts.into(&mut verdict.complaints);
    verdict.broken = broken.into(&mut verdict.complaints);
}

#[derive(Debug, Default)]
struct Attempts {
    burned: u32,
    redelivered: bool,
    handled_again: bool,
    wrong: Option<String>,
}

/// Attempts of one entry begin at 1 and go up by 1; more only where a crash can have used up one in between.
fn count_attempts(starts: &[&Run], letter: Option<u32>, kind: Kind, history: &History) -> Attempts {
    let mut count = Attempts::default();
    let mut wrong = |what: String| {
        count.wrong.get_or_insert(what);
    };
    let mut before: Option<&Run> = None;
    for run in starts {
        let (expected, since) = before.map_or((1, 0), |before| (before.what.attempt + 1, before.began));
        let attempt = run.what.attempt;
        if attempt < expected {
            wrong(format!("attempt {attempt} where {expected} was due"));
        } else if attempt > expected {
            count.burned += attempt - expected;
            if u64::from(attempt - expected) > crashes(history, since, run.began) {
                wrong(format!("attempt {attempt} where {expected} was due, without a crash"));
            }
        }
        let repeated = attempt == MAX_ATTEMPTS + 1 && process_crashes(history, since, run.began) > 0;
        if attempt > MAX_ATTEMPTS && !repeated {
            wrong(format!("attempt {attempt} of {MAX_ATTEMPTS}"));
        }
        let ended = before.and_then(|before| before.ended);
        // After a failure another attempt is due; whatever else comes again, comes because of a crash.
        count.redelivered |= before.is_some_and(|_| ended.is_none_or(|ended| ended.done)) || attempt > expected;
        if ended.is_some_and(|ended| ended.done) {
            count.handled_again = true;
            if crashes(history, since, run.began) == 0 {
                wrong("handled again without a crash".to_owned());
            }
        }
        before = Some(run);
    }
    if let (Some(last), Some(letter), true) = (before, letter, kind.is_dead()) {
        let attempt = last.what.attempt;
        if letter < attempt {
            wrong(format!("dead-lettered after {letter} attempts"));
        } else if letter > attempt {
            count.burned += letter - attempt;
            if u64::from(letter - attempt) > crashes(history, last.began, u64::MAX) {
                wrong(format!("dead-lettered after {letter} attempts, without a crash"));
            }
        }
    }
    count
}

/// How often a process or the server died in this time.
fn crashes(history: &History, from: u64, to: u64) -> u64 {
    let servers = history.outages.iter().filter(|(down, up)| *down <= to && *up >= from).count();
    process_crashes(history, from, to) + servers as u64
}

fn process_crashes(history: &History, from: u64, to: u64) -> u64 {
    history.exits.iter().filter(|exit| exit.how.is_crash() && (from..=to).contains(&exit.at)).count() as u64
}

/// The runs of an entry, for people.
fn told(starts: &[&Run], history: &History) -> String {
    let base = history.runs.iter().map(|run| run.began).min().unwrap_or(0);
    let ms = |at: u64| at.saturating_sub(base) as f64 / 1e6;
    let told: Vec<String> = starts
        .iter()
        .map(|run| {
            let end = match run.ended {
                Some(ended) => format!("{} at {:.1}", if ended.done { "done" } else { "failed" }, ms(ended.at)),
                None => match history.over(run) {
                    u64::MAX => "without an end".to_owned(),
                    at => format!("died by {:.1}", ms(at)),
                },
            };
            format!("attempt {} in worker {} from {:.1} ms, {end}", run.what.attempt, run.process, ms(run.began))
        })
        .collect();
    if told.is_empty() { "never started".to_owned() } else { told.join("; ") }
}

fn check_pending(found: &Final, verdict: &mut Verdict) {
    for (name, pending) in found.consumers.iter().filter(|(_, pending)| *pending != 0) {
        verdict.complaints.push(format!("pending: consumer {name} holds {pending} entries"));
    }
    if found.pending != 0 {
        verdict.complaints.push(format!("pending: the group holds {} entries", found.pending));
    }
}

#[cfg(test)]
mod tests;
