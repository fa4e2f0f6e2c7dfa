//! [`Facts`]: the events put together by entry and by process, in the order in which they happened.

use std::collections::{BTreeMap, HashMap, HashSet};

use stream_core::EntryId;

use super::event::{Cause, Ending, Fate, Reason, Returned, What};
use super::{Expectations, History, micros};

/// Within this time of a loss of the group, in microseconds, a trim that had looked before it is over, and seen.
const CUT_WITHIN: u64 = 15_000_000;

/// A handler run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) process: u32,
    pub(super) attempt: u32,
    pub(super) began: u64,
    /// `None` where its process died, or has not come to it.
    pub(super) ended: Option<(u64, Returned)>,
    /// When its process was told that it is not its any more.
    pub(super) told: Option<u64>,
}

impl Run {
    pub(super) fn is_done(&self) -> bool {
        self.ended.is_some_and(|(_, result)| result == Returned::Done)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) attempts: u32,
    pub(super) reason: Reason,
    pub(super) consumer: String,
}

/// What is known of one entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// `None` for one of which only a letter or its acknowledgement was seen.
    pub(super) number: Option<u64>,
    pub(super) key: Option<u64>,
    /// `None` for an entry that nobody published.
    pub(super) fate: Option<Fate>,
    /// When it was sent to the server, which has confirmed it.
    pub(super) published: Option<u64>,
    /// By their beginnings.
    pub(super) runs: Vec<Run>,
    pub(super) letters: Vec<Letter>,
    pub(super) acknowledged: Option<u64>,
    pub(super) pending: bool,
    pub(super) forgotten: bool,
}

impl Entry {
    fn unknown() -> Self {
        Self {
            number: None,
            key: None,
            fate: None,
            published: None,
            runs: Vec::new(),
            letters: Vec::new(),
            acknowledged: None,
            pending: false,
            forgotten: false,
        }
    }

    /// When it first had an outcome that allows to acknowledge it. Of a letter, the time is not known: always.
    pub(super) fn settled(&self) -> Option<u64> {
        if !self.letters.is_empty() {
            return Some(0);
        }
        self.runs.iter().filter(|run| run.is_done()).filter_map(|run| run.ended).map(|(at, _)| at).min()
    }

    pub(super) fn is_handled(&self) -> bool {
        self.runs.iter().any(Run::is_done)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    pub(super) consumer: Option<String>,
    pub(super) stopping: Option<u64>,
    pub(super) ended: Option<(u64, Ending)>,
    pub(super) silences: Vec<Silence>,
}

/// The group was lost.
#[derive(Debug, Clone, Copy)]
struct Loss {
    from: u64,
    until: u64,
    /// Up to here it was done so long before that every process knew.
    known: Option<EntryId>,
}

/// A time without contact to the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silence {
    pub(super) from: u64,
    pub(super) until: u64,
    cause: Cause,
}

impl Silence {
    fn length(self) -> u64 {
        self.until.saturating_sub(self.from)
    }

    pub(super) fn touches(self, from: u64, until: u64) -> bool {
        self.from <= until && self.until >= from
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    Ready(EntryId),
    Got(u64, EntryId),
    Gap(EntryId, EntryId),
    Reset(EntryId),
}

#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) entries: BTreeMap<EntryId, Entry>,
    pub(super) processes: BTreeMap<u32, Process>,
    /// Silences of all.
    pub(super) silences: Vec<Silence>,
    /// When the group was lost.
    losses: Vec<Loss>,
    /// Since when messages are handled well that were not before.
    pub(super) cured: HashMap<u64, u64>,
    /// Until where the group was seen to be done, and when.
    pub(super) done_up_to: Vec<(u64, EntryId)>,
    pub(super) trimmed_below: Vec<(u64, EntryId)>,
    pub(super) readers: BTreeMap<u32, Vec<Read>>,
    /// Messages of which nobody knows whether they arrived, or how often.
    pub(super) unconfirmed: HashSet<u64>,
    /// Ids that a message was confirmed under, by its number.
    pub(super) confirmed: BTreeMap<u64, Vec<EntryId>>,
    pub(super) delivered: Option<EntryId>,
    pub(super) broken: Vec<String>,
    pub(super) lease: u64,
    pub(super) silence: u64,
    pub(super) settle: u64,
    stale: u64,
    told_within: u64,
    pub(super) first: u64,
}

impl Facts {
    pub(super) fn of(history: &History, expectations: &Expectations) -> Self {
        let mut events: Vec<_> = history.events().iter().collect();
        events.sort_by_key(|event| event.at);
        let mut facts = Self {
            lease: micros(expectations.lease),
            silence: expectations.silence(),
            settle: micros(expectations.settle),
            stale: micros(expectations.stale),
            told_within: micros(expectations.told_within),
            first: events.first().map_or(0, |event| event.at),
            ..Self::default()
        };
        let mut messages: HashMap<u64, (Option<u64>, Fate)> = HashMap::new();
        let mut open: HashMap<(u32, EntryId), usize> = HashMap::new();
        for event in events {
            facts.take(event.at, &event.what, &mut messages, &mut open);
        }
        // Copies of a message that nobody saw published are told by their runs.
        for entry in facts.entries.values_mut() {
            if let (None, Some((key, fate))) = (entry.fate, entry.number.and_then(|number| messages.get(&number))) {
                (entry.key, entry.fate) = (*key, Some(*fate));
            }
        }
        let own = facts.processes.values_mut().map(|process| &mut process.silences);
        // Whoever is heard of for less time than lies between two renewals may not have renewed anything.
        let moment = facts.lease / 4;
        own.chain([&mut facts.silences]).for_each(|silences| merge(silences, moment));
        for place in 0..facts.losses.len() {
            facts.losses[place].known = facts.known_before(facts.losses[place].from);
        }
        facts
    }

    fn entry(&mut self, id: EntryId) -> &mut Entry {
        self.entries.entry(id).or_insert_with(Entry::unknown)
    }

    fn take(
        &mut self,
        at: u64,
        what: &What,
        messages: &mut HashMap<u64, (Option<u64>, Fate)>,
        open: &mut HashMap<(u32, EntryId), usize>,
    ) {
        match *what {
            What::Published { entry, number, key, fate } => {
                messages.insert(number, (key, fate));
                self.confirmed.entry(number).or_default().push(entry);
                let known = self.entry(entry);
                (known.number, known.key, known.fate, known.published) = (Some(number), key, Some(fate), Some(at));
            }
            What::Unconfirmed { number, key, fate } => {
                messages.insert(number, (key, fate));
                self.unconfirmed.insert(number);
            }
            What::ProcessStarted { process, ref consumer } => {
                self.processes.entry(process).or_default().consumer = Some(consumer.clone());
            }
            What::Stopping { process } => self.processes.entry(process).or_default().stopping = Some(at),
            What::ProcessEnded { process, how } => self.processes.entry(process).or_default().ended = Some((at, how)),
            What::Started { process, entry, number, attempt } => {
                let known = self.entry(entry);
                let place = known.runs.len();
                known.runs.push(Run { process, attempt, began: at, ended: None, told: None });
                if *known.number.get_or_insert(number) != number {
                    self.broken.push(format!("{entry} was handled as message {number}, which it does not hold"));
                }
                if open.insert((process, entry), place).is_some() {
                    self.broken.push(format!("process {process} began {entry} anew before it had ended it"));
                }
            }
            What::Finished { process, entry, attempt, result } => {
                let run = open.remove(&(process, entry)).and_then(|place| self.entry(entry).runs.get_mut(place));
                match run {
                    Some(run) if run.attempt == attempt => run.ended = Some((at, result)),
                    _ => self.broken.push(format!("process {process} ended {entry} without a beginning")),
                }
            }
            What::LeaseLost { process, entry } => {
                let runs = &mut self.entry(entry).runs;
                if let Some(run) = runs.iter_mut().rev().find(|run| run.process == process) {
                    run.told.get_or_insert(at);
                }
            }
            What::Acknowledged { entry } => {
                self.entry(entry).acknowledged.get_or_insert(at);
            }
            What::DoneUpTo { entry } => self.done_up_to.push((at, entry)),
            What::TrimmedBelow { entry } => self.trimmed_below.push((at, entry)),
            What::DeadLettered { entry, number, attempts, reason, ref consumer } => {
                let known = self.entry(entry);
                known.number = known.number.or(number);
                known.letters.push(Letter { attempts, reason, consumer: consumer.clone() });
            }
            What::Cured { number } => {
                self.cured.entry(number).or_insert(at);
            }
            What::Redriven { letter, entry, fate } => {
                let was = self.entries.get(&letter);
                let (number, key) = was.map_or((None, None), |was| (was.number, was.key));
                // That it went back was seen later than it did; before its last run it was no letter.
                let since = was.and_then(|was| was.runs.last()).map_or(0, |run| run.began);
                let known = self.entry(entry);
                (known.fate, known.published) = (Some(fate), Some(since));
                (known.number, known.key) = (known.number.or(number), key);
                if let Some(number) = number {
                    // A re-drive that is cut short sends its letters once more.
                    self.unconfirmed.insert(number);
                    if let Some((_, copies)) = messages.get_mut(&number).filter(|(_, before)| *before != fate) {
                        *copies = Fate::Free;
                    }
                }
            }
            What::Silence { process, cause, since } => {
                let silences = match process {
                    Some(process) => &mut self.processes.entry(process).or_default().silences,
                    None => &mut self.silences,
                };
                silences.push(Silence { from: since, until: at, cause });
            }
            What::GroupLost { since } => self.losses.push(Loss { from: since, until: at, known: None }),
            What::Forgotten { entry } => self.entry(entry).forgotten = true,
            What::ReaderReady { process, after } => self.read(process, Read::Ready(after)),
            What::ReaderGot { process, entry } => self.read(process, Read::Got(at, entry)),
            What::ReaderGap { process, after, before } => self.read(process, Read::Gap(after, before)),
            What::ReaderReset { process, from } => self.read(process, Read::Reset(from)),
            What::Resident { .. } => {}
            What::Pending { entry } => self.entry(entry).pending = true,
            What::End { delivered } => self.delivered = Some(delivered),
            What::Broken { ref why } => self.broken.push(why.clone()),
        }
    }

    fn read(&mut self, process: u32, what: Read) {
        self.readers.entry(process).or_default().push(what);
    }

    /// When a process ended, and how.
    pub(super) fn ended(&self, process: u32) -> Option<(u64, Ending)> {
        self.processes.get(&process)?.ended
    }

    /// Whether a process was asked to stop between these times.
    pub(super) fn stopped_between(&self, process: u32, from: u64, until: u64) -> bool {
        let stopping = self.processes.get(&process).and_then(|process| process.stopping);
        stopping.is_some_and(|at| (from..=until).contains(&at))
    }

    /// When a run was over at the latest: it returned, was told to stop, or its process died.
    pub(super) fn over(&self, run: &Run) -> u64 {
        let ended = run.ended.map(|(at, _)| at).or_else(|| Some(self.ended(run.process)?.0));
        ended.into_iter().chain(run.told).min().unwrap_or(u64::MAX)
    }

    /// Silences of a process, those of all included.
    fn silences(&self, process: u32) -> impl Iterator<Item = Silence> {
        let own = self.processes.get(&process).map_or(&[][..], |process| &process.silences);
        own.iter().chain(&self.silences).copied()
    }

    /// Whether a process may have lost what it held without knowing it at the time `at`: it was silent for most of a lease,
    /// and has come back less than a lease ago; or the group was lost less than a lease ago.
    pub(super) fn is_unaware(&self, process: u32, at: u64) -> bool {
        self.is_back_from_silence(process, at) || self.is_group_unaware(at)
    }

    pub(super) fn is_back_from_silence(&self, process: u32, at: u64) -> bool {
        self.silences(process).any(|silence| {
            silence.length() >= self.silence && silence.from + self.silence <= at && at <= silence.until + self.lease
        })
    }

    /// Whether the group was lost in the last lease: not every process knows of it.
    fn is_group_unaware(&self, at: u64) -> bool {
        self.losses.iter().any(|loss| loss.from <= at && at <= loss.until + self.lease)
    }

    /// Whether the group was lost between these times, or shortly enough before for the first not to know.
    pub(super) fn lost_group_between(&self, from: u64, until: u64) -> bool {
        self.loss_between(from, until).is_some()
    }

    /// Since when it was; the latest one.
    pub(super) fn loss_between(&self, from: u64, until: u64) -> Option<u64> {
        let touches = |loss: &&Loss| loss.from <= until && loss.until + self.lease >= from;
        self.losses.iter().filter(touches).map(|loss| loss.from).max()
    }

    /// Whether the group was seen to be done with an entry so long before it was lost, at `lost`, that everybody knew.
    pub(super) fn was_long_done(&self, id: EntryId, lost: u64) -> bool {
        let loss = self.losses.iter().find(|loss| loss.from == lost);
        loss.and_then(|loss| loss.known).is_some_and(|known| id <= known)
    }

    /// Up to which id every process knew the group to be done at that time: what was seen a while before; and where a
    /// process was silent meanwhile, a while before that.
    fn known_before(&self, lost: u64) -> Option<EntryId> {
        let mut silences: Vec<Silence> =
            self.processes.values().flat_map(|process| &process.silences).copied().collect();
        silences.extend(&self.silences);
        silences.sort_by_key(|silence| std::cmp::Reverse(silence.until));
        let mut at = lost.saturating_sub(self.stale);
        for silence in silences {
            if silence.touches(at, lost) {
                at = at.min(silence.from.saturating_sub(self.stale));
            }
        }
        // The last one before the time counts: the group may have been made anew further back meanwhile.
        let seen = self.done_up_to.partition_point(|(seen, _)| *seen <= at);
        seen.checked_sub(1).map(|last| self.done_up_to[last].1)
    }

    /// Whether an entry that was finished at `at` may have come again since: nothing says that it was acknowledged, or that
    /// its group was known to be done with it when it was lost.
    pub(super) fn may_come_again(&self, id: EntryId, process: u32, at: u64) -> bool {
        let until = at + self.settle;
        let crashed = self.ended(process).is_some_and(|(died, how)| how.is_crash() && (at..=until).contains(&died));
        let lost =
            self.losses.iter().any(|loss| at <= loss.until + self.lease && loss.known.is_none_or(|known| id > known));
        crashed || lost || self.silences(process).any(|silence| silence.touches(at, until))
    }

    /// Whether an entry may be gone although something was seen of it at `since`: its publisher never heard that it was there,
    /// and what was seen of it belongs to a server that a failover replaced.
    pub(super) fn is_copy_taken_back(&self, entry: &Entry, since: u64) -> bool {
        entry.published.is_none() && self.lost_group_between(since, u64::MAX)
    }

    /// Whether the group was lost more than once between these times: who made it anew may have remembered it from before.
    pub(super) fn lost_twice_between(&self, from: u64, until: u64) -> bool {
        self.losses.iter().filter(|loss| loss.from <= until && loss.until + self.lease >= from).count() > 1
    }

    /// Whether an entry was trimmed about when the group was lost: who trims looks at the groups and then cuts, and one that is
    /// made anew further back in between comes too late.
    pub(super) fn was_cut_in_a_loss(&self, id: EntryId) -> bool {
        let cut = self.trimmed_below.iter().find(|(_, first)| id < *first);
        cut.is_some_and(|(at, _)| self.losses.iter().any(|loss| (loss.from..=loss.until + CUT_WITHIN).contains(at)))
    }

    /// Whether a process was silent at some time between these.
    pub(super) fn was_silent_between(&self, process: u32, from: u64, until: u64) -> bool {
        self.silences(process).any(|silence| silence.touches(from, until))
    }

    /// How many owners may have died, or seemed to have, in this time.
    pub(super) fn deaths(&self, from: u64, until: u64) -> u64 {
        // Who was silent when it stopped may not have been able to give back what it had.
        let silent_at = |process: &Process, at| process.silences.iter().any(|silence| silence.touches(at, at));
        let crashed = |process: &&Process| {
            process.ended.is_some_and(|(at, how)| {
                (from..=until).contains(&at)
                    && (how.is_crash()
                        || silent_at(process, at)
                        || process.stopping.is_some_and(|at| silent_at(process, at)))
            })
        };
        let silences = self.processes.values().flat_map(|process| &process.silences).chain(&self.silences);
        let counts = |silence: &&Silence| silence.cause == Cause::Server || silence.length() >= self.silence;
        let silent = silences.filter(counts).filter(|silence| silence.touches(from, until)).count();
        (self.processes.values().filter(crashed).count() + silent) as u64
    }

    /// Whether something may have kept what a process finished at `at` from being acknowledged.
    pub(super) fn may_be_unacknowledged(&self, process: u32, at: u64) -> bool {
        let until = at + self.settle;
        let crashed = self.ended(process).is_some_and(|(died, how)| how.is_crash() && (at..=until).contains(&died));
        crashed || self.silences(process).any(|silence| silence.touches(at, until)) || self.is_unaware(process, at)
    }

    /// What a process saw up to this time it had the time to tell of before it ended.
    pub(super) fn had_time_until(&self, process: u32) -> u64 {
        let Some((ended, _)) = self.ended(process) else { return u64::MAX };
        let mut until = ended.saturating_sub(self.told_within);
        let mut silences: Vec<_> = self.silences(process).collect();
        silences.sort_by_key(|silence| std::cmp::Reverse(silence.until));
        for silence in silences {
            if silence.touches(until, ended) {
                until = until.min(silence.from.saturating_sub(self.told_within));
            }
        }
        until
    }

    /// Whether somebody saw something that a failover took back: it was confirmed by a server that was being replaced, or
    /// had not been passed on.
    pub(super) fn was_taken_back(&self, at: u64) -> bool {
        self.losses.iter().any(|loss| loss.from.saturating_sub(1_000_000) <= at && at <= loss.until)
    }

    /// A time as people like to read it.
    pub(super) fn ms(&self, at: u64) -> f64 {
        at.saturating_sub(self.first) as f64 / 1_000.0
    }

    /// The runs of an entry, for people.
    pub(super) fn told(&self, runs: &[Run]) -> String {
        let told: Vec<String> = runs
            .iter()
            .map(|run| {
                let end = match (run.ended, self.over(run)) {
                    (Some((at, result)), _) => format!("{result:?} at {:.1}", self.ms(at)).to_lowercase(),
                    (None, u64::MAX) => "without an end".to_owned(),
                    (None, at) => format!("died by {:.1}", self.ms(at)),
                };
                let lost = run.told.map_or_else(String::new, |at| format!(", told to stop at {:.1}", self.ms(at)));
                let (attempt, process, began) = (run.attempt, run.process, self.ms(run.began));
                format!("attempt {attempt} in process {process} from {began:.1} ms, {end}{lost}")
            })
            .collect();
        if told.is_empty() { "never started".to_owned() } else { told.join("; ") }
    }
}

/// Silences that overlap, or lie so close together, are one, whoever wrote them down.
fn merge(silences: &mut Vec<Silence>, moment: u64) {
    silences.sort_by_key(|silence| silence.from);
    let mut merged: Vec<Silence> = Vec::with_capacity(silences.len());
    for silence in silences.drain(..) {
        match merged.last_mut() {
            Some(last) if silence.from <= last.until + moment => {
                last.until = last.until.max(silence.until);
                last.cause = if silence.cause == Cause::Server { Cause::Server } else { last.cause };
            }
            _ => merged.push(silence),
        }
    }
    *silences = merged;
}
