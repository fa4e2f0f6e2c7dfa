//! The builder of a durable consumer: every knob, its default, and what a bad value would do.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stream_core::{
    BackoffPolicy, ConsumerName, Entry, GroupName, LeasePolicy, NameError, Partitions, RetryPolicy, StartFrom,
    StreamKey,
};
use stream_redis::Client;

use super::DurableConsumer;
use super::afterwards::DeadLetterLayout;
use crate::error::ConfigError;
use crate::lane::{self, LaneOf};
use crate::observe::Observer;
use crate::setting::{at_least_one, check_block, check_streams, default_name, out_of_range};

/// When an entry is acknowledged, and what an error means. The modes of `FastStream` map one to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Acknowledge {
    /// After the handler; an error, a panic or a timeout is retried (`FastStream`: `NACK_ON_ERROR`). With an explicit
    /// [`Outcome`](stream_core::Outcome) the handler decides itself (`MANUAL`).
    #[default]
    RetryOnError,
    /// After the handler; an error, a panic or a timeout goes to the dead letters at once (`REJECT_ON_ERROR`).
    RejectOnError,
    /// After the handler, whatever it returned (`ACK`). Gives up retries and dead letters: an error is only an event.
    Always,
    /// Before the handler starts (`ACK_FIRST`). Gives up at-least-once: what the process takes down with it is lost.
    First,
    /// Read with `NOACK`: the entry never becomes pending. Gives up more than [`First`](Self::First): what a broken
    /// connection cuts off is lost as well, and there is no attempt but the first.
    NoAck,
}

impl Acknowledge {
    /// Whether an entry is not pending any more when its handler starts. Then it has no lease that could be lost, and
    /// nobody else will run it.
    pub(crate) fn is_beforehand(self) -> bool {
        matches!(self, Self::First | Self::NoAck)
    }
}

/// What to do when the group does not exist any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnGroupLost {
    /// Make it anew, at the last id below which this process knows everything to be finished, or at the beginning if the
    /// stream is a new one: nothing is lost, some entries may run again.
    #[default]
    Recreate,
    /// End [`run`](DurableConsumer::run_with) with [`RunError::GroupLost`](crate::RunError::GroupLost).
    Fail,
}

/// What happens to the entries behind one that is going to be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RetryOrder {
    /// They go on; the retry comes later, out of order.
    #[default]
    Later,
    /// They wait for it. With lanes ([`order_by`](DurableBuilder::order_by)) only those of the same key wait; without,
    /// all of the stream. A message that keeps failing holds up those behind it until its attempts are used up.
    InPlace,
}

/// The validated settings of a durable consumer.
pub(crate) struct Config {
    pub(crate) client: Client,
    pub(crate) streams: Vec<StreamKey>,
    pub(crate) group: GroupName,
    pub(crate) consumer: ConsumerName,
    pub(crate) start: StartFrom,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    pub(crate) prefetch_bytes: usize,
    pub(crate) waiting: usize,
    pub(crate) block: Duration,
    pub(crate) lease: LeasePolicy,
    pub(crate) claim_every: Duration,
    pub(crate) take_over: bool,
    pub(crate) retry: RetryPolicy,
    pub(crate) retry_order: RetryOrder,
    pub(crate) acknowledge: Acknowledge,
    pub(crate) on_group_lost: OnGroupLost,
    pub(crate) dead_letter: Option<StreamKey>,
    pub(crate) dead_letter_max: Option<u64>,
    pub(crate) dead_letter_layout: DeadLetterLayout,
    pub(crate) delete_acknowledged: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) backoff: BackoffPolicy,
    pub(crate) lane_of: Option<LaneOf>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("streams", &self.streams)
            .field("group", &self.group)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The dead letter stream of `stream`: the one that was named, or `<stream>:dead`.
    pub(crate) fn dead_letter_of(&self, stream: &StreamKey) -> StreamKey {
        dead_letter_of(self.dead_letter.as_ref(), stream)
    }
}

fn dead_letter_of(named: Option<&StreamKey>, stream: &StreamKey) -> StreamKey {
    match named {
        Some(key) => key.clone(),
        None => StreamKey::new([stream.as_bytes(), b":dead"].concat()).unwrap_or_else(|_| stream.clone()),
    }
}

/// Builds a [`DurableConsumer`]; made by [`Consumer::durable`](crate::Consumer::durable).
///
/// A stream and a group are needed; everything else has a default that is fit for production.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct DurableBuilder {
    client: Client,
    streams: Vec<Result<StreamKey, NameError>>,
    group: Option<Result<GroupName, NameError>>,
    consumer: Option<Result<ConsumerName, NameError>>,
    start: StartFrom,
    concurrency: usize,
    prefetch: usize,
    prefetch_bytes: usize,
    waiting: usize,
    block: Duration,
    lease: Duration,
    claim_every: Option<Duration>,
    take_over: bool,
    retry: RetryPolicy,
    retry_order: Option<RetryOrder>,
    acknowledge: Acknowledge,
    on_group_lost: OnGroupLost,
    dead_letter: Option<Result<StreamKey, NameError>>,
    dead_letter_max: Option<u64>,
    pub(super) dead_letter_layout: DeadLetterLayout,
    pub(super) delete_acknowledged: bool,
    timeout: Option<Duration>,
    grace: Duration,
    backoff: (Duration, Duration),
    lane_of: Option<LaneOf>,
    observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for DurableBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableBuilder")
            .field("streams", &self.streams)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

impl DurableBuilder {
    pub(crate) fn new(client: &Client) -> Self {
        let backoff = BackoffPolicy::default();
        Self {
            client: client.clone(),
            streams: Vec::new(),
            group: None,
            consumer: None,
            start: StartFrom::Beginning,
            concurrency: 64,
            prefetch: 1_000,
            prefetch_bytes: 8 << 20,
            waiting: 10_000,
            block: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            claim_every: None,
            take_over: true,
            retry: RetryPolicy::default(),
            retry_order: None,
            acknowledge: Acknowledge::default(),
            on_group_lost: OnGroupLost::default(),
            dead_letter: None,
            dead_letter_max: None,
            dead_letter_layout: DeadLetterLayout::Stream,
            delete_acknowledged: false,
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
    /// one read for each BLOCK period. Add the lanes ([`order_by_field`](Self::order_by_field) and its
    /// like) to keep the order of a key: within this process. Where several processes of a group have to keep it, give each
    /// partition to one of them with [`stream`](Self::stream).
    pub fn partitions(mut self, partitions: &Partitions) -> Self {
        self.streams.extend(partitions.keys().iter().cloned().map(Ok));
        self
    }

    /// The consumer group. It is created where it does not exist.
    pub fn group(mut self, name: impl AsRef<[u8]>) -> Self {
        self.group = Some(GroupName::new(name));
        self
    }

    /// A fixed consumer name, for example of a stateful set. Default: host, process id and a random part.
    ///
    /// Two live processes with one name take each other's entries for their own: give a fixed name only where something
    /// else makes sure that there is one such process. What the former bearer of the name left behind is taken over once
    /// its lease is over.
    pub fn consumer(mut self, name: impl AsRef<[u8]>) -> Self {
        self.consumer = Some(ConsumerName::new(name));
        self
    }

    /// Where the group begins if this consumer has to create it; an existing group keeps its position. Default: the
    /// beginning. With [`StartFrom::End`], what was published before the first start is never seen.
    pub fn start(mut self, from: StartFrom) -> Self {
        self.start = from;
        self
    }

    /// How many handlers run at a time, over all streams. Default 64. With 1, entries are started in the order of the
    /// stream, retries aside (see [`retry_order`](Self::retry_order)).
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How many entries of each stream may be held beyond those that run, so that handlers never wait for the network.
    /// Default 1,000, at most 1,000,000; the consumer takes less while handlers are slow, about what they finish in 100 ms.
    ///
    /// What a process that is killed had held but not started comes to the next one as its second attempt. With 0, only as
    /// many entries are read as can start at once, at the price of a round trip for each.
    pub fn prefetch(mut self, entries: usize) -> Self {
        self.prefetch = entries;
        self
    }

    /// How many bytes of entries may be held before reading pauses, over all streams. Default 8 MiB. A single entry may be
    /// larger. Of entries that are tried again or were taken over, as many run at a time, and one of each stream beyond that.
    pub fn prefetch_bytes(mut self, bytes: usize) -> Self {
        self.prefetch_bytes = bytes;
        self
    }

    /// How many entries of each stream may wait for their next attempt before reading pauses. Default 10,000. They take
    /// no memory for their payload, but each has its lease renewed.
    pub fn max_waiting(mut self, entries: usize) -> Self {
        self.waiting = entries;
        self
    }

    /// How long one read waits on the server. Default 5 s; 1 to 5 s are sensible. It is how long a deleted stream goes
    /// unnoticed on Redis 6.2, and an idle consumer costs one command in this time.
    pub fn block(mut self, period: Duration) -> Self {
        self.block = period;
        self
    }

    /// How soon the death of a process is noticed, *not* how long a handler may run: leases of entries that are held are
    /// renewed. Default 30 s. Shorter than the pauses of your processes (garbage, disk, a stopped container), it makes a
    /// live owner look dead, and its entries run twice.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often this process looks for entries of dead owners, give or take a tenth. Default: a third of the lease. An
    /// entry of a dead process is taken over within the lease and one such interval.
    pub fn claim_every(mut self, interval: Duration) -> Self {
        self.claim_every = Some(interval);
        self
    }

    /// Whether entries of dead owners are taken over. Default: yes. Without, what a process leaves behind when it dies stays
    /// pending until another consumer of the group takes it over; what this one loses on the way is looked for all the same.
    pub fn take_over(mut self, yes: bool) -> Self {
        self.take_over = yes;
        self
    }

    /// How failed attempts are repeated. Default: exponential from 1 s to 300 s, 8 attempts.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Whether entries wait for the retry of one before them. Default: with lanes those of the same key do, without none.
    pub fn retry_order(mut self, order: RetryOrder) -> Self {
        self.retry_order = Some(order);
        self
    }

    /// When entries are acknowledged. Default: [`Acknowledge::RetryOnError`].
    pub fn acknowledge(mut self, mode: Acknowledge) -> Self {
        self.acknowledge = mode;
        self
    }

    /// What to do when the group is gone. Default: [`OnGroupLost::Recreate`].
    pub fn on_group_lost(mut self, policy: OnGroupLost) -> Self {
        self.on_group_lost = policy;
        self
    }

    /// The stream that dead letters go to. Default: `<stream>:dead`. In a cluster it must share the slot of the stream for
    /// the step to be atomic: `{orders}:dead` does for `orders`.
    pub fn dead_letter(mut self, key: impl AsRef<[u8]>) -> Self {
        self.dead_letter = Some(StreamKey::new(key));
        self
    }

    /// Bounds the dead letter stream to about `entries`; the oldest are dropped. Default: no bound, nothing is dropped.
    pub fn dead_letter_max(mut self, entries: u64) -> Self {
        self.dead_letter_max = Some(entries);
        self
    }

    /// How long one attempt may take; then its future is dropped and the attempt has failed. Default: no limit. The lease
    /// is renewed all the while, so without a limit a handler that hangs holds its entry until the process ends. Of
    /// [`deliveries`](super::DurableConsumer::deliveries), how long one may be held.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// How long running handlers may go on after a stop was asked for. Default 30 s. Handlers that take longer are
    /// aborted and their entries handed back.
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

    /// Runs entries of one key one at a time, in their order; those of different keys side by side. The key is made from
    /// the entry by `key`; `None` needs no order. An entry that fails holds up its key until it succeeds or is dead.
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

    /// [`order_by_entry`](Self::order_by_entry) with a key from the JSON payload. The payload is decoded once more for
    /// it; where that matters, publish the key as a field of its own. An entry that cannot be decoded has no order.
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
    pub fn build(self) -> Result<DurableConsumer, ConfigError> {
        let streams = self.streams.into_iter().collect::<Result<Vec<_>, _>>()?;
        check_streams(&streams)?;
        let group = self
            .group
            .ok_or(ConfigError::Missing { setting: "group", remedy: "name the consumer group with `.group(..)`" })??;
        let consumer = self.consumer.unwrap_or_else(default_name)?;
        at_least_one("concurrency", self.concurrency, "at least one handler must be able to run")?;
        if self.prefetch > 1_000_000 {
            return Err(out_of_range("prefetch", self.prefetch, "at most 1,000,000"));
        }
        at_least_one("prefetch_bytes", self.prefetch_bytes, "at least one byte, or nothing can be read")?;
        at_least_one("max_waiting", self.waiting, "at least one entry must be able to wait for its retry")?;
        if self.concurrency > 1_000_000 {
            return Err(out_of_range("concurrency", self.concurrency, "at most 1,000,000"));
        }
        check_block(self.block)?;
        let lease = LeasePolicy::new(self.lease)?;
        let claim_every = self.claim_every.unwrap_or(self.lease / 3);
        if claim_every < Duration::from_millis(10) || claim_every > Duration::from_hours(24) {
            return Err(ConfigError::duration("claim_every", claim_every, "from 10 ms to 24 h"));
        }
        self.retry.check()?;
        if self.timeout.is_some_and(|limit| limit.is_zero()) {
            return Err(ConfigError::duration(
                "timeout",
                Duration::ZERO,
                "more than zero, or leave it out for no limit",
            ));
        }
        super::afterwards::check(
            self.dead_letter_layout,
            self.dead_letter_max,
            self.delete_acknowledged,
            self.acknowledge,
        )?;
        let dead_letter = self.dead_letter.transpose().map_err(|_| {
            out_of_range(
                "dead_letter",
                "empty",
                "give the key of a stream, or leave it out for the stream's key and `:dead`",
            )
        })?;
        let all: HashSet<_> = streams.iter().collect();
        if streams.iter().any(|key| all.contains(&dead_letter_of(dead_letter.as_ref(), key))) {
            return Err(ConfigError::Conflict {
                first: "stream",
                second: "dead_letter",
                remedy: "dead letters would be consumed as if they were new; name another stream for them",
            });
        }
        if self.dead_letter_max == Some(0) {
            return Err(out_of_range("dead_letter_max", 0, "at least 1, or leave it out for no bound"));
        }
        Ok(DurableConsumer::new(Config {
            client: self.client,
            streams,
            group,
            consumer,
            start: self.start,
            concurrency: self.concurrency,
            prefetch: self.prefetch,
            prefetch_bytes: self.prefetch_bytes,
            waiting: self.waiting,
            block: self.block,
            lease,
            claim_every,
            take_over: self.take_over,
            retry: self.retry,
            retry_order: self.retry_order.unwrap_or(if self.lane_of.is_some() {
                RetryOrder::InPlace
            } else {
                RetryOrder::Later
            }),
            acknowledge: self.acknowledge,
            on_group_lost: self.on_group_lost,
            dead_letter,
            dead_letter_max: self.dead_letter_max,
            dead_letter_layout: self.dead_letter_layout,
            delete_acknowledged: self.delete_acknowledged,
            timeout: self.timeout,
            grace: self.grace,
            backoff: BackoffPolicy::new(self.backoff.0, self.backoff.1)?,
            lane_of: self.lane_of,
            observer: self.observer,
        }))
    }
}
