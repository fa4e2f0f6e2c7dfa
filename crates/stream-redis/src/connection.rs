//! The seam between the library and a server: [`Connector`] opens [`Connection`]s for commands and [`Reader`]s for
//! blocking reads. Real servers and the in-memory one of the test kit stand behind the same three traits.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use stream_core::{ConsumerName, Entry, EntryId, GroupName, StreamKey};

use crate::{Appender, Error, Request, ServerError, Value};

/// Opens connections to one server (or one topology of servers).
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection for commands about `key`, greeted and authenticated.
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error>;

    /// Whether one connection serves every key. Where it does not, as in a cluster, callers with several streams open one
    /// for each, so that the trouble of one node is not that of all.
    fn serves_all_keys(&self) -> bool {
        true
    }

    /// Opens a connection for appending to `key`. Unless said otherwise one of [`connect`](Self::connect), on which one batch
    /// is on its way at a time.
    async fn open_appender(&self, key: &StreamKey) -> Result<Appender, Error> {
        Ok(Appender::over(self.connect(key).await?))
    }

    /// Opens a connection for blocking reads of `key`. `name` is shown in the server's client list.
    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error>;
}

/// A connection for commands that do not block. Many callers may use it at once; commands are pipelined.
#[async_trait]
pub trait Connection: Send + Sync + 'static {
    /// Sends `requests` in one go and returns their replies in order.
    ///
    /// # Errors
    /// The outer error means that the connection failed: any of the requests may or may not have been carried out, and
    /// the connection is of no more use. An error reply to one request is in its place in the list.
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error>;

    /// Sends one request; an error reply becomes an [`Error`] that names command and key.
    async fn call(&self, request: &Request) -> Result<Value, Error> {
        let name = |error: Error| error.at(request.command(), request.stream());
        match self.send(std::slice::from_ref(request)).await.map_err(name)?.pop() {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(name(error.into())),
            None => Err(name(Error::new(crate::ErrorKind::Protocol, "no reply to a request"))),
        }
    }
}

/// Where a read takes entries from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadFrom {
    /// `XREADGROUP … >`: entries that the group has given to nobody yet.
    Group {
        /// The group.
        group: GroupName,
        /// The consumer that will own them.
        consumer: ConsumerName,
        /// `NOACK`: delivered and forgotten at once; what the connection loses is lost.
        no_ack: bool,
    },
    /// `XREAD`: entries after an id, without any state on the server.
    After(EntryId),
}

/// One read of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stream.
    pub key: StreamKey,
    /// Where from.
    pub from: ReadFrom,
    /// At most this many entries, at least 1.
    pub count: usize,
    /// How long the server may wait for an entry; `None` answers at once. Never zero, which would wait for ever.
    pub block: Option<Duration>,
}

/// Entries that a [`Reader`] decoded. Valid also when the read then fails: the server has delivered them.
#[derive(Debug, Default)]
pub struct ReadBatch {
    /// In the server's order.
    pub entries: Vec<Entry>,
    /// Ids whose entry was deleted while it was pending.
    pub deleted: Vec<EntryId>,
}

/// How far [`Reader::poll_next`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadProgress {
    /// Some entries of a reply were added to the batch; more of the same reply follow.
    Partial,
    /// The reply of the oldest read in flight is complete, after `total` entries in all; 0 means that there was nothing.
    Complete {
        /// Entries of the whole reply.
        total: usize,
    },
}

/// The rest of a reply that has arrived as a whole, before its entries are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// The id of the last entry.
    pub last: EntryId,
    /// Entries that are still to be handed out.
    pub entries: usize,
    /// Bytes that they take as they came, which is a little more than what they hold.
    pub bytes: usize,
    /// Entries of the whole reply.
    pub total: usize,
}

/// A connection for blocking reads alone.
///
/// All state lives in the reader, so dropping a future around [`poll_next`](Self::poll_next) loses nothing; to give up a
/// read, drop the reader, which closes the socket.
pub trait Reader: Send {
    /// Queues a read; it is written at the next [`poll_next`](Self::poll_next). Replies come in the order of requests.
    fn submit(&mut self, read: &ReadRequest);

    /// Reads that are not answered completely yet.
    fn in_flight(&self) -> usize;

    /// Entries of the oldest read in flight, as they arrive; waits for the first of them.
    ///
    /// # Errors
    /// After an error reply (see [`Error::server`]) that read is over and the reader goes on with the next. After any other
    /// error, a timeout included, the reader is of no more use. Entries already added to `batch` are valid in both cases.
    fn poll_next(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Result<ReadProgress, Error>>;

    /// After [`ReadProgress::Partial`] of an `XREAD`: the rest of its reply, where all of it is known to be here. Who goes on
    /// after the last id can submit the next read now, so that the server works while the rest is decoded and handled.
    ///
    /// `None` promises nothing: the rest may be on its way, be too short to be worth it, or not have been looked at, as
    /// with a second read in flight. A reader that never tells, which is what this does by default, only costs time.
    fn rest(&self) -> Option<Rest> {
        None
    }
}
