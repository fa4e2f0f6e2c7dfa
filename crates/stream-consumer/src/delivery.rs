//! [`Delivery`]: an entry on its way to a handler. [`Context`]: what a handler may know and be told meanwhile.

use std::sync::{Arc, OnceLock};

use stream_core::{ConsumerName, Entry, EntryId, GroupName, StreamKey};
use tokio_util::sync::CancellationToken;

/// Where a delivery comes from; shared by all deliveries of one stream.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stream: StreamKey,
    /// `None` for an ephemeral consumer.
    pub(crate) group: Option<GroupName>,
    pub(crate) consumer: ConsumerName,
}

/// An entry that was delivered to this consumer, with the number of its attempt. Extractors read from it.
#[derive(Debug)]
pub struct Delivery {
    pub(crate) entry: Entry,
    pub(crate) attempt: u32,
    pub(crate) source: Arc<Source>,
    /// Made only for handlers that ask for it, to keep the common case free of allocations.
    token: OnceLock<CancellationToken>,
}

impl Delivery {
    pub(crate) fn new(entry: Entry, attempt: u32, source: Arc<Source>) -> Self {
        Self { entry, attempt, source, token: OnceLock::new() }
    }

    /// The entry.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The entry's id.
    pub fn id(&self) -> EntryId {
        self.entry.id()
    }

    /// The number of this start of the handler, from 1. In a group it survives the death of processes.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The stream it came from.
    pub fn stream(&self) -> &StreamKey {
        &self.source.stream
    }

    /// The context of this delivery.
    pub fn context(&self) -> Context {
        Context {
            id: self.id(),
            attempt: self.attempt,
            source: Arc::clone(&self.source),
            token: self.token.get_or_init(CancellationToken::new).clone(),
        }
    }

    /// The same delivery once more, with the same token.
    pub(crate) fn share(&self) -> Self {
        let token = OnceLock::from(self.token.get_or_init(CancellationToken::new).clone());
        Self { entry: self.entry.clone(), attempt: self.attempt, source: Arc::clone(&self.source), token }
    }

    /// The token, if a handler has asked for it.
    pub(crate) fn token(&self) -> Option<&CancellationToken> {
        self.token.get()
    }
}

/// What a handler may know about the delivery it works on.
#[derive(Debug, Clone)]
pub struct Context {
    id: EntryId,
    attempt: u32,
    source: Arc<Source>,
    token: CancellationToken,
}

impl Context {
    /// The entry's id: the key for making a handler idempotent.
    pub fn id(&self) -> EntryId {
        self.id
    }

    /// The number of this start of the handler, from 1. In a group it survives the death of processes.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The stream.
    pub fn stream(&self) -> &StreamKey {
        &self.source.stream
    }

    /// The group; `None` for an ephemeral consumer.
    pub fn group(&self) -> Option<&GroupName> {
        self.source.group.as_ref()
    }

    /// This consumer.
    pub fn consumer(&self) -> &ConsumerName {
        &self.source.consumer
    }

    /// Whether this delivery is no longer ours: the lease was lost to another consumer (this process was frozen or cut
    /// off for longer than the lease), it was pulled and held for longer than the timeout, or the consumer was told to stop
    /// at once. What the handler returns now changes nothing; it had better stop.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until the delivery is no longer ours; see [`is_cancelled`](Self::is_cancelled).
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// The token behind [`cancelled`](Self::cancelled), to hand to work that knows cancellation tokens.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}
