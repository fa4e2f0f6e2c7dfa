//! [`Socket`]: commands that append over a stream of our own, and the ids that come back.
//!
//! What must stay true: writing and reading do not wait for each other, so neither side can stand still because of the
//! other; memory grows with what was put out and what has arrived, never because a length says so; a peer that falls
//! silent while a reply is owed is noticed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stream_core::EntryId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, timeout};

use super::Reply;
use crate::greeting::{self, reply};
use crate::options::ConnectOptions;
use crate::{Error, ErrorKind, Request, ServerError, Value};

/// Room for replies that have arrived: some thousand ids.
const ROOM: usize = 64 << 10;
/// No reply to an append is longer.
const LARGEST_REPLY: usize = 1 << 20;
/// Memory for commands that is kept for the next ones.
const KEPT: usize = 2 << 20;

pub(super) struct Socket<S> {
    stream: S,
    options: ConnectOptions,
    /// Commands that are not written yet, from `written` on.
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// Commands without a reply.
    owed: usize,
    /// What has arrived, from `read` to `end`.
    input: Vec<u8>,
    read: usize,
    end: usize,
    /// When the peer last took or gave bytes, or the first command without a reply was put out.
    progress: Instant,
    alarm: Option<Pin<Box<Sleep>>>,
    /// Why the connection failed, while what had come before is looked at.
    failed: Option<Error>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket<S> {
    pub(super) fn new(stream: S, options: &ConnectOptions) -> Self {
        Self {
            stream,
            options: options.clone(),
            out: Vec::new(),
            written: 0,
            unflushed: false,
            owed: 0,
            input: Vec::new(),
            read: 0,
            end: 0,
            progress: Instant::now(),
            alarm: None,
            failed: None,
        }
    }

    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(super) fn sent(&mut self, commands: usize) {
        if self.owed == 0 {
            self.progress = Instant::now();
        }
        self.owed += commands;
    }

    /// Asks something else while no reply is owed.
    pub(super) async fn ask(&mut self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let limit = self.options.response_timeout();
        let asked = timeout(limit, greeting::ask(&mut self.stream, &self.options, requests)).await;
        let replies = asked.map_err(|_| no_answer(limit))??;
        let split = |reply| if let Value::Error(error) = reply { Err(error) } else { Ok(reply) };
        Ok(replies.into_iter().map(split).collect())
    }

    pub(super) fn poll_replies(&mut self, cx: &mut Context<'_>, replies: &mut Vec<Reply>) -> Poll<Result<(), Error>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let before = replies.len();
        let written = self.poll_write(cx);
        // Also when writing failed: what the server has said before it went is worth reading.
        let read = self.poll_read(cx, replies);
        self.failed = match (written, read) {
            (Poll::Ready(Err(cause)), _) => Some(gone(cause)),
            (_, Poll::Ready(Err(error))) => Some(error),
            _ => None,
        };
        if replies.len() > before {
            return Poll::Ready(Ok(()));
        }
        match self.failed.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => self.poll_silence(cx),
        }
    }

    /// Writes what was put out, as far as the stream takes it.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..])? {
                Poll::Pending => {
                    self.forget_written();
                    return Poll::Pending;
                }
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(more) => self.written += more,
            }
            self.unflushed = true;
            self.progress = Instant::now();
        }
        self.out.clear();
        self.written = 0;
        if self.out.capacity() > KEPT {
            self.out = Vec::new();
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx)? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.unflushed = false,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives back the memory of what was written, also when there is always more to write.
    fn forget_written(&mut self) {
        if self.written >= self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    /// Whether the peer has gone while nothing was asked of it, as servers with an idle limit do.
    pub(super) fn is_over(&mut self) -> bool {
        let mut none = Vec::new();
        self.owed == 0 && self.poll_read(&mut Context::from_waker(Waker::noop()), &mut none).is_ready()
    }

    /// Reads until the stream has no more for now, or as much as fits was looked at.
    fn poll_read(&mut self, cx: &mut Context<'_>, replies: &mut Vec<Reply>) -> Poll<Result<(), Error>> {
        loop {
            self.make_room()?;
            let mut buffer = ReadBuf::new(&mut self.input[self.end..]);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(cause)) => return Poll::Ready(Err(gone(cause))),
                Poll::Ready(Ok(())) => {}
            }
            let (more, filled) = (buffer.filled().len(), buffer.remaining() == 0);
            if more == 0 {
                return Poll::Ready(Err(Error::new(ErrorKind::Io, "the server closed the connection")));
            }
            self.end += more;
            self.progress = Instant::now();
            self.take(replies)?;
            if (self.owed == 0 && !replies.is_empty()) || (filled && !replies.is_empty()) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn make_room(&mut self) -> Result<(), Error> {
        if self.read == self.end {
            (self.read, self.end) = (0, 0);
        }
        if self.input.len() - self.end < ROOM / 4 {
            self.input.copy_within(self.read..self.end, 0);
            (self.read, self.end) = (0, self.end - self.read);
            if self.end > LARGEST_REPLY {
                let message = format!("a reply to an append is longer than {LARGEST_REPLY} bytes");
                return Err(Error::new(ErrorKind::Protocol, message));
            }
            self.input.resize((self.end * 2).max(ROOM), 0);
        }
        Ok(())
    }

    /// Takes off the replies that have arrived.
    fn take(&mut self, replies: &mut Vec<Reply>) -> Result<(), Error> {
        while self.read < self.end {
            let arrived = &self.input[self.read..self.end];
            let (reply, used) = match quick(arrived) {
                Some(found) => found,
                None => match reply::parse(arrived) {
                    Ok(None) => break,
                    Err(_) => {
                        return Err(Error::new(ErrorKind::Protocol, "the server sent something that is not RESP"));
                    }
                    Ok(Some((_, used))) if matches!(arrived[0], b'>' | b'|') => {
                        // Nobody has asked for it, or it only describes the reply that follows.
                        self.read += used;
                        continue;
                    }
                    Ok(Some((Value::Error(error), used))) => (Reply::Error(error), used),
                    Ok(Some((value, used))) => (Reply::from(Ok(value)), used),
                },
            };
            self.read += used;
            let Some(owed) = self.owed.checked_sub(1) else {
                return Err(Error::new(ErrorKind::Protocol, "the server sent a reply that nobody asked for"));
            };
            self.owed = owed;
            replies.push(reply);
        }
        Ok(())
    }

    /// Waits until the peer has been silent for too long while it owes a reply. The timer is set anew only when it went off.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.owed == 0 {
            return Poll::Pending;
        }
        let limit = self.options.response_timeout();
        let deadline = self.progress + limit;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        while alarm.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(Err(no_answer(limit)));
            }
            alarm.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// An id as it nearly always comes: a bulk string of at most 99 bytes that is there as a whole.
#[inline]
fn quick(arrived: &[u8]) -> Option<(Reply, usize)> {
    let (begin, length) = match arrived {
        [b'$', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (5, usize::from(tens - b'0') * 10 + usize::from(ones - b'0'))
        }
        [b'$', ones @ b'0'..=b'9', b'\r', b'\n', ..] => (4, usize::from(ones - b'0')),
        _ => return None,
    };
    let end = begin + length;
    if arrived.get(end..end + 2)? != b"\r\n" {
        return None;
    }
    let id = EntryId::parse(&arrived[begin..end]).ok()?;
    Some((Reply::Id(id), end + 2))
}

fn gone(cause: io::Error) -> Error {
    Error::new(ErrorKind::Io, "the connection is gone").with_source(cause)
}

fn no_answer(limit: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("no answer within {limit:?}"))
}

#[cfg(test)]
mod tests;
