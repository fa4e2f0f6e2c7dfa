//! [`Facts`]: the events put together by entry and by process, in the order in which they happened.

mod excuses;

use std::collections::{BTreeMap, HashMap, HashSet};

use stream_core::EntryId;

use super::event::{Cause, Ending, Fate, Reason, Returned, What};
use super::{Expectations, History, micros};

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
    started: Option<u64>,
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
        for event in events {
            facts.take(event.at, &event.what, &mut messages);
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

    fn take(&mut self, at: u64, what: &What, messages: &mut HashMap<u64, (Option<u64>, Fate)>) {
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
                let known = self.processes.entry(process).or_default();
                (known.consumer, known.started) = (Some(consumer.clone()), Some(at));
            }
            What::Stopping { process } => self.processes.entry(process).or_default().stopping = Some(at),
            What::ProcessEnded { process, how } => self.processes.entry(process).or_default().ended = Some((at, how)),
            What::Started { process, entry, number, attempt } => {
                let known = self.entry(entry);
                let before = known.runs.iter().rfind(|run| run.process == process);
                // One that was told to stop may come to its end beside a new one, which owns the entry.
                let is_running = before.is_some_and(|run| run.ended.is_none() && run.told.is_none());
                known.runs.push(Run { process, attempt, began: at, ended: None, told: None });
                if *known.number.get_or_insert(number) != number {
                    self.broken.push(format!("{entry} was handled as message {number}, which it does not hold"));
                }
                if is_running {
                    self.broken.push(format!("process {process} began {entry} anew before it had ended it"));
                }
            }
            What::Finished { process, entry, attempt, result } => {
                let is_open = |run: &&mut Run| (run.process, run.attempt) == (process, attempt) && run.ended.is_none();
                match self.entry(entry).runs.iter_mut().find(is_open) {
                    Some(run) => run.ended = Some((at, result)),
                    None => self.broken.push(format!("process {process} ended {entry} without a beginning")),
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
