//! The mode that acknowledges before the handler: an entry starts once the server has confirmed, and not if somebody else
//! owns it by then.
//!
//! The first command is a plain `XACK`, while the leases are certain. One that got no answer may have been carried out, and
//! is repeated when others may have taken the entries over; so may be what waited here for too long, or in a process that
//! was frozen. So what is still ours is then acknowledged with a check of the owner; what somebody else owns is lost; and
//! what is pending nowhere was acknowledged by ourselves before.
//!
//! Where entries start in order, one command is under way at a time: what comes meanwhile would be confirmed, and start, while
//! the one before it is repeated.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stream_core::{EntryId, Stage};
use stream_redis::command::{XAck, XPending};
use stream_redis::{Error, ErrorKind, Recovery};

use super::flight::Landed;
use super::held::Ready;
use super::stream::{Stream, now};
use super::worker::Worker;
use crate::work::Work;

/// So many are acknowledged with a check by one call.
const CHUNK: usize = 250;
/// So many of those that waited for their turn are acknowledged by one command.
const MOST: usize = 1_000;
/// The shortest pause before the command is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// Entries whose turn to be acknowledged comes after that of others.
#[derive(Default)]
pub(crate) struct Line {
    pub(crate) waiting: VecDeque<Ready>,
    under_way: bool,
}

impl<W: Work> Worker<W> {
    /// Acknowledges these, which start once the server has confirmed.
    pub(crate) fn acknowledge_first(&mut self, entries: Vec<Ready>) {
        if entries.is_empty() {
            return;
        }
        {
            // So that a renewal does not take one that is not pending any more for lost.
            let mut book = self.stream.book();
            for ready in &entries {
                book.ledger.set_stage(ready.slot, Stage::Settling);
            }
        }
        if self.is_ordered() || self.stream.config.concurrency == 1 {
            self.line.waiting.extend(entries);
            self.acknowledge_next();
        } else {
            self.send_first(entries);
        }
    }

    /// Acknowledges what waits for its turn, if that has come.
    fn acknowledge_next(&mut self) {
        // Once nothing is started any more, it is better left to others.
        if self.line.under_way || self.line.waiting.is_empty() || !self.owes {
            return;
        }
        self.line.under_way = true;
        let number = self.line.waiting.len().min(MOST);
        let entries = self.line.waiting.drain(..number).collect();
        self.send_first(entries);
    }

    fn send_first(&mut self, mut entries: Vec<Ready>) {
        let stream = Arc::clone(&self.stream);
        self.send(Box::pin(async move {
            let lost = confirmed(&stream, &mut entries).await;
            let (lost, entries) =
                entries.into_iter().partition(|ready| lost.binary_search(&ready.delivery.id()).is_ok());
            Landed::AcknowledgedFirst { entries, lost }
        }));
    }

    /// The server has confirmed.
    pub(crate) fn acknowledged_first(&mut self, entries: Vec<Ready>, lost: Vec<Ready>) {
        let now = now();
        {
            let mut book = self.stream.book();
            for ready in &entries {
                book.ledger.set_stage(ready.slot, Stage::Queued);
                book.ledger.orphan(ready.slot);
            }
        }
        for ready in lost {
            self.release_body(ready.slot, &ready.delivery);
            self.stream.lost(ready.slot);
            self.forget(ready.slot);
        }
        for ready in entries {
            self.enqueue(Ready { since: now, ..ready });
        }
        self.line.under_way = false;
        self.acknowledge_next();
    }
}

/// Waits until the server has confirmed; returns, in ascending order, which are not ours any more.
async fn confirmed(stream: &Stream, entries: &mut [Ready]) -> Vec<EntryId> {
    let mut ids: Vec<EntryId> = entries.iter().map(|ready| ready.delivery.id()).collect();
    ids.sort_unstable();
    let oldest = entries.iter().map(|ready| ready.since).min().unwrap_or_else(now);
    let mut question =
        Question { ids, lost: Vec::new(), until: oldest + stream.config.lease.trusted(), unanswered: false };
    let (mut tries, mut denied) = (0, false);
    loop {
        match question.ask(stream).await {
            Ok(()) => break,
            // Pending nowhere: the group is gone, and whoever gets them from a new one has not started them.
            Err(error) if error.recovery() == Recovery::Missing => break,
            Err(error) if super::group::is_denied(&error) && !std::mem::replace(&mut denied, true) => {
                stream.degraded("entries cannot be acknowledged, so none is started", &error);
            }
            Err(error) => {
                tracing::debug!(stream = %stream.owner.key, %error, "entries are acknowledged again before they start");
            }
        }
        if tries == 0 {
            // This may take long, and they share their buffer with a whole batch.
            for ready in entries.iter_mut() {
                ready.delivery.entry.detach();
            }
        }
        tokio::time::sleep(stream.config.backoff.delay(tries, fastrand::f64()).max(PAUSE)).await;
        tries = tries.saturating_add(1);
    }
    question.lost.sort_unstable();
    question.lost.dedup();
    question.lost
}

/// Entries that are to be acknowledged before they start, and how far that has come.
struct Question {
    /// Those that are ours as far as is known, ascending.
    ids: Vec<EntryId>,
    /// Those that are somebody else's.
    lost: Vec<EntryId>,
    /// Until when nobody else can have taken them over.
    until: Instant,
    /// Whether an acknowledgement was sent that may have been carried out.
    unanswered: bool,
}

impl Question {
    async fn ask(&mut self, stream: &Stream) -> Result<(), Error> {
        stream.link.reach().await?;
        while !self.unanswered {
            if now() >= self.until {
                // Whoever renews may do so twice, and is told what is lost; an acknowledgement in doubt would hide it.
                self.renew(stream).await?;
            }
            if self.ids.is_empty() {
                return Ok(());
            }
            let (key, group) = (stream.owner.key.clone(), stream.owner.group.clone());
            let command = XAck { key, group, ids: self.ids.clone() };
            match stream.link.run_until(&command, self.until).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(error) => {
                    self.unanswered = error.server().is_none();
                    return Err(error);
                }
            }
        }
        // What is pending nowhere was acknowledged by ourselves.
        for chunk in self.ids.chunks(CHUNK) {
            let others = stream.link.acknowledge(&stream.owner, chunk, stream.config.lease.lease(), false).await?;
            self.lost.extend(owned_by_others(stream, &others).await?);
        }
        Ok(())
    }

    async fn renew(&mut self, stream: &Stream) -> Result<(), Error> {
        let (asked, lease) = (now(), &stream.config.lease);
        let mut lost = Vec::new();
        for chunk in self.ids.chunks(CHUNK) {
            let renewed = stream.link.renew(&stream.owner, chunk, lease.lease()).await?;
            lost.extend(renewed.lost);
            // They are here, and start all the same.
            renewed.deleted.into_iter().for_each(|id| stream.deleted(id));
        }
        self.ids.retain(|id| !lost.contains(id));
        self.lost.extend(lost);
        self.until = asked + lease.trusted();
        Ok(())
    }
}

/// Which of `ids` (ascending) are pending, and not with us.
pub(crate) async fn owned_by_others(stream: &Stream, ids: &[EntryId]) -> Result<Vec<EntryId>, Error> {
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let mut page = XPending {
        key: stream.owner.key.clone(),
        group: stream.owner.group.clone(),
        min_idle: None,
        from: *first,
        after: false,
        to: *last,
        count: 1_000,
        consumer: None,
    };
    loop {
        let entries = stream.link.run(&page).await?;
        let Some(end) = entries.last().map(|entry| entry.id) else { return Ok(found) };
        let full = entries.len() == page.count;
        for entry in entries.iter().filter(|entry| ids.binary_search(&entry.id).is_ok()) {
            if entry.consumer.as_ref() == Some(&stream.owner.consumer) {
                return Err(Error::new(ErrorKind::Busy, "an entry came back between two looks at its owner"));
            }
            found.push(entry.id);
        }
        if !full || end >= *last {
            return Ok(found);
        }
        (page.from, page.after) = (end, true);
    }
}
