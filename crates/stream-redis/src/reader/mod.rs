//! The reading socket: sends blocking reads over a stream of its own and hands out entries while they arrive.
//!
//! What must stay true: all state is in the reader, so a poll that is dropped loses nothing; every entry whose last byte
//! has arrived is handed out, also when the reply then breaks off; memory grows with the bytes that have arrived and
//! never because a length says so; a peer that falls silent is noticed at the deadline.

mod buffer;
mod decoder;
mod encode;
mod head;
mod quick;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use stream_core::StreamKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

use self::buffer::{Buffer, Decoded};
use crate::{Error, ErrorKind, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Rest};

/// One poll reads about this many bytes at most before it returns, so that others get their turn.
const POLL_BYTES: usize = 256 << 10;

/// A [`Reader`] over a stream that is open, greeted and authenticated, with nothing in flight.
///
/// [`Client`](crate::Client) makes its readers by itself. This is for a [`Connector`](crate::Connector) over a transport
/// of one's own, such as a tunnel.
pub struct SocketReader<S> {
    stream: S,
    /// How much longer than `BLOCK` an answer may take.
    margin: Duration,
    /// Requests that are not written yet, from `written` on.
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    in_flight: VecDeque<InFlight>,
    buffer: Buffer,
    /// What is left of the reply that is being handed out, once that was looked at.
    rest: Option<Rest>,
    /// Since when the oldest read is waited for; `None` before its first poll.
    waiting_since: Option<Instant>,
    /// When bytes of an unfinished reply came last.
    progress: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Set by the first error that makes the reader useless.
    failed: Option<ErrorKind>,
}

struct InFlight {
    command: &'static str,
    key: StreamKey,
    block: Duration,
    /// Whether the next read may depend on the last id of this one.
    goes_on: bool,
}

impl<S> fmt::Debug for SocketReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight.len();
        f.debug_struct("SocketReader")
            .field("in_flight", &in_flight)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> SocketReader<S> {
    /// A reader over `stream`. A read that is not answered `margin` after its `BLOCK` ended fails the reader.
    pub fn new(stream: S, margin: Duration) -> Self {
        Self {
            stream,
            margin,
            out: Vec::new(),
            written: 0,
            unflushed: false,
            in_flight: VecDeque::new(),
            buffer: Buffer::new(),
            rest: None,
            waiting_since: None,
            progress: None,
            alarm: None,
            failed: None,
        }
    }

    /// Writes what is queued, as far as the stream takes it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
            self.unflushed = true;
        }
        self.out.clear();
        self.written = 0;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the oldest read.
    fn finish(&mut self) -> Result<InFlight, Error> {
        self.progress = None;
        self.waiting_since = None;
        match self.in_flight.pop_front() {
            Some(read) => Ok(read),
            None => Err(self.fail(Error::new(ErrorKind::Protocol, "the server sent a reply that nobody asked for"))),
        }
    }

    /// Names the oldest read in an error that makes the reader useless.
    fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.kind());
        match self.in_flight.front() {
            Some(read) => error.at(read.command, Some(&read.key)),
            None => error,
        }
    }

    fn fail_io(&mut self, error: io::Error, what: &'static str) -> Error {
        self.fail(Error::new(ErrorKind::Io, what).with_source(error))
    }

    /// Waits for the deadline of the oldest read. The timer is set anew only when it went off or is set too late, not for
    /// every read: reads that are answered quickly never touch it.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(read) = self.in_flight.front() else { return Poll::Pending };
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        let mut deadline = since + read.block + self.margin;
        // A long reply on a slow line is not a dead peer: while bytes come, each may take the margin.
        if let Some(progress) = self.progress {
            deadline = deadline.max(progress + self.margin);
        }
        if now >= deadline {
            let silence = now - since;
            let message = "no answer before the deadline: the connection is dead or the server is stalled";
            return Poll::Ready(self.fail(Error::new(ErrorKind::Timeout, message).after(1, silence)));
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        while alarm.as_mut().poll(cx).is_ready() {
            alarm.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Reader for SocketReader<S> {
    fn submit(&mut self, read: &ReadRequest) {
        encode::encode(read, &mut self.out);
        let block = read.block.unwrap_or_default();
        let goes_on = matches!(read.from, ReadFrom::After(_));
        self.in_flight.push_back(InFlight { command: encode::command(read), key: read.key.clone(), block, goes_on });
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn rest(&self) -> Option<Rest> {
        self.rest
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Result<ReadProgress, Error>> {
        if let Some(kind) = self.failed {
            let error = Error::new(kind, "this connection failed before: open a new one");
            return Poll::Ready(Err(self.fail(error)));
        }
        if !self.in_flight.is_empty() && self.waiting_since.is_none() {
            self.waiting_since = Some(Instant::now());
        }
        // Told once, and only to those who could use it: whoever has submitted the next read already cannot.
        let told = self.rest.take().is_some();
        if let Poll::Ready(Err(error)) = self.poll_write(cx)
            // What is here is handed out first; writing fails again the next time.
            && !told
        {
            return Poll::Ready(Err(self.fail_io(error, "writing to the server failed")));
        }
        let before = batch.entries.len() + batch.deleted.len();
        let mut bytes = 0;
        let look_ahead = !told && self.in_flight.len() == 1 && self.in_flight[0].goes_on;
        loop {
            match self.buffer.decode(batch, look_ahead) {
                Ok(Decoded::NeedMore) => {}
                Ok(Decoded::Rest(rest)) => {
                    self.rest = Some(rest);
                    return Poll::Ready(Ok(ReadProgress::Partial));
                }
                Ok(Decoded::Complete { total }) => {
                    return Poll::Ready(self.finish().map(|_| ReadProgress::Complete { total }));
                }
                Ok(Decoded::Error(error)) => {
                    let name = |read: InFlight| Err(Error::from_server(error).at(read.command, Some(&read.key)));
                    return Poll::Ready(self.finish().and_then(name));
                }
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
            let found = batch.entries.len() + batch.deleted.len() > before;
            if found && bytes >= POLL_BYTES {
                break;
            }
            match self.buffer.poll_fill(&mut self.stream, cx) {
                Poll::Ready(Ok(0)) => {
                    let message = "the server closed the connection";
                    return Poll::Ready(Err(self.fail(Error::new(ErrorKind::Io, message))));
                }
                Poll::Ready(Ok(more)) => bytes += more,
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(self.fail_io(error, "reading from the server failed")));
                }
                Poll::Pending => break,
            }
        }
        if bytes > 0 && self.buffer.in_reply() {
            self.progress = Some(Instant::now());
        }
        if batch.entries.len() + batch.deleted.len() > before {
            return Poll::Ready(Ok(ReadProgress::Partial));
        }
        self.poll_deadline(cx).map(Err)
    }
}
