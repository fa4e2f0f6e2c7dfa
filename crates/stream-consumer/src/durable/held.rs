//! What the loop of one stream holds, by where it stands: ready to start, to be counted first, waiting for a time, on its
//! way to the dead letters, alone.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::LocalKey;
use std::time::Instant;

use stream_core::{DeadLetter, EntryId, Slot};
use tokio::sync::Semaphore;

use crate::delivery::Delivery;
use crate::shutdown::Shutdown;
use crate::spare::Spare;

/// What all streams of a consumer share.
#[derive(Clone)]
pub(crate) struct Fleet {
    /// One for each handler that may run.
    pub(crate) permits: Arc<Semaphore>,
    /// One suspect at a time.
    pub(crate) suspect: Arc<Semaphore>,
    /// How many entries await their acknowledgement.
    pub(crate) settling: Arc<AtomicUsize>,
    pub(crate) shutdown: Shutdown,
}

/// An entry whose handler may start: its delivery count stands on the server.
pub(crate) struct Ready {
    pub(crate) slot: Slot,
    pub(crate) delivery: Delivery,
    /// When its lease was certain the last time that this task knows of.
    pub(crate) since: Instant,
}

impl Spare for VecDeque<Ready> {
    fn shared() -> &'static LocalKey<Cell<Self>> {
        thread_local!(static SHARED: Cell<VecDeque<Ready>> = Cell::default());
        &SHARED
    }

    fn capacity(&self) -> usize {
        Self::capacity(self)
    }

    fn is_empty(&self) -> bool {
        Self::is_empty(self)
    }
}

/// An entry whose count has to be set on the server before anything else happens to it; its body comes with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recount {
    pub(crate) slot: Slot,
    pub(crate) id: EntryId,
    pub(crate) attempt: u32,
    /// Whether it starts only when no other suspect runs.
    pub(crate) suspect: bool,
    /// Whether nothing may run beside it, which its count on the server tells.
    pub(crate) alone: bool,
    /// Whether it goes to the dead letters instead of a handler.
    pub(crate) give_up: bool,
}

impl Recount {
    /// Of an entry that starts among the others.
    pub(crate) fn new(slot: Slot, id: EntryId, attempt: u32) -> Self {
        Self { slot, id, attempt, suspect: false, alone: false, give_up: false }
    }
}

/// An entry that waits behind another of its key.
pub(crate) enum InLane {
    Ready(Ready),
    /// A suspect, which is counted and fetched anew when its turn comes. Until then its count on the server says that it was
    /// not started again, and it keeps no place from others.
    Suspect(Recount),
}

impl InLane {
    pub(crate) fn ready(&mut self) -> Option<&mut Ready> {
        match self {
            Self::Ready(ready) => Some(ready),
            Self::Suspect(_) => None,
        }
    }
}

/// An entry that waits for a time.
pub(crate) enum Wake {
    Recount(Recount),
    Bury(Box<Burial>),
}

impl Wake {
    pub(crate) fn slot(&self) -> Slot {
        match self {
            Self::Recount(recount) => recount.slot,
            Self::Bury(burial) => burial.slot,
        }
    }
}

/// An entry on its way to the dead letters.
pub(crate) struct Burial {
    /// Whether a try got no answer: it may have been carried out.
    pub(crate) unanswered: bool,
    pub(crate) slot: Slot,
    pub(crate) letter: DeadLetter,
    pub(crate) tries: u32,
}

pub(crate) struct Waiting {
    pub(crate) at: Instant,
    pub(crate) sequence: u64,
    pub(crate) wake: Wake,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The earliest is the greatest, for the heap.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

/// Entries that the steward took over from others.
pub(crate) enum TakenOver {
    /// With their delivery counts; their bodies are not fetched yet.
    Counted(Vec<(Slot, EntryId, u64)>),
    /// Those that this process had finished before their group was lost.
    Finished(Vec<(Slot, EntryId)>),
    /// With their bodies, where the server does not let us ask for the counts; and when the claim was sent.
    Whole(Instant, Vec<(Slot, stream_core::Entry)>),
}
