//! [`MemoryReader`]: blocking reads of the model, behind the trait [`Reader`].
//!
//! A read is sent as the same `XREADGROUP` or `XREAD` that goes over a real socket, and its reply is taken apart entry
//! by entry, so that a reply can be cut in the middle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use stream_core::{Entry, EntryId};
use stream_redis::{Error, ErrorKind, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Rest, Value};
use tokio::time::Instant;

use super::link::{LinkId, Ticket};
use super::state::Shared;
use super::wait::{Alarm, closed, poll_answer};

pub(super) struct MemoryReader {
    shared: Arc<Shared>,
    link: LinkId,
    unsent: VecDeque<ReadRequest>,
    sent: VecDeque<Sent>,
    /// A reply that is handed over piece by piece.
    arriving: Option<Arriving>,
    /// When the oldest read must have been answered.
    deadline: Option<Instant>,
    alarm: Alarm,
    /// Set by the first error that makes the reader useless.
    failed: Option<ErrorKind>,
}

/// A read that the server has.
struct Sent {
    ticket: Ticket,
    read: ReadRequest,
}

struct Arriving {
    entries: VecDeque<Value>,
    total: usize,
    /// The connection breaks after the entries.
    torn: bool,
}

impl MemoryReader {
    pub(super) fn new(shared: Arc<Shared>, link: LinkId) -> Self {
        let (unsent, sent) = Default::default();
        Self { shared, link, unsent, sent, arriving: None, deadline: None, alarm: Alarm::default(), failed: None }
    }

    /// Writes the reads that were submitted; false when there was nothing to write.
    fn write(&mut self) -> Result<bool, Error> {
        if self.unsent.is_empty() {
            return Ok(false);
        }
        let requests: Vec<Vec<Bytes>> = self.unsent.iter().map(request).collect();
        self.shared.observe(&requests);
        let tickets = self.shared.with(|state| state.submit(self.link, requests)).ok_or_else(closed)?;
        self.sent.extend(tickets.into_iter().zip(self.unsent.drain(..)).map(|(ticket, read)| Sent { ticket, read }));
        Ok(true)
    }

    /// The time by which the oldest read must be answered, from now on.
    fn deadline(&mut self) -> Option<Instant> {
        if self.deadline.is_none()
            && let Some(timeout) = self.shared.with(|state| state.response_timeout)
        {
            let block = self.sent.front().and_then(|sent| sent.read.block).unwrap_or_default();
            self.deadline = Some(Instant::now() + block + timeout);
        }
        self.deadline
    }

    fn poll(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Result<ReadProgress, Error>> {
        if self.write()? {
            // The reply takes a turn of the event loop at least.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.arriving.is_none() {
            // Without a read in flight there is nothing to wait for but the end of the connection.
            let ticket = self.sent.front().map_or(Ticket::NONE, |sent| sent.ticket);
            let deadline = self.deadline();
            let answer = match poll_answer(&self.shared, (self.link, ticket), deadline, &mut self.alarm, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer?,
            };
            self.deadline = None;
            let reply = match answer.reply {
                Err(error) if answer.torn.is_none() => {
                    let sent = self.sent.pop_front();
                    let command = sent.as_ref().map_or("XREADGROUP", |sent| command(&sent.read));
                    let key = sent.map(|sent| sent.read.key);
                    return Poll::Ready(Err(Error::from_server(error).at(command, key.as_ref())));
                }
                Err(_) => return Poll::Ready(Err(closed())),
                Ok(reply) => reply,
            };
            let mut entries = entries_of(reply);
            let total = entries.len();
            if let Some(arrived) = answer.torn {
                entries.truncate(arrived);
            }
            self.arriving = Some(Arriving { entries, total, torn: answer.torn.is_some() });
        }
        Poll::Ready(self.hand_over(batch))
    }

    /// Hands over the next piece of the reply that is arriving.
    fn hand_over(&mut self, batch: &mut ReadBatch) -> Result<ReadProgress, Error> {
        let chunk = self.shared.with(|state| state.chunk).unwrap_or(usize::MAX);
        let Some(arriving) = &mut self.arriving else { return Err(closed()) };
        let piece = arriving.entries.len().min(chunk);
        for value in arriving.entries.drain(..piece) {
            decode(value, batch)?;
        }
        if arriving.torn && piece == 0 {
            return Err(closed());
        }
        if arriving.torn || !arriving.entries.is_empty() {
            return Ok(ReadProgress::Partial);
        }
        let total = arriving.total;
        self.arriving = None;
        self.sent.pop_front();
        Ok(ReadProgress::Complete { total })
    }
}

impl MemoryReader {
    /// Notes that the reader is of no more use, and names the oldest read in the error.
    fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.kind());
        self.shared.with(|state| state.hang_up(self.link));
        match self.sent.front().map(|sent| &sent.read).or(self.unsent.front()) {
            Some(read) => error.at(command(read), Some(&read.key)),
            None => error,
        }
    }
}

impl Reader for MemoryReader {
    fn submit(&mut self, read: &ReadRequest) {
        self.unsent.push_back(read.clone());
    }

    fn in_flight(&self) -> usize {
        self.unsent.len() + self.sent.len()
    }

    fn rest(&self) -> Option<Rest> {
        let arriving = self.arriving.as_ref().filter(|arriving| !arriving.torn && self.in_flight() == 1)?;
        let goes_on = self.sent.front().is_some_and(|sent| matches!(sent.read.from, ReadFrom::After(_)));
        let Value::Array(last) = arriving.entries.back().filter(|_| goes_on)? else { return None };
        let last = last.first()?.as_bytes()?;
        let bytes = arriving.entries.iter().map(size).sum();
        Some(Rest { last: EntryId::parse(last).ok()?, entries: arriving.entries.len(), bytes, total: arriving.total })
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Result<ReadProgress, Error>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(Error::new(kind, "this connection failed before: open a new one")));
        }
        match self.poll(cx, batch) {
            Poll::Ready(Err(error)) if error.server().is_none() => Poll::Ready(Err(self.fail(error))),
            progress => progress,
        }
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        self.shared.with(|state| state.close(self.link));
    }
}

fn command(read: &ReadRequest) -> &'static str {
    match read.from {
        ReadFrom::After(_) => "XREAD",
        _ => "XREADGROUP",
    }
}

/// The read as it goes over the wire.
fn request(read: &ReadRequest) -> Vec<Bytes> {
    let mut args = vec![Bytes::from_static(command(read).as_bytes())];
    let mut push = |arg: &[u8]| args.push(Bytes::copy_from_slice(arg));
    if let ReadFrom::Group { group, consumer, .. } = &read.from {
        push(b"GROUP");
        push(group.as_bytes());
        push(consumer.as_bytes());
    }
    push(b"COUNT");
    push(read.count.max(1).to_string().as_bytes());
    if let Some(block) = read.block {
        push(b"BLOCK");
        // Zero would wait for ever.
        push(block.as_nanos().div_ceil(1_000_000).max(1).to_string().as_bytes());
    }
    if matches!(read.from, ReadFrom::Group { no_ack: true, .. }) {
        push(b"NOACK");
    }
    push(b"STREAMS");
    push(read.key.as_bytes());
    match &read.from {
        ReadFrom::After(id) => push(id.to_string().as_bytes()),
        _ => push(b">"),
    }
    args
}

/// The entries of a reply about one stream.
fn entries_of(reply: Value) -> VecDeque<Value> {
    match reply {
        Value::Map(streams) => match streams.into_iter().next() {
            Some((_, Value::Array(entries))) => entries.into(),
            _ => VecDeque::new(),
        },
        _ => VecDeque::new(),
    }
}

/// Bytes of a reply, about.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(parts) => parts.iter().map(size).sum(),
        other => other.as_bytes().map_or(0, <[u8]>::len),
    }
}

/// Adds one entry to the batch.
fn decode(value: Value, batch: &mut ReadBatch) -> Result<(), Error> {
    let malformed = || Error::new(ErrorKind::Protocol, "an entry of the in-memory server is malformed");
    let Value::Array(parts) = value else { return Err(malformed()) };
    let [id, fields] = parts.try_into().map_err(|_| malformed())?;
    let id = id.as_bytes().and_then(|id| EntryId::parse(id).ok()).ok_or_else(malformed)?;
    let Value::Array(fields) = fields else {
        batch.deleted.push(id);
        return Ok(());
    };
    let (pairs, _) = fields.as_chunks::<2>();
    let fields = pairs.iter().map(|[name, value]| (name.as_bytes().unwrap_or(b""), value.as_bytes().unwrap_or(b"")));
    batch.entries.push(Entry::new(id, fields).map_err(|error| malformed().with_source(error))?);
    Ok(())
}
