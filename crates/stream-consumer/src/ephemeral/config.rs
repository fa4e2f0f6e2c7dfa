//! The builder of an ephemeral consumer: every knob, its default, and what a bad value would do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stream_core::{
    BackoffPolicy, ConsumerName, Entry, EntryId, NameError, Partitions, RetryPolicy, StartFrom, StreamKey,
};
use stream_redis::Client;

use super::EphemeralConsumer;
use crate::durable::RetryOrder;
use crate::error::ConfigError;
use crate::lane::{self, LaneOf};
use crate::observe::Observer;
use crate::setting::{at_least_one, check_block, check_streams, default_name, out_of_range};

/// What to do when entries were gone before they were read, or the stream was made anew. It is told in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnGap {
    /// Go on with the first entry that is there. In a stream that was made anew that is its beginning: nothing of it is
    /// left out, and what was read of it already may come again.
    #[default]
    Beginning,
    /// Go on with the next entry that is added: the past is lost anyway, what counts is to be up to date again.
    End,
    /// End [`run_with`](EphemeralConsumer::run_with) with [`RunError::EntriesMissing`](crate::RunError::EntriesMissing).
    Fail,
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    From(StartFrom),
    /// So long before the server's present time.
    Ago(Duration),
}

/// The validated settings of an ephemeral consumer.
pub(crate) struct Config {
    pub(crate) client: Client,
    pub(crate) streams: Vec<StreamKey>,
    pub(crate) name: ConsumerName,
    pub(crate) start: Start,
    pub(crate) resume: Vec<(StreamKey, EntryId)>,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    pub(crate) prefetch_bytes: usize,
    pub(crate) block: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) retry_order: RetryOrder,
    pub(crate) on_gap: OnGap,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) backoff: BackoffPolicy,
    pub(crate) lane_of: Option<LaneOf>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("streams", &self.streams).field("start", &self.start).finish_non_exhaustive()
    }
}

impl Config {
    /// Where a former run has stopped in this stream.
    pub(crate) fn resumed(&self, stream: &StreamKey) -> Option<EntryId> {
        self.resume.iter().find(|(key, _)| key == stream).map(|(_, id)| *id)
    }
}

/// Builds an [`EphemeralConsumer`]; made by [`Consumer::ephemeral`](crate::Consumer::ephemeral). Only a stream is needed.
///
/// ```
/// use stream_consumer::{Consumer, StartFrom};
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// let consumer = Consumer::ephemeral(&client).stream("events").start(StartFrom::Beginning).build()?;
/// assert_eq!(consumer.streams().len(), 1);
/// # Ok::<(), stream_consumer::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct EphemeralBuilder {
    client: Client,
    streams: Vec<Result<StreamKey, NameError>>,
    name: Option<Result<ConsumerName, NameError>>,
    start: Start,
    resume: Vec<(StreamKey, EntryId)>,
    concurrency: usize,
    prefetch: usize,
    prefetch_bytes: usize,
    block: Duration,
    retry: RetryPolicy,
    retry_order: Option<RetryOrder>,
    on_gap: OnGap,
    timeout: Option<Duration>,
    grace: Duration,
    backoff: (Duration, Duration),
    lane_of: Option<LaneOf>,
    observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for EphemeralBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EphemeralBuilder").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl EphemeralBuilder {
    pub(crate) fn new(client: &Client) -> Self {
        let backoff = BackoffPolicy::default();
        Self {
            client: client.clone(),
            streams: Vec::new(),
            name: None,
            start: Start::From(StartFrom::End),
            resume: Vec::new(),
            concurrency: 1,
            prefetch: 2_000,
            prefetch_bytes: 8 << 20,
            block: Duration::from_secs(5),
            retry: RetryPolicy::immediate().max_attempts(1),
            retry_order: None,
            on_gap: OnGap::default(),
            timeout: None,
            grace: Duration::from_secs(30),
            backoff: (backoff.base(), backoff.max()),
            lane_of: None,
            observer: None,
        }
    }

    /// Adds a stream. Several streams share the concurrency; one that cannot be read does not stop the others.
    pub fn stream(mut self, key: impl AsRef<[u8]>) -> Self {
        self.streams.push(StreamKey::new(key));
        self
    }

    /// Adds all partitions of a logical stream, which share the concurrency. Each has a reader of its own: a connection, and
    /// one read for each BLOCK period. The order of a key is kept with a
    /// concurrency of 1, or with lanes ([`order_by_field`](Self::order_by_field) and its like).
    pub fn partitions(mut self, partitions: &Partitions) -> Self {
        self.streams.extend(partitions.keys().iter().cloned().map(Ok));
        self
    }

    /// The name shown in the server's client list and in log lines. Default: host, process id and a random part.
    pub fn name(mut self, name: impl AsRef<[u8]>) -> Self {
        self.name = Some(ConsumerName::new(name));
        self
    }

    /// Where each stream is begun. Default: [`StartFrom::End`], the live tail. The end is resolved to an id once, before
    /// [`Event::Ready`](crate::Event::Ready): whatever is published after that event is received. A stream that does not
    /// exist is waited for and read from its first entry on, unless an id or a time says otherwise.
    pub fn start(mut self, from: StartFrom) -> Self {
        self.start = Start::From(from);
        self
    }

    /// Begins with what was added during the last `time`, by the server's clock: its `TIME` is asked once, before
    /// [`Event::Ready`](crate::Event::Ready). Replaces [`start`](Self::start), whose [`StartFrom::Time`] is a time of one's
    /// own. Ids that publishers chose themselves are compared all the same, whatever that means.
    pub fn start_ago(mut self, time: Duration) -> Self {
        self.start = Start::Ago(time);
        self
    }

    /// Begins after these ids in the streams that they name, and as [`start`](Self::start) says in the others: what a
    /// [report](super::EphemeralReport::positions) or [`positions`](EphemeralConsumer::positions) said of a former run.
    /// A stream that is not read by this consumer is of no account. What was trimmed meanwhile is missing without a word.
    /// A stream that is gone, or was made anew and has smaller ids than that, is told as
    /// [`StreamReset`](crate::Event::StreamReset), and [`on_gap`](Self::on_gap) says where to begin.
    pub fn resume(mut self, positions: impl IntoIterator<Item = (StreamKey, EntryId)>) -> Self {
        self.resume = positions.into_iter().collect();
        self
    }

    /// How many handlers run at a time, over all streams. Default 1: entries are handled one after the other, in the order
    /// of their stream.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How many entries of each stream may be held in memory beyond those that run. Default 2,000. One read brings half of
    /// them at most, so that the next is under way while its entries are handled; more than 500 only as far as they come in
    /// one piece, about 224 KiB. When so many are held, reading pauses; a stream that is trimmed meanwhile may lose entries
    /// that were not read, which is told.
    pub fn prefetch(mut self, entries: usize) -> Self {
        self.prefetch = entries;
        self
    }

    /// How many bytes of entries may be held before reading pauses, over all streams. Default 8 MiB. A single entry may be
    /// larger.
    pub fn prefetch_bytes(mut self, bytes: usize) -> Self {
        self.prefetch_bytes = bytes;
        self
    }

    /// How long one read waits on the server. Default 5 s; 1 to 5 s are sensible. An idle stream costs one `XREAD` in this
    /// time, and one `XINFO STREAM` once it was seen to exist; it is how long a stream that was made anew goes unnoticed.
    pub fn block(mut self, period: Duration) -> Self {
        self.block = period;
        self
    }

    /// How failed attempts are repeated, in this process. Default: not at all, a failure is counted and told. An entry
    /// whose attempts are used up, or that is rejected, is told as [`Event::GivenUp`](crate::Event::GivenUp).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Whether the entries behind one that is going to be retried wait for it. Default: with lanes those of the same key do;
    /// without, all of the stream with a concurrency of 1, so that the order is kept, and none with more.
    pub fn retry_order(mut self, order: RetryOrder) -> Self {
        self.retry_order = Some(order);
        self
    }

    /// What to do when entries are missing or the stream was made anew. Default: [`OnGap::Beginning`].
    pub fn on_gap(mut self, policy: OnGap) -> Self {
        self.on_gap = policy;
        self
    }

    /// How long one attempt may take; then its future is dropped and the attempt has failed. Default: no limit, so that a
    /// handler that hangs holds its place until the process ends. Of no effect for
    /// [`entries`](EphemeralConsumer::entries).
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// How long running handlers may go on after a stop was asked for. Default 30 s; then they are aborted.
    pub fn grace(mut self, period: Duration) -> Self {
        self.grace = period;
        self
    }

    /// The pauses between attempts to reach a server: full jitter below an exponential that starts at `base` and is capped
    /// at `max`. Default 1 s and 60 s.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.backoff = (base, max);
        self
    }

    /// Runs entries of one key one at a time, in their order; those of different keys side by side, as far as the
    /// concurrency allows. The key is made from the entry by `key`; `None` needs no order.
    pub fn order_by_entry<K: std::hash::Hash>(
        mut self,
        key: impl Fn(&Entry) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        self.lane_of = Some(lane::by_entry(key));
        self
    }

    /// [`order_by_entry`](Self::order_by_entry) with the value of a field as the key.
    pub fn order_by_field(mut self, field: impl AsRef<[u8]>) -> Self {
        self.lane_of = Some(lane::by_field(field.as_ref()));
        self
    }

    /// [`order_by_entry`](Self::order_by_entry) with a key from the JSON payload, which is decoded once more for it. An
    /// entry that cannot be decoded has no order.
    pub fn order_by<T, K>(mut self, key: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: serde::de::DeserializeOwned,
        K: std::hash::Hash,
    {
        self.lane_of = Some(lane::by_json(key));
        self
    }

    /// Is told of every event. Default: events are log lines and counters only.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that cannot work and says what to do.
    pub fn build(self) -> Result<EphemeralConsumer, ConfigError> {
        let streams = self.streams.into_iter().collect::<Result<Vec<_>, _>>()?;
        check_streams(&streams)?;
        at_least_one("concurrency", self.concurrency, "at least one handler must be able to run")?;
        at_least_one("prefetch_bytes", self.prefetch_bytes, "at least one byte, or nothing can be read")?;
        if self.concurrency > 1_000_000 {
            return Err(out_of_range("concurrency", self.concurrency, "at most 1,000,000"));
        }
        check_block(self.block)?;
        self.retry.check()?;
        if self.timeout.is_some_and(|limit| limit.is_zero()) {
            let remedy = "more than zero, or leave it out for no limit";
            return Err(ConfigError::duration("timeout", Duration::ZERO, remedy));
        }
        let in_order = self.concurrency == 1 || self.lane_of.is_some();
        Ok(EphemeralConsumer::new(Config {
            client: self.client,
            streams,
            name: self.name.unwrap_or_else(default_name)?,
            start: self.start,
            resume: self.resume,
            concurrency: self.concurrency,
            prefetch: self.prefetch,
            prefetch_bytes: self.prefetch_bytes,
            block: self.block,
            retry: self.retry,
            retry_order: self.retry_order.unwrap_or(if in_order { RetryOrder::InPlace } else { RetryOrder::Later }),
            on_gap: self.on_gap,
            timeout: self.timeout,
            grace: self.grace,
            backoff: BackoffPolicy::new(self.backoff.0, self.backoff.1)?,
            lane_of: self.lane_of,
            observer: self.observer,
        }))
    }
}
