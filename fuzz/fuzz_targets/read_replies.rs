//! Replies on the reading socket: whatever a peer sends, in whatever chunks, the reader ends with entries or an error, and
//! the chunks make no difference.
#![no_main]

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use stream_core::{EntryId, StreamKey};
use stream_redis::{ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, SocketReader};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

fuzz_target!(|input: (&[u8], Vec<u8>)| {
    let (bytes, sizes) = input;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    let _entered = runtime.enter();
    let whole = read(Chunks::new(bytes, &[]));
    assert!(whole.size <= bytes.len(), "{} bytes of entries from {} bytes", whole.size, bytes.len());
    assert_eq!(read(Chunks::new(bytes, &sizes)), whole);
});

/// What a reader made of the bytes.
#[derive(Debug, PartialEq)]
struct Outcome {
    ids: Vec<EntryId>,
    deleted: Vec<EntryId>,
    size: usize,
    replies: Vec<String>,
}

fn read(chunks: Chunks) -> Outcome {
    let mut reader = SocketReader::new(chunks, Duration::from_secs(1));
    let key = StreamKey::new("s").expect("the name is not empty");
    let request = ReadRequest { key, from: ReadFrom::After(EntryId::ZERO), count: 100, block: None };
    let (mut batch, mut replies) = (ReadBatch::default(), Vec::new());
    let mut context = Context::from_waker(Waker::noop());
    // Each reply has a byte at least, and the stream ends: a reader that goes on for ever is what the fuzzer's own limit finds.
    loop {
        if reader.in_flight() == 0 {
            reader.submit(&request);
        }
        match reader.poll_next(&mut context, &mut batch) {
            Poll::Ready(Ok(ReadProgress::Complete { total })) => replies.push(format!("{total} entries")),
            Poll::Ready(Ok(_)) | Poll::Pending => {}
            Poll::Ready(Err(error)) => {
                replies.push(format!("{:?}", error.kind()));
                if error.server().is_none() {
                    break;
                }
            }
        }
    }
    Outcome {
        ids: batch.entries.iter().map(stream_core::Entry::id).collect(),
        size: batch.entries.iter().map(stream_core::Entry::size).sum(),
        deleted: batch.deleted,
        replies,
    }
}

/// A connection that gives its bytes in pieces, accepts everything, and then ends.
struct Chunks {
    pieces: VecDeque<Vec<u8>>,
}

impl Chunks {
    fn new(mut bytes: &[u8], sizes: &[u8]) -> Self {
        let mut pieces = VecDeque::new();
        for size in sizes {
            let (piece, rest) = bytes.split_at(usize::from(*size).clamp(1, 64).min(bytes.len()));
            pieces.push_back(piece.to_vec());
            bytes = rest;
        }
        pieces.push_back(bytes.to_vec());
        pieces.retain(|piece| !piece.is_empty());
        Self { pieces }
    }
}

impl AsyncRead for Chunks {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.pieces.pop_front() {
            let rest = piece.split_off(piece.len().min(buf.remaining()));
            buf.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Chunks {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
