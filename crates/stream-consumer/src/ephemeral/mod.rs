//! Ephemeral consumers: they follow streams with `XREAD`, and nothing of them is on the server.
//!
//! `config` is the builder; `worker` the loop of one stream; `reading` its socket, which holds the cursor and compares the
//! stream with what was read of it; `entries` the same as a `Stream`.
//!
//! What must stay true: the start is resolved to an id once and every read goes on from an id, so nothing that was added
//! between two reads is skipped. What is lost all the same, because it was gone before it was read, is told.

mod config;
mod entries;
mod opening;
mod reading;
mod stream;
mod worker;

pub use config::{EphemeralBuilder, OnGap};
pub use entries::Entries;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use stream_core::{ConsumerName, EntryId, StreamKey};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::codec::FromDelivery;
use crate::delivery::Source;
use crate::durable::StatsHandle;
use crate::error::RunError;
use crate::handler::Handler;
use crate::health::{HealthHandle, Positions, Pulses};
use crate::link::Links;
use crate::observe::{Counters, Stats};
use crate::pulse::Pulse;
use crate::shutdown::Shutdown;
use crate::tasks::{Loops, PULSE};
use crate::work::{Batch, IntoOutcomes, Single, Work};
use config::Config;
use stream::Stream;
use worker::Worker;

/// A consumer without a group that is ready to run; made by [`EphemeralBuilder::build`].
///
/// It sees every entry once in its life, as far as it is not gone before it is read. Nothing is acknowledged: an entry that
/// runs when the process dies is not run again. For that there are [durable consumers](crate::Consumer::durable).
///
/// Outcomes mean what they can mean without a group: `Done` counts; `Retry` is repeated in this process as the
/// [policy](EphemeralBuilder::retry) says; what is rejected, cannot be decoded or has used up its attempts is told as
/// [`GivenUp`](crate::Event::GivenUp) and is in no dead letter. So is what a handler releases, since nobody else takes it;
/// released while stopping, it counts as not started, and the report's position does not pass it. `Stop` stops the consumer;
/// without an acknowledgement it is a release while stopping.
///
/// # On the server
///
/// Nothing: no group, no consumer, no key. An idle stream costs one `XREAD` in a BLOCK period on a connection of its own,
/// and, once the stream was seen to exist, one `XINFO STREAM` in the same time on a second connection that all streams of
/// the consumer share. A stream that is missing costs the `XREAD` alone, and is waited for in silence.
///
/// # What is noticed
///
/// At most once in a BLOCK period, between two reads, `XINFO STREAM` is compared with what was read; also after each
/// reconnect, and before the first read of a run that [resumes](EphemeralBuilder::resume). A reader that is at its memory
/// bound compares when it goes on.
///
/// | What happened | Redis 7.0 and later, Valkey | Redis 6.2 |
/// |---|---|---|
/// | stream deleted, or made anew with smaller ids | [`StreamReset`] within one BLOCK period | the same |
/// | made anew with greater ids | `StreamReset`, if the new one had fewer entries so far; its entries simply come | not noticed, unless it was missing at a comparison; its entries simply come |
/// | trimmed past the cursor | [`Gap`] with the number of missing entries | `Gap` without a number: certain when an entry that was known to come next is gone, else a possibility, told when the beginning has moved past the cursor while the reader lagged behind or was disconnected |
/// | trimmed past a reader that had caught up and stood by the whole time | nothing is missing, nothing is told | the same |
/// | trimmed away and read past within one BLOCK period by a reader that lags behind | `Gap`, by the count | told only if a comparison had seen the entry that came next |
/// | unread entries deleted with `XDEL` | `Gap`, at the latest when the reader has caught up with the end | told only if it was the entry known to come next |
///
/// Not noticed anywhere: a stream that was made anew within one BLOCK period and already has more entries, and greater ids,
/// than the old one ever had. A replica that took over without the newest entries looks like a stream made anew: with
/// [`OnGap::Beginning`] what it still has comes again. Without the permission for `XINFO` nothing of all this is noticed,
/// which is told once as [`Degraded`].
///
/// [`StreamReset`]: crate::Event::StreamReset
/// [`Gap`]: crate::Event::Gap
/// [`Degraded`]: crate::Event::Degraded
#[derive(Debug)]
#[must_use = "a consumer does nothing until it runs"]
pub struct EphemeralConsumer {
    config: Arc<Config>,
    counters: Arc<Counters>,
    pulses: Pulses,
}

/// How an ephemeral consumer stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EphemeralReport {
    /// What it did in its life, over all streams.
    pub stats: Stats,
    /// For each stream the id up to which every entry was handled or given up; for one that could not be opened the id that
    /// it was to [resume](EphemeralBuilder::resume) at, and without that it is left out. A consumer that is given all of them
    /// with [`EphemeralBuilder::resume`] goes on where this one stopped. So does one that starts after it with
    /// [`StartFrom::Id`](crate::StartFrom::Id), which does not notice a stream that was made anew meanwhile.
    pub positions: Vec<(StreamKey, EntryId)>,
    /// Entries that were read and whose handler was not started (again), or that it released while stopping.
    pub unstarted: u64,
    /// Handlers that were still running at the end of the grace period, or at an immediate stop, and were aborted.
    pub aborted: u64,
    /// Streams whose run loop did not end, since a handler (or a decoder, or the key of an order) blocks the thread that it
    /// was called on and cannot be aborted. Their positions are those of the turn before, none where the start was not
    /// resolved, and what they held is in none of the other numbers.
    pub stuck: u64,
}

impl EphemeralConsumer {
    pub(crate) fn new(config: Config) -> Self {
        let pulses = Pulses::new(config.streams.len());
        for (place, key) in config.streams.iter().enumerate() {
            // Whoever goes on after it has to know it also if this one never gets so far as to read.
            if let Some(at) = config.resumed(key) {
                pulses.of(place).moved(at);
            }
        }
        Self { config: Arc::new(config), counters: Arc::default(), pulses }
    }

    /// The name shown in the server's client list.
    pub fn name(&self) -> &ConsumerName {
        &self.config.name
    }

    /// The streams.
    pub fn streams(&self) -> &[StreamKey] {
        &self.config.streams
    }

    /// A handle to the counters, for metrics and probes.
    pub fn stats(&self) -> StatsHandle {
        StatsHandle(Arc::clone(&self.counters))
    }

    /// A handle to how it is, for probes. It costs the consumer nothing for an entry, and the server nothing at all.
    pub fn health(&self) -> HealthHandle {
        HealthHandle::new(&self.pulses, &self.counters)
    }

    /// A handle to how far it is, which outlives it: what [`EphemeralBuilder::resume`] takes after an end with an error, and
    /// what a trimmer in the same process can spare.
    pub fn positions(&self) -> Positions {
        Positions::new(&self.pulses, &self.config.streams)
    }

    /// Consumes until `signal` completes, then stops gracefully: reads no more, drops what was not started, lets running
    /// handlers finish within the grace period, and reports.
    ///
    /// # Errors
    /// [`RunError`] when it cannot go on: something that trying again does not mend, or missing entries with
    /// [`OnGap::Fail`]. Whatever is transient (a server that restarts, a network that fails, a stream that does not exist)
    /// is waited for instead.
    pub async fn run_until<S, H, A>(self, signal: S, handler: H) -> Result<EphemeralReport, RunError>
    where
        S: Future,
        H: Handler<A>,
        A: 'static,
    {
        let shutdown = Shutdown::new();
        let run = self.run_with(&shutdown, handler);
        shutdown.stop_on(signal, run).await
    }

    /// Consumes until `shutdown` is turned: once to stop gracefully, twice to stop at once.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    ///
    /// ```
    /// # use stream_consumer::{Consumer, Data, Shutdown, StartFrom};
    /// # async fn example(client: stream_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let shutdown = Shutdown::new();
    /// let stop = shutdown.clone();
    /// let report = Consumer::ephemeral(&client)
    ///     .stream("events")
    ///     .start(StartFrom::Beginning)
    ///     .build()?
    ///     .run_with(&shutdown, move |Data(data): Data| {
    ///         stop.stop();
    ///         async move { println!("{} bytes", data.len()) }
    ///     })
    ///     .await?;
    /// assert_eq!(report.stats.handled, 1);
    /// # Ok(())
    /// # }
    /// # let server = stream_testkit::MemoryServer::new();
    /// # server.add("events", [("data", "7")]);
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    /// #     .block_on(example(server.client())).unwrap();
    /// ```
    pub async fn run_with<H, A>(self, shutdown: &Shutdown, handler: H) -> Result<EphemeralReport, RunError>
    where
        H: Handler<A>,
        A: 'static,
    {
        self.run_work(shutdown, Single::new(handler)).await
    }

    /// Like [`run_with`](Self::run_with) with a handler of batches of up to `most` items, for sinks that write many at
    /// once. One item that cannot be decoded does not spoil the others.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub async fn run_batches<T, F, Fut>(
        self,
        shutdown: &Shutdown,
        most: usize,
        handler: F,
    ) -> Result<EphemeralReport, RunError>
    where
        T: FromDelivery + 'static,
        F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcomes,
    {
        self.run_work(shutdown, Batch::new(most, handler)).await
    }

    pub(crate) async fn run_work<W: Work>(
        self,
        shutdown: &Shutdown,
        work: Arc<W>,
    ) -> Result<EphemeralReport, RunError> {
        let config = &self.config;
        let permits = Arc::new(Semaphore::new(config.concurrency));
        let mut links = Links::new(&config.client, config.backoff);
        let _pulse = Pulse::of(&Handle::current(), PULSE);
        let mut loops = Loops::new();
        // A switch of our own: when one stream ends for missing entries, the others stop, but nobody else's consumers.
        let inner = shutdown.child();
        let _ended = self.pulses.end_with();
        for (place, key) in config.streams.iter().enumerate() {
            let source = Source { stream: key.clone(), group: None, consumer: config.name.clone() };
            let stream = Arc::new(Stream {
                config: Arc::clone(config),
                source: Arc::new(source),
                link: links.of(key),
                counters: Arc::clone(&self.counters),
                pulse: self.pulses.of(place),
                resume: config.resumed(key),
            });
            let worker = Worker::new(&stream, Arc::clone(&work), &permits, &inner);
            loops.spawn(&Arc::clone(&stream.source), stream, worker.run());
        }
        let ended = loops.end(&inner, config.grace, Duration::ZERO).await;
        let mut report = EphemeralReport { stuck: ended.stuck.len() as u64, ..EphemeralReport::default() };
        for drained in ended.reports {
            report.positions.extend(drained.positions);
            report.unstarted += drained.unstarted;
            report.aborted += drained.aborted;
        }
        for stream in ended.stuck {
            report.positions.extend(stream.pulse.position().map(|at| (stream.source.stream.clone(), at)));
        }
        report.stats = self.counters.snapshot();
        report.positions.sort_by_key(|(key, _)| config.streams.iter().position(|stream| stream == key));
        ended.failure.map_or(Ok(report), Err)
    }
}
