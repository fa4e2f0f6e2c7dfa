//! The group: made where it is missing, and remembered well enough to make it anew without losing an entry.
//!
//! A missing stream or group is a state, not a failure. A lost group is made anew after the last id below which everything
//! was finished, as far as this process knows; in a stream that is a new one, at its beginning; never at its end.

use std::time::Instant;

use stream_core::{EntryId, StartFrom, Undelivered};
use stream_redis::command::{
    StreamInfo, TouchConsumer, XGroupCreate, XGroupCreateConsumer, XInfoConsumers, XInfoGroups, XInfoStream,
    XPendingSummary,
};
use stream_redis::{Error, ErrorKind};

use super::config::OnGroupLost;
use super::gaps;
use super::rewound::Rewound;
use super::stream::{Stream, now};
use crate::observe::{Event, count};

/// What this process knows of the group and its stream.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory {
    /// Whether the group was there once.
    seen: bool,
    /// Everything up to this id was finished by the whole group.
    floor: EntryId,
    /// The last id that was delivered to anybody, when that was last asked.
    last_delivered: EntryId,
    /// The greatest id of the stream, and how many entries were ever added, where the server tells.
    last_generated: EntryId,
    entries_added: Option<u64>,
    /// Which entries it was never given are gone.
    undelivered: Undelivered,
    /// When a loss of the group was dealt with last.
    dealt_with: Option<Instant>,
    /// Why the group could not be created, if it was for want of a permission: the answer if it then is missing.
    denied: Option<Error>,
    /// What was told of missing permissions, once each.
    told: Told,
    /// Whether reads that give nothing do not show to others that this consumer is alive.
    unseen: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Told {
    create: bool,
    info: bool,
}

/// Where to begin a group, and whether the stream is the one that was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) after: EntryId,
    pub(crate) same_stream: bool,
}

impl GroupMemory {
    /// Decides where a lost group begins: `stream` is what the server says of the stream now, `None` if it does not exist
    /// or cannot be asked.
    pub(crate) fn beginning(&self, stream: Option<(EntryId, Option<u64>)>) -> Beginning {
        let same_stream = match stream {
            None => false,
            Some((last_generated, added)) => {
                let shrunk = matches!((added, self.entries_added), (Some(now), Some(before)) if now < before);
                last_generated >= self.last_generated && !shrunk
            }
        };
        Beginning { after: if same_stream { self.floor } else { EntryId::ZERO }, same_stream }
    }

    /// The greatest id that was delivered to anybody, as far as it is known.
    pub(crate) fn last_delivered(&self) -> EntryId {
        self.last_delivered
    }

    /// Takes up what the server says: the oldest pending id of the group, and the last one delivered.
    pub(crate) fn learn(&mut self, oldest_pending: Option<EntryId>, last_delivered: EntryId) {
        self.last_delivered = last_delivered;
        self.floor = oldest_pending.and_then(EntryId::predecessor).unwrap_or(last_delivered);
    }
}

/// Makes sure that the group and this consumer are there.
///
/// # Errors
/// What stands against it: a connection that fails, a wrong type, a permission that is missing *and* needed.
pub(crate) async fn ensure(stream: &Stream) -> Result<(), Error> {
    make_sure(stream, &mut *stream.group.lock().await, None).await
}

/// A command that was sent at `sent` has found the group missing. The same, and even if another process has made it anew
/// by now, what was held is pending nowhere, and what is delivered again may have been finished here.
///
/// # Errors
/// As [`ensure`].
pub(crate) async fn mend(stream: &Stream, sent: Instant) -> Result<(), Error> {
    let missed = now();
    let mut memory = stream.group.lock().await;
    // A loss that was dealt with after the command was sent is no news, and what came since belongs to the new group.
    let missed = memory.dealt_with.is_none_or(|at| sent > at).then_some(missed);
    make_sure(stream, &mut memory, missed).await
}

/// `missed` is when the group was seen to be missing, if it was.
async fn make_sure(stream: &Stream, memory: &mut GroupMemory, missed: Option<Instant>) -> Result<(), Error> {
    let owner = &stream.owner;
    let known = memory.seen;
    let mut beginning = Beginning { after: EntryId::ZERO, same_stream: false };
    // Without the permission to look at the stream, a group that is still there says that nothing was lost.
    let mut blind = false;
    let mut info: Option<StreamInfo> = None;
    let start = if known {
        memory.undelivered.was_away();
        info = match stream.link.run(&XInfoStream { key: owner.key.clone() }).await {
            Ok(info) => Some(info),
            Err(error) if error.kind() == ErrorKind::Missing => None,
            Err(error) if is_denied(&error) => {
                blind = true;
                None
            }
            Err(error) => return Err(error),
        };
        beginning = memory.beginning(info.as_ref().map(|info| (info.last_generated_id, info.entries_added)));
        if stream.config.on_group_lost == OnGroupLost::Fail {
            // Nothing is created; if the group is gone, the read says so.
            return Ok(());
        }
        beginning.after.to_string()
    } else {
        if stream.config.start == StartFrom::Beginning {
            info = match stream.link.run(&XInfoStream { key: owner.key.clone() }).await {
                Ok(info) => Some(info),
                // What stands against it stands against the group as well, or costs only the number.
                Err(error) if error.server().is_some() => None,
                Err(error) => return Err(error),
            };
        }
        stream.config.start.create_id().to_string()
    };
    // What was gone before there was a group is no loss of the group: its count begins behind that.
    let gone = info.as_ref().and_then(|info| info.entries_added?.checked_sub(info.length));
    let entries_read = gone.filter(|gone| *gone > 0 && matches!(start.as_str(), "0" | "0-0"));
    let create =
        XGroupCreate { key: owner.key.clone(), group: owner.group.clone(), start, make_stream: true, entries_read };
    memory.denied = None;
    let asked = now();
    let (created, there) = match stream.link.run(&create).await {
        Ok(()) => (true, true),
        Err(error) if error.kind() == ErrorKind::GroupExists => (false, true),
        // A server without memory creates nothing, but serves reads and acknowledgements, which are what makes room. If the
        // group is there nothing is missing, and if not, the read says so.
        Err(error) if is_denied(&error) || is_out_of_memory(&error) => {
            if is_denied(&error) && !std::mem::replace(&mut memory.told.create, true) {
                stream.degraded("a group that does not exist cannot be created, which ends the consumer", &error);
            }
            memory.denied = Some(error);
            (false, false)
        }
        Err(error) => return Err(error),
    };
    if known && (created || !blind) {
        let lost_by = if created { Some(asked) } else { missed };
        let rewound = match &info {
            Some(info) if !beginning.same_stream && lost_by.is_none() => {
                Rewound::look(stream, info.last_generated_id).await?
            }
            _ => None,
        };
        forget_or_orphan(stream, beginning, lost_by, rewound.as_ref());
        if !beginning.same_stream {
            let (denied, told, unseen) = (memory.denied.take(), memory.told, memory.unseen);
            // It stays seen: should the group not be there yet, the new stream is read from its beginning later as well.
            *memory = GroupMemory { seen: true, denied, told, unseen, ..GroupMemory::default() };
        }
        if lost_by.is_some() {
            memory.dealt_with = Some(now());
        }
    }
    if created {
        count(&stream.counters.groups_created, 1);
        let after = if known { beginning.after } else { start_id(&stream.config.start) };
        stream.tell(&Event::GroupCreated { after, recreated: known });
    }
    let register =
        XGroupCreateConsumer { key: owner.key.clone(), group: owner.group.clone(), consumer: owner.consumer.clone() };
    match stream.link.run(&register).await {
        Ok(_) => {}
        // Registering only shows a quiet consumer to those who clean up; without it, reading works as well.
        Err(error) if is_denied(&error) || is_out_of_memory(&error) || error.kind() == ErrorKind::Missing => {}
        Err(error) => return Err(error),
    }
    let others = XInfoConsumers { key: owner.key.clone(), group: owner.group.clone() };
    memory.unseen = match stream.link.run(&others).await {
        Ok(consumers) => consumers.iter().all(|consumer| !consumer.polls_count),
        Err(error) if is_denied(&error) || error.kind() == ErrorKind::Missing => true,
        Err(error) => return Err(error),
    };
    memory.seen |= there;
    learn(stream, memory).await
}

/// Notes, before the first read, what had been delivered by then: what this consumer's name owns of it was left by a
/// process that had the name before, and was not cut off from a read of ours.
pub(crate) async fn before_first_read(stream: &Stream) {
    let delivered = stream.group.lock().await.last_delivered;
    let mut book = stream.book();
    book.read_to = book.read_to.max(delivered);
}

/// Refreshes what is known of the group, for the day that it is lost.
pub(crate) async fn refresh(stream: &Stream) -> Result<(), Error> {
    let mut memory = stream.group.lock().await;
    if memory.unseen {
        let owner = &stream.owner;
        let touch =
            TouchConsumer { key: owner.key.clone(), group: owner.group.clone(), consumer: owner.consumer.clone() };
        match stream.link.run(&touch).await {
            Ok(()) => {}
            // The reader finds out as well.
            Err(error) if error.kind() == ErrorKind::Missing => {}
            Err(error) => return Err(error),
        }
    }
    if memory.seen { learn(stream, &mut memory).await } else { Ok(()) }
}

/// The reason why the group is missing for good, if it is one: it could not be created, or must not be recreated.
pub(crate) async fn denied(stream: &Stream) -> Option<Error> {
    stream.group.lock().await.denied.take()
}

async fn learn(stream: &Stream, memory: &mut GroupMemory) -> Result<(), Error> {
    let owner = &stream.owner;
    let info = async {
        // The stream is asked for before the groups: what others read and trim in between then is not taken for a gap.
        let info = stream.link.run(&XInfoStream { key: owner.key.clone() }).await?;
        // And the groups before what is pending: if that is nothing, all that had been delivered by then is finished.
        let groups = stream.link.run(&XInfoGroups { key: owner.key.clone() }).await?;
        let pending = stream.link.run(&XPendingSummary { key: owner.key.clone(), group: owner.group.clone() }).await?;
        Ok::<_, Error>((pending, groups, info))
    };
    match info.await {
        Ok((pending, groups, info)) => {
            if let Some(group) = groups.iter().find(|group| group.name == owner.group) {
                memory.seen = true;
                memory.learn(pending.first, group.last_delivered);
                // What was added after the stream was asked for does not count: the two are held against each other.
                memory.floor = memory.floor.min(info.last_generated_id);
                if let Some(gap) = memory.undelivered.look(&gaps::facts(&info, group, !memory.unseen)) {
                    gaps::tell(stream, gap);
                }
            }
            memory.last_generated = info.last_generated_id;
            memory.entries_added = info.entries_added;
            let (floor, delivered) = (memory.floor, memory.last_delivered);
            let mut book = stream.book();
            book.finished.forget_below(floor);
            book.delivered = delivered;
            Ok(())
        }
        Err(error) if is_denied(&error) => {
            if !std::mem::replace(&mut memory.told.info, true) {
                stream.degraded("a lost group is made anew at its beginning, since its position is not known", &error);
            }
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::Missing => Ok(()),
        Err(error) => Err(error),
    }
}

/// `lost_by` is when the group was gone, if it was: whatever was delivered before is pending nowhere.
fn forget_or_orphan(stream: &Stream, beginning: Beginning, lost_by: Option<Instant>, rewound: Option<&Rewound>) {
    if let Some(rewound) = rewound {
        rewound.settle(stream);
    }
    {
        let mut book = stream.book();
        book.delivered = EntryId::ZERO;
        if rewound.is_some() {
            // What else it lists as ours is looked for from the beginning of its list.
            book.read_to = EntryId::ZERO;
        } else if !beginning.same_stream {
            book.ledger.forget_stream(|tag| {
                if let Some(token) = tag {
                    token.cancel();
                }
            });
            book.finished.clear();
            book.recognise = false;
            book.read_to = EntryId::ZERO;
        } else if let Some(at) = lost_by {
            book.ledger.orphan_until(at);
            book.recognise = true;
            // What is delivered once more is looked for as well, should its read be cut off.
            book.read_to = book.read_to.min(beginning.after);
        }
    }
    stream.disturb();
}

fn start_id(start: &StartFrom) -> EntryId {
    EntryId::parse(start.create_id().to_string().as_bytes()).unwrap_or(EntryId::MAX)
}

fn is_out_of_memory(error: &Error) -> bool {
    error.code() == Some("OOM")
}

pub(crate) fn is_denied(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoPermission | ErrorKind::Unsupported)
}
