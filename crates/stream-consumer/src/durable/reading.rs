//! [`Reading`]: the reading socket of one stream as a state machine: prepared, open, repaired, pausing.
//!
//! A read is never given up half way: the socket is polled, and when it fails, what had been delivered to nobody is looked
//! for in the own pending list before the next read. No state is left faster than its pacing.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use stream_core::{Backoff, EntryId, ReadAhead, ReadLimits};
use stream_redis::command::{PendingEntry, XPending};
use stream_redis::{Error, ErrorKind, NodeDoubt, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Recovery};
use tokio::time::Sleep;

use super::config::{Acknowledge, OnGroupLost};
use super::group;
use super::stream::{Stream, now};
use crate::observe::{Event, count};
use crate::pace::pause_after_empty;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// So many times in a row a group may be missing right after it was made.
const REPAIRS: u32 = 10;
/// So often the server may refuse the credentials that it had taken before: they may be about to be rotated.
const REFUSALS: u32 = 3;

/// What came of polling.
pub(crate) enum Progress {
    /// Connected; these entries had been delivered to nobody.
    Opened { undelivered: Vec<Undelivered> },
    /// Entries are in the batch; `complete` when the reply is at its end.
    Entries { complete: bool },
    /// It cannot go on.
    Failed(Error),
    /// The group is gone and must not be recreated.
    GroupLost,
}

enum State {
    Preparing(BoxFuture<Result<Prepared, Error>>),
    Open(Box<dyn Reader>),
    Repairing(Box<dyn Reader>, BoxFuture<Result<(), Error>>),
    Pausing(Option<Box<dyn Reader>>, Pin<Box<Sleep>>),
    Closed,
}

struct Prepared {
    reader: Box<dyn Reader>,
    undelivered: Vec<Undelivered>,
}

/// An entry of the own pending list that is not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undelivered {
    pub(crate) id: EntryId,
    /// Its count on the server.
    pub(crate) deliveries: u64,
    /// Whether it was not read but claimed, by a command whose answer was lost: then its count is one of starts.
    pub(crate) claimed: bool,
}

struct Asked {
    count: usize,
    block: bool,
    at: Instant,
}

pub(crate) struct Reading {
    stream: Arc<Stream>,
    state: State,
    request: ReadRequest,
    ahead: ReadAhead,
    backoff: Backoff,
    doubt: NodeDoubt,
    asked: VecDeque<Asked>,
    /// The greatest id that had been delivered to anybody before the reads in flight were asked for, as far as is known.
    before: EntryId,
    /// When the read was asked for that is being answered or was answered last, and whether it waited for entries.
    answered: Option<(Instant, bool)>,
    /// Whether the last reply left nothing behind on the server.
    drained: bool,
    /// Whether part of the present reply has arrived.
    in_reply: bool,
    /// Whether a read was cut off since the last preparation.
    interrupted: bool,
    early_empties: u32,
    repairs: u32,
    refusals: u32,
    was_open: bool,
}

impl Reading {
    /// `batch` is how many entries one handler takes.
    pub(crate) fn new(stream: &Arc<Stream>, batch: usize) -> Self {
        let config = &stream.config;
        let streams = config.streams.len();
        let limits = ReadLimits {
            concurrency: config.concurrency.div_ceil(streams).saturating_mul(batch).min(u32::MAX as usize),
            prefetch: config.prefetch,
            prefetch_bytes: (config.prefetch_bytes / streams).max(1),
        };
        let from = ReadFrom::Group {
            group: config.group.clone(),
            consumer: config.consumer.clone(),
            no_ack: config.acknowledge == Acknowledge::NoAck,
        };
        Self {
            stream: Arc::clone(stream),
            state: State::Preparing(Box::pin(prepare(Arc::clone(stream), true, None))),
            before: EntryId::ZERO,
            request: ReadRequest { key: stream.owner.key.clone(), from, count: 1, block: None },
            ahead: ReadAhead::new(limits),
            backoff: Backoff::new(config.backoff),
            doubt: NodeDoubt::default(),
            asked: VecDeque::new(),
            answered: None,
            drained: true,
            in_reply: false,
            interrupted: false,
            early_empties: 0,
            repairs: 0,
            refusals: 0,
            was_open: false,
        }
    }

    /// How fast entries are finished; steers how many are read ahead.
    pub(crate) fn finished(&mut self, entries: usize, now: Instant) {
        self.ahead.finished(entries, now);
    }

    /// How large entries are that have come; steers how many are asked for.
    pub(crate) fn received(&mut self, entries: usize, bytes: usize) {
        self.ahead.received(entries, bytes);
        if entries > 0 {
            self.ahead.holds(true, now());
        }
    }

    /// How many entries more the bytes allow to be held beside `held_bytes`.
    pub(crate) fn fit(&self, held_bytes: usize) -> usize {
        self.ahead.fit(held_bytes)
    }

    /// How many entries may be held without those that wait.
    pub(crate) fn room(&self) -> usize {
        let limits = self.ahead.limits();
        limits.concurrency.saturating_add(limits.prefetch)
    }

    /// Asks for as much as there is room for: one read that waits, or up to two that do not while there is a backlog.
    pub(crate) fn top_up(&mut self, held: usize, held_bytes: usize) {
        if held == 0 {
            self.ahead.holds(false, now());
        }
        let State::Open(reader) = &mut self.state else { return };
        loop {
            let blocking = self.drained;
            if self.asked.len() >= 2 || (blocking && !self.asked.is_empty()) {
                return;
            }
            let pending: usize = self.asked.iter().map(|asked| asked.count).sum();
            let want = self.ahead.want(held + pending, held_bytes.saturating_add(self.ahead.bytes_of(pending)));
            // Half the room at most, so that the next read can be under way while this one's entries are handled.
            let limits = self.ahead.limits();
            let half = limits.concurrency.max(limits.concurrency.saturating_add(limits.prefetch).div_ceil(2));
            let wanted = want.min(half);
            if wanted == 0 {
                return;
            }
            if self.asked.is_empty() {
                let book = self.stream.book();
                self.before = book.read_to.max(book.delivered);
            }
            self.request.count = wanted;
            self.request.block = blocking.then_some(self.stream.config.block);
            reader.submit(&self.request);
            self.asked.push_back(Asked { count: wanted, block: blocking, at: now() });
        }
    }

    /// Reads no more. Where a read was cut off, something may have been delivered to nobody; returns what had been delivered
    /// before it then.
    pub(crate) fn close(&mut self) -> Option<EntryId> {
        self.state = State::Closed;
        self.interrupted |= !self.asked.is_empty();
        self.asked.clear();
        self.in_reply = false;
        self.interrupted.then_some(self.before)
    }

    /// Whether the rest of a reply is still to come.
    pub(crate) fn is_in_reply(&self) -> bool {
        self.in_reply
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Progress> {
        loop {
            match &mut self.state {
                State::Closed => return Poll::Pending,
                State::Preparing(future) => match ready!(future.as_mut().poll(cx)) {
                    Ok(Prepared { reader, undelivered }) => {
                        self.state = State::Open(reader);
                        self.interrupted = false;
                        self.was_open = true;
                        self.stream.pulse.opened();
                        return Poll::Ready(Progress::Opened { undelivered });
                    }
                    Err(error) => {
                        if let Some(end) = self.trouble(error) {
                            return Poll::Ready(end);
                        }
                    }
                },
                State::Pausing(_, sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    let State::Pausing(reader, _) = std::mem::replace(&mut self.state, State::Closed) else { continue };
                    match reader {
                        // Nothing is in flight here, so the worker has to be asked for the next read.
                        Some(reader) => {
                            self.state = State::Open(reader);
                            return Poll::Ready(Progress::Entries { complete: true });
                        }
                        None => self.prepare(),
                    }
                }
                State::Repairing(_, future) => {
                    let result = ready!(future.as_mut().poll(cx));
                    let State::Repairing(reader, _) = std::mem::replace(&mut self.state, State::Closed) else {
                        continue;
                    };
                    match result {
                        Ok(()) => {
                            self.repairs += 1;
                            // The first repair is followed by a read at once; one that does not last is paced, and read over
                            // a connection that is made anew, as the one for commands was.
                            if self.repairs == 1 {
                                self.state = State::Open(reader);
                                return Poll::Ready(Progress::Entries { complete: true });
                            }
                            let pause = self.backoff.next(fastrand::f64());
                            if !self.asked.is_empty() {
                                self.interrupt();
                            }
                            self.asked.clear();
                            self.state = State::Pausing(None, Box::pin(tokio::time::sleep(pause)));
                        }
                        Err(error) => {
                            if let Some(end) = self.trouble(error) {
                                return Poll::Ready(end);
                            }
                        }
                    }
                }
                State::Open(reader) => {
                    if reader.in_flight() == 0 {
                        return Poll::Pending;
                    }
                    let before = batch.entries.len();
                    match ready!(reader.poll_next(cx, batch)) {
                        Ok(ReadProgress::Partial) => {
                            self.in_reply = true;
                            self.answered = self.asked.front().map(|asked| (asked.at, asked.block));
                            return Poll::Ready(Progress::Entries { complete: false });
                        }
                        Ok(ReadProgress::Complete { total }) => {
                            self.completed(total);
                            return Poll::Ready(Progress::Entries { complete: true });
                        }
                        Ok(_) => {}
                        Err(error) => {
                            self.in_reply |= batch.entries.len() > before;
                            if let Some(end) = self.read_failed(error) {
                                return Poll::Ready(end);
                            }
                            if batch.entries.len() > before {
                                return Poll::Ready(Progress::Entries { complete: false });
                            }
                        }
                    }
                }
            }
        }
    }

    /// From when on what came last surely is ours.
    pub(crate) fn delivered_since(&self, now: Instant) -> Instant {
        let Some((asked, blocking)) = self.answered else { return now };
        let waits = if blocking { self.stream.config.block } else { Duration::ZERO };
        self.stream.config.lease.delivered_since(asked, waits, now)
    }

    /// A reply is complete.
    fn completed(&mut self, total: usize) {
        count(&self.stream.counters.reads, 1);
        self.stream.pulse.read(now());
        self.in_reply = false;
        self.repairs = 0;
        self.refusals = 0;
        self.backoff.reset();
        self.doubt.reset();
        self.ahead.completed();
        let Some(asked) = self.asked.pop_front() else { return };
        self.answered = Some((asked.at, asked.block));
        self.drained = total < asked.count;
        if total > 0 {
            self.early_empties = 0;
        } else if asked.block {
            let waited = now().saturating_duration_since(asked.at);
            match pause_after_empty(waited, self.stream.config.block, self.early_empties) {
                None => self.early_empties = 0,
                Some(pause) => {
                    self.early_empties += 1;
                    if let State::Open(reader) = std::mem::replace(&mut self.state, State::Closed) {
                        self.state = State::Pausing(Some(reader), Box::pin(tokio::time::sleep(pause)));
                    }
                }
            }
        }
    }

    fn read_failed(&mut self, error: Error) -> Option<Progress> {
        if error.server().is_none() {
            // The connection is of no more use; whatever was asked for may have been delivered to nobody.
            if self.in_reply {
                self.ahead.interrupted();
            }
            self.interrupt();
            return self.trouble(error);
        }
        let sent = self.asked.pop_front().map_or_else(now, |asked| asked.at);
        self.in_reply = false;
        self.drained = true;
        let State::Open(reader) = std::mem::replace(&mut self.state, State::Closed) else { return None };
        match self.doubt.recovery(&error) {
            Recovery::Satisfied => self.state = State::Open(reader),
            Recovery::Missing => return self.repair(reader, error, sent),
            Recovery::Retry => {
                let pause = self.backoff.next(fastrand::f64());
                self.stream.pulse.troubled();
                self.stream.tell(&Event::Reconnecting { error: &error, after: pause });
                self.state = State::Pausing(Some(reader), Box::pin(tokio::time::sleep(pause)));
            }
            _ => return self.trouble(error),
        }
        None
    }

    /// A read was cut off: something may have been delivered to nobody.
    fn interrupt(&mut self) {
        self.interrupted = true;
        self.stream.set_cut(true);
    }

    /// The stream or the group is gone, which is a state and not a failure.
    fn repair(&mut self, reader: Box<dyn Reader>, error: Error, sent: Instant) -> Option<Progress> {
        if self.stream.config.on_group_lost == OnGroupLost::Fail && self.was_open {
            return Some(Progress::GroupLost);
        }
        if self.repairs >= REPAIRS {
            if self.stream.config.streams.len() == 1 {
                return Some(Progress::Failed(error));
            }
            self.stream.tell(&Event::StreamFailed { error: &error });
            self.repairs = 0;
            let pause = self.stream.config.backoff.max();
            self.state = State::Pausing(Some(reader), Box::pin(tokio::time::sleep(pause)));
            return None;
        }
        if self.repairs > 0 {
            // What was there for those who asked was not there for those who read: the two have come to different servers,
            // as while not everybody knows of a failover.
            self.stream.link.leave();
        }
        let stream = Arc::clone(&self.stream);
        let repair = async move {
            group::mend(&stream, sent).await?;
            match group::denied(&stream).await {
                Some(denied) => Err(denied),
                None => Ok(()),
            }
        };
        self.state = State::Repairing(reader, Box::pin(repair));
        None
    }

    /// Something stands against reading: pauses and prepares anew, or gives up.
    fn trouble(&mut self, error: Error) -> Option<Progress> {
        if !self.asked.is_empty() {
            self.interrupt();
        }
        self.asked.clear();
        self.in_reply = false;
        self.drained = true;
        let mut pause = self.backoff.next(fastrand::f64());
        match error.recovery() {
            Recovery::Fatal
                if error.kind() == ErrorKind::Authentication && self.was_open && self.refusals < REFUSALS =>
            {
                self.refusals += 1;
            }
            Recovery::Fatal if self.stream.config.streams.len() > 1 => {
                pause = self.stream.config.backoff.max();
                self.stream.tell(&Event::StreamFailed { error: &error });
            }
            Recovery::Fatal => {
                self.state = State::Closed;
                return Some(Progress::Failed(error));
            }
            _ => {}
        }
        count(&self.stream.counters.reconnects, 1);
        self.stream.pulse.troubled();
        self.stream.tell(&Event::Reconnecting { error: &error, after: pause });
        self.state = State::Pausing(None, Box::pin(tokio::time::sleep(pause)));
        None
    }

    fn prepare(&mut self) {
        let interrupted = self.interrupted.then_some(self.before);
        self.state = State::Preparing(Box::pin(prepare(Arc::clone(&self.stream), !self.was_open, interrupted)));
    }
}

/// Makes everything ready for a read: group, socket, and what a read has left behind that was `interrupted`, by what had been
/// delivered before it.
async fn prepare(stream: Arc<Stream>, first: bool, interrupted: Option<EntryId>) -> Result<Prepared, Error> {
    let was_connected = stream.link.is_connected();
    if let Err(error) = group::ensure(&stream).await {
        // Whatever cut off the read has mostly ended the connection for commands as well, and only a command finds that out.
        // It is no second failure: the next attempt is paced by the connection alone.
        if !was_connected || error.recovery() != Recovery::Reconnect {
            return Err(error);
        }
        group::ensure(&stream).await?;
    }
    if first {
        group::before_first_read(&stream).await;
    }
    let name = format!("streamkeeper:{}", stream.owner.consumer);
    let reader = stream.config.client.connector().open_reader(&stream.owner.key, &name).await?;
    let undelivered = match interrupted {
        Some(before) => undelivered(&stream, before).await?,
        None => Vec::new(),
    };
    Ok(Prepared { reader, undelivered })
}

/// Entries of the own pending list that no read has brought: the server delivered them to a connection that was lost. They
/// have greater ids than any that arrived, and their attempt was not started. What had been delivered `before`, and what has
/// more than the one delivery that a read counts, was claimed.
pub(crate) async fn undelivered(stream: &Stream, before: EntryId) -> Result<Vec<Undelivered>, Error> {
    const PAGE: usize = 1_000;
    let mut found = Vec::new();
    let mut from = stream.book().read_to;
    loop {
        let page = XPending {
            key: stream.owner.key.clone(),
            group: stream.owner.group.clone(),
            min_idle: None,
            from,
            after: true,
            to: EntryId::MAX,
            count: PAGE,
            consumer: Some(stream.owner.consumer.clone()),
        };
        let entries = match stream.link.run(&page).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(found),
            Err(error) if group::is_denied(&error) => {
                if stream.set_unseen_cut() {
                    stream.degraded("what an interrupted read left behind is taken up only after the lease", &error);
                }
                return Ok(found);
            }
            Err(error) => return Err(error),
        };
        let Some(last) = entries.last() else { return Ok(found) };
        from = last.id;
        let full = entries.len() == PAGE;
        {
            let book = stream.book();
            let held = |id| !book.ledger.is_new(id) && book.ledger.find(id).is_some();
            found.extend(entries.iter().filter(|entry| !held(entry.id)).map(
                |&PendingEntry { id, deliveries, .. }| Undelivered {
                    id,
                    deliveries,
                    claimed: deliveries > 1 || id <= before || book.uncounted.contains_key(&id),
                },
            ));
        }
        if !full {
            return Ok(found);
        }
    }
}
