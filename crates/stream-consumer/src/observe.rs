//! [`Observer`] and [`Event`]: what a consumer tells about itself; [`Stats`]: the same as counters.
//!
//! Whatever this library decides to the disadvantage of an entry is an event, a counter and a log line: nothing
//! disappears silently.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stream_core::{DeadReason, EntryId, StreamKey};

use crate::delivery::Source;
use crate::guard::guarded;

/// Something worth knowing about a consumer. No event holds a payload.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The consumer reads: connected, group there; for an ephemeral one, its start resolved to an id. Once for each stream.
    Ready,
    /// A handler was started.
    Started {
        /// The entry.
        id: EntryId,
        /// The number of this start, from 1.
        attempt: u32,
    },
    /// A handler returned and its entry is going to be acknowledged.
    Handled {
        /// The entry.
        id: EntryId,
        /// The number of this start, from 1.
        attempt: u32,
    },
    /// An attempt failed; the next one follows after `after`.
    Retrying {
        /// The entry.
        id: EntryId,
        /// The attempt that failed.
        attempt: u32,
        /// How long until the next.
        after: Duration,
    },
    /// An entry was written to the dead letters and acknowledged.
    DeadLettered {
        /// The entry.
        id: EntryId,
        /// How often its handler was started.
        attempts: u32,
        /// Why.
        reason: &'a DeadReason,
    },
    /// A dead letter could not be written; the entry stays pending and it is tried again.
    DeadLetterFailed {
        /// The entry.
        id: EntryId,
        /// Why.
        error: &'a stream_redis::Error,
    },
    /// An entry was given up and is in no dead letter: by an ephemeral consumer, or in a mode that acknowledges it
    /// whatever becomes of it.
    GivenUp {
        /// The entry.
        id: EntryId,
        /// Why.
        reason: &'a DeadReason,
    },
    /// Entries of an owner that died, or that were handed back, were taken over.
    TakenOver {
        /// How many.
        count: usize,
    },
    /// Somebody else owns the entry now; its handler was told and will not be acknowledged.
    LeaseLost {
        /// The entry.
        id: EntryId,
    },
    /// An entry was deleted from the stream while it was pending: a lost message.
    DeletedWhilePending {
        /// The entry.
        id: EntryId,
    },
    /// The group was created.
    GroupCreated {
        /// The id that it starts after.
        after: EntryId,
        /// Whether it had existed before and was lost.
        recreated: bool,
    },
    /// The connection is gone or the server is busy; the consumer tries again after `after`.
    Reconnecting {
        /// Why.
        error: &'a stream_redis::Error,
        /// The pause.
        after: Duration,
    },
    /// A stream of several cannot be consumed; the others go on and it is tried again.
    StreamFailed {
        /// Why.
        error: &'a stream_redis::Error,
    },
    /// Entries were trimmed or deleted before an ephemeral consumer read them, or before the group of a durable one was given
    /// them. What is missing has ids greater than `after` and up to `before`.
    ///
    /// A durable consumer looks at its start, after each reconnect and at each claim interval; what is cut and passed
    /// between two looks may go untold. Each process of a group tells what it sees, so the same gap may be told by several,
    /// and by one that starts while the group still stands before it. A group that somebody else has made at `0` counts
    /// everything that the stream ever lost as missed: when it was made is not known.
    Gap {
        /// The last id up to which all is well.
        after: EntryId,
        /// The first id that is there again, or the greatest of all where only the number of missing entries is known.
        before: EntryId,
        /// How many are missing, at least; `None` where the server cannot tell (Redis 6.2, or after `XDEL` in the middle of
        /// the stream). Then a durable consumer is certain that at least one is; for an ephemeral one perhaps none is.
        missed: Option<u64>,
    },
    /// A stream that an ephemeral consumer reads was deleted, or deleted and made anew. Entries that it had not read of the
    /// old one are lost.
    StreamReset {
        /// The greatest id that was known of the old stream.
        last: EntryId,
        /// The greatest id of the new one; `None` while there is none.
        now: Option<EntryId>,
        /// The id after which reading goes on.
        from: EntryId,
    },
    /// A handler (or a decoder, or the key of an order) has not given back the thread that it was called on: until it does,
    /// this consumer starts and acknowledges nothing more of the stream. What it holds stays its own. Once for each time.
    Blocked {
        /// For how long, by now.
        since: Duration,
    },
    /// Something optional does not work, for example for want of a permission.
    Degraded {
        /// What, and what it costs.
        what: &'static str,
        /// Why.
        error: &'a stream_redis::Error,
    },
}

/// Is told of every [`Event`]. Called from the consumer's own tasks: it must be quick and must not block.
pub trait Observer: Send + Sync + 'static {
    /// `stream` is the stream that the event is about.
    fn event(&self, stream: &StreamKey, event: &Event<'_>);
}

impl<F: Fn(&StreamKey, &Event<'_>) + Send + Sync + 'static> Observer for F {
    fn event(&self, stream: &StreamKey, event: &Event<'_>) {
        self(stream, event);
    }
}

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        /// What a consumer has done since it was started, over all its streams.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }
    };
}

stats! {
    /// Entries that this consumer got by reading.
    received,
    /// Entries taken over from owners that died or handed them back.
    taken_over,
    /// Starts of handlers.
    started,
    /// Entries whose handler returned well.
    handled,
    /// Acknowledgements that the server confirmed.
    acknowledged,
    /// Acknowledgements that found nothing to remove: somebody else had done it.
    already_acknowledged,
    /// Failed attempts that are followed by another.
    retried,
    /// Entries written to the dead letters.
    dead_lettered,
    /// Entries given up that are in no dead letter.
    given_up,
    /// Gaps that this consumer found in its streams: [`Event::Gap`]. Other processes of the group may count the same.
    gaps,
    /// Entries that are known to be missing in these gaps; where the server cannot count them, they are not in it.
    missed,
    /// Streams deleted or made anew under an ephemeral consumer.
    resets,
    /// Entries given back without being finished.
    handed_back,
    /// Entries whose lease was lost to another consumer.
    leases_lost,
    /// Entries that were deleted while they were pending.
    deleted_while_pending,
    /// Entries that had been finished before their group was lost, and were acknowledged again without a second run.
    recognised,
    /// Connections that had to be made anew.
    reconnects,
    /// Groups created or recreated.
    groups_created,
    /// Replies to reads: `XREADGROUP` or `XREAD`.
    reads,
    /// `XACK` commands.
    ack_commands,
}

/// Counts up; the order of counters among each other does not matter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Tells the log and the observer. An observer that panics must not take a run loop down, or end the renewing of leases
/// while handlers go on.
#[inline]
pub(crate) fn tell(source: &Source, observer: Option<&dyn Observer>, event: &Event<'_>) {
    // The two that come with every entry have no line.
    if observer.is_none() && matches!(event, Event::Started { .. } | Event::Handled { .. }) {
        return;
    }
    tell_of(source, observer, event);
}

fn tell_of(source: &Source, observer: Option<&dyn Observer>, event: &Event<'_>) {
    log(source, event);
    let Some(observer) = observer else { return };
    if let Err(panic) = guarded(|| observer.event(&source.stream, event)) {
        tracing::error!(stream = %source.stream, consumer = %source.consumer, panic, "the observer panicked");
    }
}

/// The log line of an event, where it has one. Handlers have spans; what is ordinary has no line.
fn log(source: &Source, event: &Event<'_>) {
    let (stream, consumer) = (&source.stream, &source.consumer);
    let group = source.group.as_ref().map(tracing::field::display);
    match event {
        Event::Started { .. } | Event::Handled { .. } => {}
        Event::Ready => tracing::debug!(%stream, group, %consumer, "consuming"),
        Event::Retrying { id, attempt, after } => {
            tracing::debug!(%stream, group, %id, attempt, ?after, "an attempt failed and is followed by another");
        }
        Event::DeadLettered { id, attempts, reason } => {
            tracing::warn!(%stream, group, %id, attempts, reason = reason.as_str(), "moved an entry to the dead letters");
        }
        Event::DeadLetterFailed { id, error } => {
            tracing::error!(%stream, group, %id, %error, "cannot write a dead letter; the entry stays pending");
        }
        Event::GivenUp { id, reason } => {
            tracing::warn!(%stream, group, %id, reason = reason.as_str(), "gave up an entry, which is in no dead letter");
        }
        Event::TakenOver { count } => tracing::info!(%stream, group, %consumer, count, "took over abandoned entries"),
        Event::LeaseLost { id } => tracing::warn!(%stream, group, %consumer, %id, "lost the lease on an entry"),
        Event::DeletedWhilePending { id } => {
            tracing::warn!(%stream, group, %id, "an entry was deleted from the stream while it was pending");
        }
        Event::GroupCreated { after, recreated: false } => tracing::info!(%stream, group, %after, "created the group"),
        Event::GroupCreated { after, .. } => {
            tracing::warn!(%stream, group, %after, "the group was gone and was made anew")
        }
        Event::Reconnecting { error, after } => {
            tracing::warn!(%stream, group, %error, ?after, "cannot read for now; trying again");
        }
        Event::StreamFailed { error } => {
            tracing::error!(%stream, group, %error, "this stream cannot be consumed; the others go on");
        }
        Event::Gap { after, before, missed } => {
            tracing::warn!(%stream, group, %consumer, %after, %before, missed, "entries were gone before they were read");
        }
        Event::StreamReset { last, now, from } => {
            let now = now.map(tracing::field::display);
            tracing::warn!(%stream, %consumer, %last, now, %from, "the stream was deleted or made anew");
        }
        Event::Blocked { since } => {
            tracing::error!(%stream, group, %consumer, ?since, "a handler blocks the thread of the stream's run loop");
        }
        Event::Degraded { what, error } => tracing::warn!(%stream, group, %error, "{what}"),
    }
}
