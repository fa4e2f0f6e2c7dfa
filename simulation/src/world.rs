//! [`World`]: what all parts of one run share: the server, the journal, what is known of every entry, the randomness.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use stream_core::{DeadLetter, EntryId};
use stream_testkit::MemoryServer;
use stream_testkit::history::{Cause, Event, History, What};
use tokio::time::Instant;

use crate::machine::{Line, Machine};
use crate::mutation::Mutation;
use crate::plan::{Kind, Plan};

pub(crate) struct World {
    pub(crate) server: MemoryServer,
    pub(crate) plan: Plan,
    pub(crate) mutation: Option<Mutation>,
    /// Whether every command is written down.
    verbose: bool,
    start: Instant,
    state: Mutex<State>,
}

/// What happens to whom, and what is known.
pub(crate) struct State {
    pub(crate) journal: String,
    /// When the latest event of any group was.
    last_event: u64,
    /// One for each group.
    pub(crate) histories: Vec<History>,
    pub(crate) tally: Tally,
    /// For what goes wrong on the network.
    pub(crate) network: Rng,
    /// For everything else that is drawn in the middle of a run.
    pub(crate) rng: Rng,
    /// Whether things go wrong at all, and whether they do so often.
    pub(crate) weather: Weather,
    /// Whose command is being carried out, and over which of its lines.
    pub(crate) current: Option<(Arc<Machine>, Line)>,
    pub(crate) machines: u32,
    /// How many requests have left so far.
    pub(crate) departures: u64,
    /// The consumer processes that live, by their place in the plan.
    pub(crate) workers: Vec<Option<Arc<Machine>>>,
    pub(crate) known: Known,
    /// The runs of handlers that are not over, by machine and entry: which of all, its attempt, and when it began.
    pub(crate) open: BTreeMap<(u32, EntryId), (u64, u32, u64)>,
    /// Which machine has handled an entry well, as long as nobody else came to own it.
    pub(crate) done: BTreeMap<(usize, EntryId), u32>,
    /// What was found to be wrong while it happened.
    pub(crate) violations: Vec<String>,
}

/// A message, published once or, where nobody knows whether it arrived, more than once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// Those of one key have an order.
    pub(crate) key: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Nothing goes wrong any more.
    Over,
    Calm,
    Storm,
}

/// The entries that there ever were, as the server had them.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) messages: BTreeMap<u64, Message>,
    /// With the numbers of their messages.
    pub(crate) entries: BTreeMap<EntryId, u64>,
    pub(crate) last: EntryId,
    /// By their ids in the stream of dead letters.
    pub(crate) letters: BTreeMap<EntryId, DeadLetter>,
    pub(crate) last_letter: EntryId,
    /// When groups were lost, or lost their latest state.
    pub(crate) losses: Vec<(usize, u64)>,
}

/// What a run came to, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Virtual time.
    pub simulated: Duration,
    /// Entries that were on the stream.
    pub entries: u64,
    /// Starts of handlers.
    pub starts: u64,
    /// Commands that the server carried out.
    pub commands: u64,
    /// What went wrong, by its kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds what another run came to.
    pub fn add(&mut self, other: &Self) {
        self.simulated += other.simulated;
        self.entries += other.entries;
        self.starts += other.starts;
        self.commands += other.commands;
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
    }

    /// How often something went wrong.
    pub fn total(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl World {
    pub(crate) fn new(plan: Plan, mutation: Option<Mutation>, verbose: bool, rng: &mut Rng) -> Arc<Self> {
        let server = MemoryServer::with_profile(plan.profile);
        let state = State {
            journal: String::new(),
            last_event: 0,
            histories: vec![History::default(); plan.groups.len()],
            tally: Tally::default(),
            network: rng.fork(),
            rng: rng.fork(),
            weather: Weather::Calm,
            current: None,
            machines: 0,
            departures: 0,
            workers: vec![None; plan.workers.len()],
            known: Known::default(),
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            violations: Vec::new(),
        };
        Arc::new(Self { server, plan, mutation, verbose, start: Instant::now(), state: Mutex::new(state) })
    }

    /// The state. Never locked while the server is used, which asks for faults.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual time since the beginning, in microseconds.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The same as a date.
    pub(crate) fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.now() / 1_000
    }

    /// Writes a line of the journal.
    pub(crate) fn note(&self, line: fmt::Arguments<'_>) {
        let now = self.now();
        // Writing to a string cannot fail.
        let _ = writeln!(self.state().journal, "{now} {line}");
    }

    /// Writes a line that is only wanted by who looks closely.
    pub(crate) fn detail(&self, line: fmt::Arguments<'_>) {
        if self.verbose {
            self.note(line);
        }
    }

    /// Adds an event to the history of a group, and to the journal.
    pub(crate) fn happened(&self, group: usize, what: What) {
        let now = self.now();
        let mut state = self.state();
        // Much happens in one moment of virtual time, but one after the other.
        let at = now.max(state.last_event + 1);
        state.last_event = at;
        let event = Event { at, what };
        let _ = writeln!(state.journal, "{event} {}", self.plan.groups[group]);
        state.histories[group].extend([event]);
    }

    /// The same for all groups.
    pub(crate) fn happened_to_all(&self, what: &What) {
        for group in 0..self.plan.groups.len() {
            self.happened(group, what.clone());
        }
    }

    /// Counts something that went wrong, and writes it down.
    pub(crate) fn fault(&self, name: &'static str, whom: &str) {
        self.note(format_args!("fault {name} {whom}"));
        *self.state().tally.faults.entry(name).or_default() += 1;
    }

    /// Nobody knows whether a message arrived, or how often.
    pub(crate) fn unconfirmed(&self, number: u64) {
        let message = self.state().known.messages.get(&number).copied();
        if let Some(Message { kind, key }) = message {
            let key = self.plan.lanes.then_some(key);
            self.happened_to_all(&What::Unconfirmed { number, key, fate: kind.fate() });
        }
    }

    /// A consumer and the server did not hear of each other until now.
    pub(crate) fn silence(&self, machine: &Machine, cause: Cause, since: u64) {
        if let Some(group) = machine.group {
            self.happened(group, What::Silence { process: Some(machine.number), cause, since });
        }
    }

    /// Something must not be.
    pub(crate) fn violation(&self, what: String) {
        self.note(format_args!("VIOLATION {what}"));
        self.state().violations.push(what);
    }

    pub(crate) fn next_machine(
        self: &Arc<Self>,
        name: impl FnOnce(u32) -> String,
        group: Option<usize>,
    ) -> Arc<Machine> {
        let number = {
            let mut state = self.state();
            state.machines += 1;
            state.machines
        };
        Machine::new(self, number, name(number), group)
    }

    /// The place of a group, by its name.
    pub(crate) fn group(&self, name: &[u8]) -> Option<usize> {
        self.plan.groups.iter().position(|group| group.as_bytes() == name)
    }

    /// Draws from the randomness of the run.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.state().rng)
    }
}
