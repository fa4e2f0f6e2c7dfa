//! Decoding: the reading socket over a stream that gives the same reply again and again, in chunks of a given size.

use std::fmt::Write;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stream_core::{EntryId, StreamKey};
use stream_redis::{ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, SocketReader};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Part;

/// A reply of so many entries, of `fields` fields with values of `size` bytes, in chunks of `chunk` bytes.
pub(super) fn reply_of(entries: usize, fields: usize, size: usize, chunk: usize) -> Part {
    let read = ReadRequest {
        key: StreamKey::new("orders").unwrap_or_else(|_| unreachable!("the name is not empty")),
        from: ReadFrom::After(EntryId::ZERO),
        count: entries,
        block: None,
    };
    let replay = Replay { reply: reply(entries, fields, size), chunk, at: None };
    let mut reader = SocketReader::new(replay, Duration::from_secs(10));
    let mut batch = ReadBatch::default();
    Part::new(entries as u64, move || {
        reader.submit(&read);
        let mut cx = Context::from_waker(Waker::noop());
        batch.entries.clear();
        loop {
            match reader.poll_next(&mut cx, &mut batch) {
                Poll::Ready(Ok(ReadProgress::Complete { total })) => {
                    assert_eq!((total, batch.entries.len()), (entries, entries));
                    break;
                }
                Poll::Ready(Ok(_)) => {}
                other => panic!("the reply is complete and correct: {other:?}"),
            }
        }
    })
}

fn reply(entries: usize, fields: usize, size: usize) -> Vec<u8> {
    let string = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let value = "x".repeat(size);
    let mut reply = format!("*1\r\n*2\r\n{}*{entries}\r\n", string("orders"));
    for number in 0..entries {
        let id = format!("1700000000{:03}-{}", number / 10, number % 10);
        let _ = write!(reply, "*2\r\n{}*{}\r\n", string(&id), fields * 2);
        for field in 0..fields {
            let name = if fields == 1 { "data".to_owned() } else { format!("field-{field}") };
            reply += &(string(&name) + &string(&value));
        }
    }
    reply.into_bytes()
}

/// Answers whatever is written with the reply.
struct Replay {
    reply: Vec<u8>,
    chunk: usize,
    /// How much of the present reply was given; `None` when nothing was asked for.
    at: Option<usize>,
}

impl AsyncRead for Replay {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(at) = self.at else { return Poll::Pending };
        let end = self.reply.len().min(at + self.chunk.min(buf.remaining()));
        buf.put_slice(&self.reply[at..end]);
        self.at = (end < self.reply.len()).then_some(end);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.at = Some(0);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
