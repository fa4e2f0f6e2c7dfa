//! [`Event`]: what can happen, as far as a guarantee speaks of it.

use stream_core::{DeadReason, EntryId};

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Microseconds of a clock that all who write share.
    pub at: u64,
    /// What happened.
    pub what: What,
}

/// What happened. Processes are numbers, each used once: who is started again has a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The server confirmed an entry. The time is that of sending it.
    Published {
        /// Its id.
        entry: EntryId,
        /// The number of the message in it. More than one entry may hold it only where a confirmation got lost.
        number: u64,
        /// Messages of one key have an order.
        key: Option<u64>,
        /// What has to become of it.
        fate: Fate,
    },
    /// A message was sent and nobody knows whether it arrived, once or twice.
    Unconfirmed {
        /// Its number.
        number: u64,
        /// As of [`Published`](Self::Published).
        key: Option<u64>,
        /// As of [`Published`](Self::Published).
        fate: Fate,
    },
    /// A process began to consume.
    ProcessStarted {
        /// Its number.
        process: u32,
        /// The name under which it consumes.
        consumer: String,
    },
    /// A process was asked to stop: from now on it gives back what it has not started.
    Stopping {
        /// Its number.
        process: u32,
    },
    /// A process is gone, by this time at the latest.
    ProcessEnded {
        /// Its number.
        process: u32,
        /// Why.
        how: Ending,
    },
    /// A handler began.
    Started {
        /// Where.
        process: u32,
        /// The entry.
        entry: EntryId,
        /// The number of the message that it holds.
        number: u64,
        /// The number of this start, as the handler was told.
        attempt: u32,
    },
    /// A handler returned. Written down before the library knows of it.
    Finished {
        /// Where.
        process: u32,
        /// The entry.
        entry: EntryId,
        /// The number of its start.
        attempt: u32,
        /// With what.
        result: Returned,
    },
    /// A process was told that somebody else owns the entry, or that its group is gone.
    LeaseLost {
        /// Who was told.
        process: u32,
        /// The entry.
        entry: EntryId,
    },
    /// An entry was seen not to be pending any more, after it had been delivered.
    Acknowledged {
        /// The entry.
        entry: EntryId,
    },
    /// The group was seen to be done with every entry up to this id: delivered, and none of them pending.
    DoneUpTo {
        /// The id.
        entry: EntryId,
    },
    /// Entries below this id were seen to be gone from the stream.
    TrimmedBelow {
        /// The id.
        entry: EntryId,
    },
    /// A dead letter was seen. The time is of no matter: what is seen of a letter comes later than the letter.
    DeadLettered {
        /// The entry that it holds.
        entry: EntryId,
        /// The number of the message, if its fields tell it.
        number: Option<u64>,
        /// Its count.
        attempts: u32,
        /// Its reason.
        reason: Reason,
        /// Who it says gave the entry up.
        consumer: String,
    },
    /// From now on a message is handled well, as where the program was mended.
    Cured {
        /// Its number.
        number: u64,
    },
    /// A dead letter went back to the stream.
    Redriven {
        /// The entry that it held.
        letter: EntryId,
        /// The entry that it became.
        entry: EntryId,
        /// What has to become of that.
        fate: Fate,
    },
    /// From `since` until the time of this event, a process (all, without one) and its server did not hear of each other,
    /// or may not have.
    Silence {
        /// Which process.
        process: Option<u32>,
        /// Why.
        cause: Cause,
        /// Since when.
        since: u64,
    },
    /// Between `since` and the time of this event the group was destroyed, or what servers had confirmed about it was lost
    /// by a failover.
    GroupLost {
        /// Since when.
        since: u64,
    },
    /// The server lost an entry that it had confirmed.
    Forgotten {
        /// The entry.
        entry: EntryId,
    },
    /// A reader without a group is there; all that is added after this id is for it.
    ReaderReady {
        /// Who.
        process: u32,
        /// The id.
        after: EntryId,
    },
    /// A reader without a group got an entry.
    ReaderGot {
        /// Who.
        process: u32,
        /// The entry.
        entry: EntryId,
    },
    /// A reader without a group was told that entries above `after` and up to `before` may be missing.
    ReaderGap {
        /// Who.
        process: u32,
        /// Exclusive.
        after: EntryId,
        /// Inclusive.
        before: EntryId,
    },
    /// A reader without a group was told that its stream is a new one, or fell back.
    ReaderReset {
        /// Who.
        process: u32,
        /// After which id it goes on.
        from: EntryId,
    },
    /// A process holds so much memory. No rule is about it.
    Resident {
        /// Which process.
        process: u32,
        /// In KiB.
        kib: u64,
    },
    /// In the end an entry is pending.
    Pending {
        /// The entry.
        entry: EntryId,
    },
    /// In the end the group stands here.
    End {
        /// The last id that was delivered to anybody.
        delivered: EntryId,
    },
    /// Somebody wrote down what does not fit together, or found what must not be.
    Broken {
        /// What.
        why: String,
    },
}

/// What has to become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is handled, and in no dead letter.
    Handled,
    /// It fails at every attempt and ends in the dead letters.
    Exhausted,
    /// It takes its process down at every attempt and ends in the dead letters.
    Kills,
    /// Its handler is never started; it ends in the dead letters.
    Undecodable,
    /// Its handler rejects it; it ends in the dead letters.
    Rejected,
    /// Either end is right.
    Free,
}

impl Fate {
    /// Whether it has to end in the dead letters.
    pub fn is_dead(self) -> bool {
        !matches!(self, Self::Handled | Self::Free)
    }
}

/// What a handler returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Returned {
    /// It is handled.
    Done,
    /// Another attempt, if there is one left.
    Failed,
    /// To the dead letters.
    Rejected,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// By SIGKILL.
    Killed,
    /// By its own abort.
    Aborted,
    /// By itself, after it was asked to stop.
    Stopped,
}

impl Ending {
    /// Whether it took down what it was working on.
    pub fn is_crash(self) -> bool {
        self != Self::Stopped
    }
}

/// Why a process was silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It was frozen, or did not get to run.
    Frozen,
    /// The network was cut or stalled.
    Network,
    /// The server was dead, frozen or busy, or was replaced.
    Server,
}

/// Why an entry was given up, without the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// [`DeadReason::Rejected`].
    Rejected,
    /// [`DeadReason::Exhausted`].
    Exhausted,
    /// [`DeadReason::OwnerDied`].
    OwnerDied,
    /// [`DeadReason::Undecodable`].
    Undecodable,
}

impl Reason {
    /// The reason of a letter; `None` for one that this module does not know.
    pub fn of(reason: &DeadReason) -> Option<Self> {
        match reason {
            DeadReason::Rejected(_) => Some(Self::Rejected),
            DeadReason::Exhausted { .. } => Some(Self::Exhausted),
            DeadReason::OwnerDied => Some(Self::OwnerDied),
            DeadReason::Undecodable(_) => Some(Self::Undecodable),
            _ => None,
        }
    }
}
