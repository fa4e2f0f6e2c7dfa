//! [`Reading`]: the reading socket of one stream as a state machine: prepared, open, comparing, pausing.
//!
//! A read begins where the one before ended, so it is asked for as soon as the last id of that is known: with a backlog
//! before its entries are decoded, if there is room for both, and else when it is complete. Between two reads, at most once
//! in a BLOCK period, the stream is compared with what was read of it, and none is under way then. A missing stream is no
//! error here: its reads are empty.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use stream_core::{Backoff, EntryId, ReadAhead, ReadLimits, Tail, TailBreak};
use stream_redis::{Error, ErrorKind, NodeDoubt, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Recovery};
use tokio::time::Sleep;

use super::config::OnGap;
use super::opening::{Answer, Prepared, facts, prepare};
use super::stream::Stream;
use crate::observe::{Event, count};
use crate::pace::{now, pause_after_empty};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// So often the server may refuse the credentials that it had taken before: they may be about to be rotated.
const REFUSALS: u32 = 3;
/// So long reading waits for a comparison; then it goes on without.
const LOOK: Duration = Duration::from_secs(1);

/// What came of polling.
pub(crate) enum Progress {
    /// Connected, and the cursor stands at this id.
    Opened(EntryId),
    /// Entries may be in the batch, and there may be room for another read.
    Entries,
    /// Reading goes on after this id, which need not be greater than before.
    Moved(EntryId),
    /// It cannot go on.
    Failed(Error),
    /// Entries are missing, and that is to be the end.
    Missing,
}

enum State {
    Preparing(BoxFuture<Result<Prepared, Error>>),
    Open(Box<dyn Reader>),
    Comparing(Box<dyn Reader>, BoxFuture<Result<Answer, Error>>),
    Pausing(Option<Box<dyn Reader>>, Pin<Box<Sleep>>),
    Closed,
}

pub(crate) struct Reading {
    stream: Arc<Stream>,
    state: State,
    /// `None` until the start is resolved.
    tail: Option<Tail>,
    ahead: ReadAhead,
    backoff: Backoff,
    doubt: NodeDoubt,
    /// The read under way: how many it asks for, and since when.
    asked: Option<(usize, Instant)>,
    /// The read after it, if that was asked for already.
    asked_next: Option<(usize, Instant)>,
    /// Whether part of the present reply has arrived.
    in_reply: bool,
    /// Whether the last reply left nothing behind on the server.
    drained: bool,
    compared: Option<Instant>,
    /// Whether a read has waited for its whole time since the last comparison, or something speaks for one.
    compare_now: bool,
    /// Whether the next comparison ends with the cursor at the end.
    to_end: bool,
    may_compare: bool,
    early_empties: u32,
    refusals: u32,
    was_open: bool,
}

impl Reading {
    pub(crate) fn new(stream: &Arc<Stream>) -> Self {
        let config = &stream.config;
        // No other process waits for these entries, so as many are read as may be held.
        let limits = ReadLimits {
            concurrency: config.concurrency.div_ceil(config.streams.len()).saturating_add(config.prefetch),
            prefetch: 0,
            prefetch_bytes: (config.prefetch_bytes / config.streams.len()).max(1),
        };
        Self {
            stream: Arc::clone(stream),
            state: State::Preparing(Box::pin(prepare(Arc::clone(stream), true, true))),
            tail: None,
            ahead: ReadAhead::new(limits),
            backoff: Backoff::new(config.backoff),
            doubt: NodeDoubt::default(),
            asked: None,
            asked_next: None,
            in_reply: false,
            drained: true,
            compared: None,
            compare_now: false,
            to_end: false,
            may_compare: true,
            early_empties: 0,
            refusals: 0,
            was_open: false,
        }
    }

    /// How large entries are; steers how many are asked for.
    pub(crate) fn received(&mut self, entries: usize, bytes: usize) {
        self.ahead.received(entries, bytes);
    }

    /// Whether the rest of a reply is still to come while there is a backlog, and room for it.
    pub(crate) fn is_behind(&self, held: usize, held_bytes: usize) -> bool {
        self.in_reply && !self.drained && self.ahead.want(held, held_bytes) > 0
    }

    /// While there is a backlog, asks for the next entries as soon as there is room for a read that is worth it. Returns
    /// whether it did; the read is written when this is polled.
    pub(crate) fn ask_ahead(&mut self, held: usize, held_bytes: usize) -> bool {
        let worth_it = || self.ahead.want(held, held_bytes) >= self.ahead.limits().concurrency.div_ceil(4);
        if self.drained || self.asked.is_some() || !worth_it() {
            return false;
        }
        self.top_up(held, held_bytes, false);
        self.asked.is_some()
    }

    /// Asks for as much as there is room for, unless it is time to compare. `idle` says that nothing waits to be started.
    pub(crate) fn top_up(&mut self, held: usize, held_bytes: usize, idle: bool) {
        if self.asked.is_some() || !matches!(self.state, State::Open(_)) {
            return;
        }
        let Some(tail) = &mut self.tail else { return };
        let limit = self.ahead.limits().concurrency;
        let want = self.ahead.want(held, held_bytes);
        // Not for every entry that ends: a read is to be worth its round trip.
        if want == 0 || (want < limit.div_ceil(4) && !idle) {
            if !self.drained {
                tail.was_absent();
            }
            return;
        }
        let want = want.min(self.ahead.most_in_turn());
        let known = tail.is_known();
        let after = tail.cursor();
        let due = self.is_due(known);
        let State::Open(mut reader) = std::mem::replace(&mut self.state, State::Closed) else { return };
        if due {
            let stream = Arc::clone(&self.stream);
            let facts = async move { stream.link.within(LOOK, facts(&stream, false)).await };
            self.state = State::Comparing(reader, Box::pin(facts));
            return;
        }
        self.compare_now = false;
        self.asked = Some(ask(&self.stream, &mut *reader, after, want));
        self.state = State::Open(reader);
    }

    /// Whether it is time to compare.
    fn is_due(&self, known: bool) -> bool {
        let waited = |at| now().saturating_duration_since(at) >= self.stream.config.block;
        self.may_compare && known && (self.compare_now || self.compared.is_none_or(waited))
    }

    /// Asks for what comes after a reply that is here and was not handed out yet, if that is as long as was asked for and
    /// there is room for both beside the `held`. So the server works while the reply is decoded and handled.
    fn ask_behind(&mut self, held: (usize, usize), batch: &ReadBatch) {
        let State::Open(reader) = &self.state else { return };
        let (Some(rest), Some((wanted, _)), None) = (reader.rest(), self.asked, self.asked_next) else { return };
        if rest.total < wanted || self.is_due(true) {
            return;
        }
        let handed_out: usize = batch.entries.iter().map(stream_core::Entry::size).sum();
        let held = (held.0 + batch.entries.len() + rest.entries, held.1 + handed_out + rest.bytes);
        let limit = self.ahead.limits().concurrency;
        let want = self.ahead.want(held.0, held.1);
        let most = self.ahead.most_in_turn();
        if want >= limit.div_ceil(4)
            && let State::Open(reader) = &mut self.state
        {
            self.asked_next = Some(ask(&self.stream, &mut **reader, rest.last, want.min(most)));
            // Or handlers would run before it is written.
            self.drained = false;
        }
    }

    /// Reads no more.
    pub(crate) fn close(&mut self) {
        self.state = State::Closed;
    }

    /// `held` is what the worker holds, in entries and bytes.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch, held: (usize, usize)) -> Poll<Progress> {
        loop {
            match &mut self.state {
                State::Closed => return Poll::Pending,
                State::Preparing(future) => match ready!(future.as_mut().poll(cx)) {
                    Ok(Prepared { reader, answer, start }) => {
                        self.state = State::Open(reader);
                        self.stream.pulse.opened();
                        return Poll::Ready(self.opened(answer, start));
                    }
                    Err(error) => {
                        if let Some(end) = self.trouble(error) {
                            return Poll::Ready(end);
                        }
                    }
                },
                State::Comparing(_, future) => {
                    let answer = ready!(future.as_mut().poll(cx));
                    if let State::Comparing(reader, _) = std::mem::replace(&mut self.state, State::Closed) {
                        self.state = State::Open(reader);
                    }
                    (self.compared, self.compare_now) = (Some(now()), false);
                    let progress = match answer {
                        Ok(answer) => self.answered(answer),
                        // The comparison is made good for later; a server in trouble says so to the read as well.
                        Err(_) => None,
                    };
                    return Poll::Ready(progress.unwrap_or(Progress::Entries));
                }
                State::Pausing(_, sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    let State::Pausing(reader, _) = std::mem::replace(&mut self.state, State::Closed) else { continue };
                    if let Some(reader) = reader {
                        // Nothing is in flight here, so the worker has to be asked for the next read.
                        self.state = State::Open(reader);
                        return Poll::Ready(Progress::Entries);
                    }
                    let preparation = prepare(Arc::clone(&self.stream), self.tail.is_none(), self.may_compare);
                    self.state = State::Preparing(Box::pin(preparation));
                }
                State::Open(reader) => {
                    if self.asked.is_none() {
                        return Poll::Pending;
                    }
                    let before = batch.entries.len();
                    let progress = ready!(reader.poll_next(cx, batch));
                    let missing = self.took(&batch.entries[before..]);
                    let end = match progress {
                        Ok(ReadProgress::Complete { total }) => {
                            self.completed(total);
                            None
                        }
                        Ok(_) => None,
                        Err(error) => self.read_failed(error),
                    };
                    if let Some(end) = end.or(missing) {
                        return Poll::Ready(end);
                    }
                    self.ask_behind(held, batch);
                    if batch.entries.len() > before || self.asked.is_none() {
                        return Poll::Ready(Progress::Entries);
                    }
                }
            }
        }
    }

    fn opened(&mut self, answer: Answer, start: Option<EntryId>) -> Progress {
        self.was_open = true;
        self.compared = Some(now());
        if self.tail.is_some() {
            return self.answered(answer).unwrap_or(Progress::Entries);
        }
        let end = match &answer {
            Answer::Facts(Some(facts)) => facts.last_generated,
            Answer::Facts(None) => EntryId::ZERO,
            Answer::Denied(_, last) => last.unwrap_or(EntryId::ZERO),
        };
        let cursor = start.unwrap_or(end);
        // The first comparison only learns, unless a former run was there: any other start may lie ahead on purpose.
        self.tail = Some(if self.stream.resume.is_some() { Tail::resumed(cursor) } else { Tail::new(cursor) });
        match self.answered(answer) {
            Some(Progress::Moved(cursor)) => Progress::Opened(cursor),
            progress => progress.unwrap_or(Progress::Opened(cursor)),
        }
    }

    /// Compares the stream with what was read of it.
    fn answered(&mut self, answer: Answer) -> Option<Progress> {
        let facts = match answer {
            Answer::Facts(facts) => facts,
            Answer::Denied(error, _) => {
                if std::mem::replace(&mut self.may_compare, false) {
                    let what = "entries that are gone before they are read, and streams made anew, go unnoticed";
                    self.stream.tell(&Event::Degraded { what, error: &error });
                }
                return None;
            }
        };
        let end = facts.map_or(EntryId::ZERO, |facts| facts.last_generated);
        let tail = self.tail.as_mut()?;
        let found = tail.compare(facts.as_ref());
        let policy = self.stream.config.on_gap;
        if std::mem::take(&mut self.to_end) && found.is_none() {
            tail.restart(end, facts.as_ref());
            return Some(Progress::Moved(end));
        }
        let from = match (found?, policy) {
            (TailBreak::Gap { .. }, OnGap::Beginning) => None,
            (TailBreak::Reset { read_already: true, .. }, _) => Some(tail.cursor()),
            (_, OnGap::End) => Some(end),
            _ => Some(EntryId::ZERO),
        };
        if let Some(from) = from {
            tail.restart(from, facts.as_ref());
        }
        self.tell(found?, from.unwrap_or_default());
        if policy == OnGap::Fail {
            self.state = State::Closed;
            return Some(Progress::Missing);
        }
        from.map(Progress::Moved)
    }

    /// The cursor goes along with what was read.
    fn took(&mut self, entries: &[stream_core::Entry]) -> Option<Progress> {
        let (first, last) = (entries.first()?.id(), entries.last()?.id());
        let more = std::mem::replace(&mut self.in_reply, true);
        let found = self.tail.as_mut()?.read(first, last, entries.len() as u64, more)?;
        self.tell(found, EntryId::ZERO);
        match self.stream.config.on_gap {
            OnGap::Fail => {
                self.state = State::Closed;
                Some(Progress::Missing)
            }
            policy => {
                self.to_end |= policy == OnGap::End;
                self.compare_now |= self.to_end;
                None
            }
        }
    }

    fn tell(&self, found: TailBreak, from: EntryId) {
        let counters = &self.stream.counters;
        match found {
            TailBreak::Gap { after, before, missed } => {
                count(&counters.gaps, 1);
                count(&counters.missed, missed.unwrap_or(0));
                self.stream.tell(&Event::Gap { after, before, missed });
            }
            TailBreak::Reset { last, now, .. } => {
                count(&counters.resets, 1);
                self.stream.tell(&Event::StreamReset { last, now, from });
            }
            _ => {}
        }
    }

    /// A reply is complete.
    fn completed(&mut self, total: usize) {
        count(&self.stream.counters.reads, 1);
        self.stream.pulse.read(now());
        self.in_reply = false;
        self.refusals = 0;
        self.backoff.reset();
        self.doubt.reset();
        self.ahead.completed();
        let Some((wanted, since)) = std::mem::replace(&mut self.asked, self.asked_next.take()) else { return };
        self.drained = total < wanted;
        if total > 0 {
            self.early_empties = 0;
            return;
        }
        let waited = now().saturating_duration_since(since);
        match pause_after_empty(waited, self.stream.config.block, self.early_empties) {
            None => (self.early_empties, self.compare_now) = (0, true),
            Some(pause) => {
                self.early_empties += 1;
                self.pause(pause);
            }
        }
    }

    fn read_failed(&mut self, error: Error) -> Option<Progress> {
        if error.server().is_none() {
            // The connection is of no more use. What was not read is read again from the cursor on.
            if self.in_reply {
                self.ahead.interrupted();
            }
            return self.trouble(error);
        }
        let recovery = self.doubt.recovery(&error);
        match recovery {
            Recovery::Satisfied | Recovery::Missing | Recovery::Retry => {
                (self.asked, self.in_reply) = (self.asked_next.take(), false);
                let pause = self.backoff.next(fastrand::f64());
                if recovery == Recovery::Retry {
                    self.stream.pulse.troubled();
                    self.stream.tell(&Event::Reconnecting { error: &error, after: pause });
                }
                self.pause(pause);
                None
            }
            _ => self.trouble(error),
        }
    }

    /// Keeps the socket, and reads again later.
    fn pause(&mut self, pause: Duration) {
        if let State::Open(reader) = std::mem::replace(&mut self.state, State::Closed) {
            self.state = State::Pausing(Some(reader), Box::pin(tokio::time::sleep(pause)));
        }
    }

    /// Something stands against reading: pauses and prepares anew, or gives up.
    fn trouble(&mut self, error: Error) -> Option<Progress> {
        (self.asked, self.asked_next, self.in_reply) = (None, None, false);
        if let Some(tail) = &mut self.tail {
            tail.was_absent();
        }
        let mut pause = self.backoff.next(fastrand::f64());
        if error.recovery() == Recovery::Fatal {
            let rotated = error.kind() == ErrorKind::Authentication && self.was_open && self.refusals < REFUSALS;
            if rotated {
                self.refusals += 1;
            } else if self.stream.config.streams.len() > 1 {
                pause = self.stream.config.backoff.max();
                self.stream.tell(&Event::StreamFailed { error: &error });
            } else {
                self.state = State::Closed;
                return Some(Progress::Failed(error));
            }
        }
        count(&self.stream.counters.reconnects, 1);
        self.stream.pulse.troubled();
        self.stream.tell(&Event::Reconnecting { error: &error, after: pause });
        self.state = State::Pausing(None, Box::pin(tokio::time::sleep(pause)));
        None
    }
}

/// Submits a read of `want` entries, and says so.
fn ask(stream: &Stream, reader: &mut dyn Reader, after: EntryId, want: usize) -> (usize, Instant) {
    let (key, from, block) = (stream.source.stream.clone(), ReadFrom::After(after), Some(stream.config.block));
    reader.submit(&ReadRequest { key, from, count: want, block });
    (want, now())
}
