//! The read buffer: takes bytes from the stream, runs the decoder over them and cuts entries out without copying.
//!
//! What must stay true: the buffer never reserves more than what has arrived of an unfinished entry plus one read; an
//! entry shares the buffer's memory, so a buffer that entries still look into is left to them and not written again.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use stream_core::Entry;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::decoder::{Decoder, Event};
use crate::{Error, ErrorKind, ReadBatch, Rest, ServerError};

/// Bytes of the first read, and of the largest.
const FIRST_READ: usize = 64 << 10;
const LARGEST_READ: usize = 256 << 10;

/// Where a reply stands.
#[derive(Debug)]
pub(super) enum Decoded {
    NeedMore,
    /// The rest of the reply is there, and decoded only when this is called again.
    Rest(Rest),
    Complete {
        total: usize,
    },
    Error(ServerError),
}

pub(super) struct Buffer {
    bytes: BytesMut,
    decoder: Decoder,
    /// Bytes that the next read should have room for.
    read_size: usize,
    /// The buffer grew beyond its usual size for one entry and is given up as soon as it is empty.
    oversized: bool,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self { bytes: BytesMut::new(), decoder: Decoder::new(), read_size: FIRST_READ, oversized: false }
    }

    /// Whether part of a reply has arrived.
    pub(super) fn in_reply(&self) -> bool {
        self.decoder.in_reply()
    }

    /// Memory that the buffer holds for bytes to come and bytes that are not decoded yet.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Decodes what is there, up to the end of a reply; with `look_ahead` only the first entry, if the rest of its reply is
    /// there.
    pub(super) fn decode(&mut self, batch: &mut ReadBatch, mut look_ahead: bool) -> Result<Decoded, Error> {
        loop {
            let event = self.decoder.step(&self.bytes).map_err(|malformed| {
                Error::new(ErrorKind::Protocol, format!("not the reply to a read: {}", malformed.0))
            })?;
            match event {
                Event::Entry { id, body } => {
                    self.decoder.dropped(body.end);
                    self.bytes.advance(body.start);
                    let fields = self.bytes.split_to(body.len()).freeze();
                    batch.entries.push(Entry::from_parts(id, fields, self.decoder.spans()));
                    // Once for what has arrived: of a reply in pieces, each is looked through once.
                    if std::mem::take(&mut look_ahead)
                        && let Some(rest) = self.decoder.rest(&self.bytes)
                    {
                        return Ok(Decoded::Rest(rest));
                    }
                }
                Event::Deleted(id) => batch.deleted.push(id),
                Event::Complete { total } => return Ok(Decoded::Complete { total }),
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

    /// Reads once from `stream`; 0 is its end.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let room = self.bytes.capacity() - self.bytes.len();
        let read = pin!(stream.read_buf(&mut self.bytes)).poll(cx);
        if let Poll::Ready(Ok(length)) = read
            && length == room
            && length >= self.read_size
        {
            self.read_size = (self.read_size * 2).min(LARGEST_READ);
        }
        read
    }

    fn make_room(&mut self) {
        if self.oversized && self.bytes.is_empty() {
            *self = Self { decoder: std::mem::replace(&mut self.decoder, Decoder::new()), ..Self::new() };
        }
        let room = self.bytes.capacity() - self.bytes.len();
        // Room that is there already is used up first where entries still look into this memory: small batches share it.
        if room < self.read_size && !self.bytes.try_reclaim(self.read_size) && room < self.read_size / 4 {
            self.bytes.reserve(self.read_size);
            self.oversized |= self.bytes.capacity() > 2 * LARGEST_READ;
        }
    }
}
