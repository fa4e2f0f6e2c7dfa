//! The read buffer: takes bytes from the stream, runs the decoder over them and cuts entries out without copying.
//!
//! What must stay true: the buffer never reserves more than what has arrived of an unfinished entry plus one read; an
//! entry shares the buffer's memory, so a buffer that entries still look into is left to them and not written again; and
//! a reader that waits holds no memory for a read but what has arrived and cannot be decoded yet: the readers of a thread
//! take turns in one piece, or each of many streams would touch memory of its own.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use stream_core::Entry;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::decoder::{Decoder, Event};
use super::quick::Run;
use crate::{Error, ErrorKind, ReadBatch, Rest, ServerError};

/// Bytes of the first read, and of the largest.
const FIRST_READ: usize = 64 << 10;
const LARGEST_READ: usize = 256 << 10;
/// What a reader that waits keeps of an unfinished entry, instead of the piece that it lies in, if it is no longer.
const KEPT: usize = 4 << 10;
/// So many entries are taken apart before they are cut out, while the next read needs not wait for it.
const RUN: usize = 64;
/// A rest of fewer entries is handed out before anything could be made of it.
const LEAST_REST: usize = 16;

thread_local! {
    /// Memory that the last reader of this thread has read into, and no other needs at the moment.
    static SHARED: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Where a reply stands.
#[derive(Debug)]
pub(super) enum Decoded {
    NeedMore,
    /// The rest of the reply is there, and handed out only when this is called again.
    Rest(Rest),
    Complete {
        total: usize,
    },
    Error(ServerError),
}

pub(super) struct Buffer {
    bytes: BytesMut,
    /// What is not decoded yet, while nothing more is there and `bytes` is given back.
    kept: Vec<u8>,
    decoder: Decoder,
    run: Run,
    /// The rest of a reply: the memory, and which of the run are still to be cut out of it.
    rest: Option<(Bytes, usize)>,
    /// Bytes that the next read should have room for.
    read_size: usize,
    /// The buffer grew beyond its usual size for one entry and is given up as soon as it is empty.
    oversized: bool,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self {
            bytes: BytesMut::new(),
            kept: Vec::new(),
            decoder: Decoder::new(),
            run: Run::default(),
            rest: None,
            read_size: FIRST_READ,
            oversized: false,
        }
    }

    /// Whether part of a reply has arrived.
    pub(super) fn in_reply(&self) -> bool {
        self.decoder.in_reply()
    }

    /// Memory that the buffer holds for bytes to come and bytes that are not decoded yet.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.kept.capacity()
    }

    /// Decodes what is there, up to the end of a reply; with `look_ahead` the rest of a reply is told before it is handed
    /// out.
    pub(super) fn decode(&mut self, batch: &mut ReadBatch, look_ahead: bool) -> Result<Decoded, Error> {
        if !self.kept.is_empty() {
            // It was looked at, and nothing was read since.
            return Ok(Decoded::NeedMore);
        }
        let before = batch.entries.len();
        if self.rest.is_some() {
            self.hand_out(batch);
        }
        let most = if look_ahead { usize::MAX } else { RUN };
        loop {
            let event = self.decoder.step(&self.bytes, &mut self.run, most).map_err(|malformed| {
                Error::new(ErrorKind::Protocol, format!("not the reply to a read: {}", malformed.0))
            })?;
            match event {
                Event::Run { first, end } => {
                    self.decoder.dropped(end);
                    let memory = self.bytes.split_to(end).freeze();
                    // One at least is handed out along with what is told.
                    let now = usize::from(batch.entries.len() == before);
                    let entries = self.run.len() - now;
                    if look_ahead && self.decoder.is_at_end() && entries >= LEAST_REST {
                        self.run.cut(0..now, &memory, &mut batch.entries);
                        let (last, total) = (self.run.last(), self.decoder.total());
                        self.rest = Some((memory, now));
                        let bytes = if now == 0 { end } else { end - first };
                        return Ok(Decoded::Rest(Rest { last, entries, bytes, total }));
                    }
                    self.run.cut(0..self.run.len(), &memory, &mut batch.entries);
                    self.run.clear();
                }
                Event::Entry { id, body } => {
                    self.decoder.dropped(body.end);
                    self.bytes.advance(body.start);
                    let fields = self.bytes.split_to(body.len()).freeze();
                    batch.entries.push(Entry::from_parts(id, fields, self.decoder.spans()));
                }
                Event::Deleted(id) => batch.deleted.push(id),
                Event::Complete { total } => {
                    if self.bytes.is_empty() {
                        self.give_back();
                    }
                    return Ok(Decoded::Complete { total });
                }
                Event::Error { text } => {
                    return Ok(Decoded::Error(ServerError::parse(&String::from_utf8_lossy(&self.bytes[text]))));
                }
                Event::NeedMore => {
                    let count = self.decoder.done_with();
                    self.decoder.dropped(count);
                    self.bytes.advance(count);
                    return Ok(Decoded::NeedMore);
                }
            }
        }
    }

    /// Hands out the rest that was told.
    #[cold]
    fn hand_out(&mut self, batch: &mut ReadBatch) {
        if let Some((memory, from)) = self.rest.take() {
            self.run.cut(from..self.run.len(), &memory, &mut batch.entries);
            self.run.clear();
        }
    }

    /// Reads once from `stream`; 0 is its end.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.take_memory();
        self.make_room();
        let room = self.bytes.capacity() - self.bytes.len();
        let read = pin!(stream.read_buf(&mut self.bytes)).poll(cx);
        if let Poll::Ready(Ok(length)) = read
            && length == room
            && length >= self.read_size
        {
            self.read_size = (self.read_size * 2).min(LARGEST_READ);
        }
        if read.is_pending() {
            self.give_back();
        }
        read
    }

    /// Gives the memory to whoever reads next, if no more than a little is in it: nothing of a reply that could be decoded.
    fn give_back(&mut self) {
        if self.oversized || self.bytes.len() > KEPT {
            return;
        }
        let mut memory = std::mem::take(&mut self.bytes);
        self.kept.extend_from_slice(&memory);
        memory.clear();
        // A thread that is about to end has no use for it.
        let _ = SHARED.try_with(|shared| shared.set(memory));
    }

    /// What `give_back` gave, or what others have left.
    fn take_memory(&mut self) {
        if self.bytes.is_empty() && !self.oversized && self.bytes.capacity() == 0 {
            self.bytes = SHARED.try_with(Cell::take).unwrap_or_default();
        }
        if !self.kept.is_empty() {
            if self.bytes.capacity() < self.kept.len() + self.read_size / 4 {
                self.bytes.reserve(self.kept.len() + self.read_size);
            }
            self.bytes.extend_from_slice(&self.kept);
            self.kept.clear();
        }
    }

    fn make_room(&mut self) {
        if self.oversized && self.bytes.is_empty() {
            *self = Self {
                decoder: std::mem::replace(&mut self.decoder, Decoder::new()),
                run: std::mem::take(&mut self.run),
                ..Self::new()
            };
        }
        let room = self.bytes.capacity() - self.bytes.len();
        // Room that is there already is used up first where entries still look into this memory: small batches share it.
        if room < self.read_size && !self.bytes.try_reclaim(self.read_size) && room < self.read_size / 4 {
            self.bytes.reserve(self.read_size);
            self.oversized |= self.bytes.capacity() > 2 * LARGEST_READ;
        }
    }
}
