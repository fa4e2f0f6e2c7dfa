//! [`Stream`]: what the tasks of one stream share: its names, what is held of it, and what is known of its group.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use stream_core::{DEFAULT_FINISHED_CAPACITY, DeadReason, EntryId, Finished, Lease, Ledger, Slot};
use stream_redis::{Error, Owner};
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::group::GroupMemory;
use super::link::Link;
use crate::delivery::Source;
use crate::health::Pulse;
use crate::observe::{Counters, Event, count};
pub(crate) use crate::pace::now;

/// How to tell a running handler that its delivery is no longer ours.
pub(crate) type Tag = Option<CancellationToken>;

/// What this process holds and has finished of one stream.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) ledger: Ledger<Tag>,
    pub(crate) finished: Finished,
    /// Whether `finished` speaks of the stream that is there now: only after a group was lost and the stream was found to
    /// be the same one. Otherwise an id that comes twice is another entry, and is run.
    pub(crate) recognise: bool,
    /// The greatest id that a read has brought.
    pub(crate) read_to: EntryId,
    /// The greatest id that the group had delivered to anybody, when that was last asked.
    pub(crate) delivered: EntryId,
    /// Entries that were claimed and whose delivery counts are not known, and when: ours, and held nowhere.
    pub(crate) uncounted: BTreeMap<EntryId, Instant>,
}

/// What the tasks of one stream share.
pub(crate) struct Stream {
    pub(crate) config: Arc<Config>,
    pub(crate) source: Arc<Source>,
    pub(crate) owner: Owner,
    pub(crate) link: Arc<Link>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) group: tokio::sync::Mutex<GroupMemory>,
    book: Mutex<Book>,
    /// Set once a lease was lost or the group was: from then on nothing is started without a look into the ledger.
    disturbed: AtomicBool,
    /// Whether leases were lost since the worker looked last, and whom to wake.
    lost: AtomicBool,
    worker: AtomicWaker,
    /// Whether a read was cut off and its remains were not looked for yet.
    cut: AtomicBool,
    /// How many entries that were taken over, or are to be tried again, wait for a place.
    in_line: AtomicUsize,
    /// Whether the server does not let this user set counts: then what is taken over has to come with its body.
    uncounted: AtomicBool,
    /// Whether the server does not let this user look for what a cut read has left.
    unseen_cut: AtomicBool,
    /// Set when the worker drains: whoever stops takes nothing over.
    stopping: AtomicBool,
    born: Instant,
    /// Since when the worker's loop is in its turn, in milliseconds from `born` and one more; 0 while it waits.
    busy_since: AtomicU64,
}

impl Book {
    /// Whether this process has finished an entry that is delivered now: its group was lost, and made anew further back.
    pub(crate) fn recognises(&self, id: EntryId) -> bool {
        self.recognise && self.finished.contains(id)
    }
}

impl Stream {
    pub(crate) fn new(
        config: &Arc<Config>,
        source: Source,
        link: &Arc<Link>,
        counters: &Arc<Counters>,
        pulse: Arc<Pulse>,
    ) -> Self {
        let owner =
            Owner { key: source.stream.clone(), group: config.group.clone(), consumer: source.consumer.clone() };
        Self {
            config: Arc::clone(config),
            source: Arc::new(source),
            owner,
            link: Arc::clone(link),
            counters: Arc::clone(counters),
            pulse,
            group: tokio::sync::Mutex::default(),
            book: Mutex::new(Book {
                ledger: Ledger::new(),
                finished: Finished::new(DEFAULT_FINISHED_CAPACITY),
                recognise: false,
                read_to: EntryId::ZERO,
                delivered: EntryId::ZERO,
                uncounted: BTreeMap::new(),
            }),
            disturbed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            worker: AtomicWaker::new(),
            cut: AtomicBool::new(false),
            in_line: AtomicUsize::new(0),
            uncounted: AtomicBool::new(false),
            unseen_cut: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            born: now(),
            busy_since: AtomicU64::new(0),
        }
    }

    /// The worker's loop begins a turn, in which handlers may be polled.
    pub(crate) fn begin_turn(&self, now: Instant) {
        let since = now.saturating_duration_since(self.born).as_millis();
        self.busy_since.store(u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1), Ordering::Relaxed);
    }

    /// The worker's loop waits again.
    pub(crate) fn end_turn(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
    }

    /// For how long the worker's loop has been in one turn: more than a moment means that it was handed to code of the user
    /// that does not return.
    pub(crate) fn in_turn_for(&self, now: Instant) -> Duration {
        match self.busy_since.load(Ordering::Relaxed).checked_sub(1) {
            Some(since) => now.saturating_duration_since(self.born).saturating_sub(Duration::from_millis(since)),
            None => Duration::ZERO,
        }
    }

    /// What is held. Never locked across an await or while a handler is polled.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many entries are held and pending: those whose outcome is decided, and the others.
    pub(crate) fn pending(&self) -> (u64, u64) {
        let book = self.book();
        let held = book.ledger.iter().filter(|(_, _, lease)| matches!(lease, Lease::Held(_)));
        let (settling, others): (Vec<_>, Vec<_>) =
            held.partition(|(slot, ..)| book.ledger.stage(*slot) == Some(stream_core::Stage::Settling));
        (settling.len() as u64, others.len() as u64)
    }

    /// Tells the steward how many entries that were taken over, or are to be tried again, wait for a place.
    pub(crate) fn set_in_line(&self, entries: usize) {
        self.in_line.store(entries, Ordering::Relaxed);
    }

    pub(crate) fn in_line(&self) -> usize {
        self.in_line.load(Ordering::Relaxed)
    }

    /// A lease was lost, or the group was. Tells the worker.
    pub(crate) fn disturb(&self) {
        self.disturbed.store(true, Ordering::Release);
        self.lost.store(true, Ordering::Release);
        self.worker.wake();
    }

    /// Whether leases were lost since the last look; wakes the task when one is.
    pub(crate) fn poll_lost(&self, cx: &Context<'_>) -> bool {
        self.worker.register(cx.waker());
        self.lost.load(Ordering::Acquire) && self.lost.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn is_disturbed(&self) -> bool {
        self.disturbed.load(Ordering::Acquire)
    }

    pub(crate) fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Release);
    }

    /// Whether the own pending list may hold entries of a read that was cut off. Until they are found, nothing is claimed:
    /// a claim could not tell them from what a dead owner had started, and would count their attempt twice.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Counts cannot be set. Returns whether that is news.
    pub(crate) fn set_uncounted(&self) -> bool {
        !self.uncounted.swap(true, Ordering::AcqRel)
    }

    /// Whether counts cannot be set.
    pub(crate) fn is_uncounted(&self) -> bool {
        self.uncounted.load(Ordering::Acquire)
    }

    /// What a cut read has left cannot be looked for. Returns whether that is news.
    pub(crate) fn set_unseen_cut(&self) -> bool {
        !self.unseen_cut.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Tells the observer and the log.
    #[inline]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        crate::observe::tell(&self.source, self.config.observer.as_deref(), event);
    }

    /// Somebody else owns the entry: tells its handler, and withholds what it returns.
    pub(crate) fn lost(&self, slot: Slot) {
        let id = {
            let mut book = self.book();
            if !matches!(book.ledger.lease(slot), Lease::Held(_)) {
                return;
            }
            let Some(tag) = book.ledger.lose(slot) else { return };
            if let Some(token) = tag {
                token.cancel();
            }
            book.ledger.id(slot)
        };
        self.disturb();
        if let Some(id) = id {
            count(&self.counters.leases_lost, 1);
            self.tell(&Event::LeaseLost { id });
        }
    }

    /// An entry was deleted while it was pending: a lost message, which at least is not silent. Where it is held, it comes to
    /// nobody else: what handles it may end.
    pub(crate) fn deleted(&self, id: EntryId) {
        {
            let mut book = self.book();
            if let Some(slot) = book.ledger.find(id) {
                book.ledger.orphan(slot);
            }
        }
        count(&self.counters.deleted_while_pending, 1);
        self.tell(&Event::DeletedWhilePending { id });
    }

    /// An entry is not handled any more, in a mode that has acknowledged it or is going to.
    pub(crate) fn given_up(&self, id: EntryId, reason: &DeadReason) {
        count(&self.counters.given_up, 1);
        self.tell(&Event::GivenUp { id, reason });
    }

    /// Something optional does not work.
    pub(crate) fn degraded(&self, what: &'static str, error: &Error) {
        self.tell(&Event::Degraded { what, error });
    }
}
