//! Durable consumers: they read through a consumer group, at least once, whatever dies in between.
//!
//! `config` is the builder; `worker` the loop of one stream, made of `reading` (the socket), `start` (handlers),
//! `settle` (outcomes) and `stop`; `steward` renews leases and takes over abandoned entries beside it; `group` keeps the
//! group there.

mod config;
mod flight;
mod group;
mod held;
mod mode;
mod reading;
mod settle;
mod start;
mod steward;
mod stop;
mod stream;
mod worker;

pub use config::{Acknowledge, DurableBuilder, OnGroupLost, RetryOrder};
pub(crate) use config::{at_least_one, check_block, default_name, out_of_range};
pub use stop::DrainReport;

use std::future::Future;
use std::sync::Arc;

use stream_core::{ConsumerName, GroupName, StreamKey};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::codec::FromDelivery;
use crate::delivery::Source;
use crate::error::RunError;
use crate::handler::Handler;
use crate::observe::{Counters, Stats};
use crate::shutdown::Shutdown;
use crate::work::{Batch, IntoOutcomes, Single, Work};
use crate::{job, link};
use config::Config;
use held::Fleet;
use link::Link;
use stream::Stream;
use worker::Worker;

/// A consumer of a group that is ready to run; made by [`DurableBuilder::build`].
#[derive(Debug)]
#[must_use = "a consumer does nothing until it runs"]
pub struct DurableConsumer {
    config: Arc<Config>,
    counters: Arc<Counters>,
}

/// Reads the counters of a consumer while it runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StatsHandle(pub(crate) Arc<Counters>);

impl StatsHandle {
    /// The counters as they are now.
    pub fn get(&self) -> Stats {
        self.0.snapshot()
    }
}

impl DurableConsumer {
    pub(crate) fn new(config: Config) -> Self {
        Self { config: Arc::new(config), counters: Arc::default() }
    }

    /// The name under which this consumer owns entries.
    pub fn name(&self) -> &ConsumerName {
        &self.config.consumer
    }

    /// The group.
    pub fn group(&self) -> &GroupName {
        &self.config.group
    }

    /// The streams.
    pub fn streams(&self) -> &[StreamKey] {
        &self.config.streams
    }

    /// A handle to the counters, for metrics and probes.
    pub fn stats(&self) -> StatsHandle {
        StatsHandle(Arc::clone(&self.counters))
    }

    /// Consumes until `signal` completes, then stops gracefully: reads no more, hands back what was not started, lets
    /// running handlers finish within the grace period, flushes, and reports.
    ///
    /// # Errors
    /// [`RunError`] when it cannot go on: something that trying again does not mend. Whatever is transient (a server that
    /// restarts, a network that fails, a stream that does not exist) is waited for instead.
    pub async fn run_until<S, H, A>(self, signal: S, handler: H) -> Result<DrainReport, RunError>
    where
        S: Future,
        H: Handler<A>,
        A: 'static,
    {
        let shutdown = Shutdown::new();
        let run = self.run_with(&shutdown, handler);
        shutdown.stop_on(signal, run).await
    }

    /// Consumes until `shutdown` is turned (once to stop gracefully, twice to stop at once), or until a handler returns
    /// [`Outcome::Stop`](crate::Outcome::Stop), which does not turn it.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub async fn run_with<H, A>(self, shutdown: &Shutdown, handler: H) -> Result<DrainReport, RunError>
    where
        H: Handler<A>,
        A: 'static,
    {
        self.run_work(shutdown, Single::new(handler)).await
    }

    /// Like [`run_with`](Self::run_with) with a handler of batches of up to `most` items, for sinks that write many at
    /// once. The outcomes apply when the handler returns; one item that cannot be decoded does not spoil the others.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub async fn run_batches<T, F, Fut>(
        self,
        shutdown: &Shutdown,
        most: usize,
        handler: F,
    ) -> Result<DrainReport, RunError>
    where
        T: FromDelivery + 'static,
        F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcomes,
    {
        self.run_work(shutdown, Batch::new(most, handler)).await
    }

    pub(crate) async fn run_work<W: Work>(self, shutdown: &Shutdown, work: Arc<W>) -> Result<DrainReport, RunError> {
        let config = &self.config;
        let fleet = Fleet {
            permits: Arc::new(Semaphore::new(config.concurrency)),
            suspect: Arc::new(Semaphore::new(1)),
            shutdown: shutdown.child(),
        };
        let link = Arc::new(Link::new(config.client.clone(), config.streams[0].clone(), config.backoff));
        // The tasks end with this future: what is dropped is not left running behind its caller's back.
        let mut tasks = JoinSet::new();
        for key in &config.streams {
            let source =
                Source { stream: key.clone(), group: Some(config.group.clone()), consumer: config.consumer.clone() };
            let stream = Arc::new(Stream::new(config, source, &link, &self.counters));
            let (work, fleet, key) = (Arc::clone(&work), fleet.clone(), key.clone());
            tasks.spawn(async move {
                let (send, receive) = mpsc::channel(4);
                let worker = Worker::new(&stream, work, fleet, receive);
                let mut steward = JoinSet::new();
                if stream.config.acknowledge != Acknowledge::NoAck {
                    steward.spawn(steward::run(Arc::clone(&stream), send));
                }
                (key, worker.run().await)
            });
        }
        let mut report = DrainReport { consumer_removed: true, ..DrainReport::default() };
        let mut failure = None;
        while let Some(joined) = tasks.join_next().await {
            let error = match joined {
                Ok((_, Ok(drained))) => {
                    report.merge(&drained);
                    continue;
                }
                Ok((_, Err(error))) => error,
                Err(panic) if panic.is_panic() => RunError::Panicked { stream: config.streams[0].clone() },
                Err(_) => continue,
            };
            // One stream cannot go on for good. The others stop as well, gracefully: a consumer that runs on with a part of
            // its streams looks healthy and is not.
            failure.get_or_insert(error);
            if !fleet.shutdown.is_stopping() {
                fleet.shutdown.stop();
            }
        }
        report.stats = self.counters.snapshot();
        match failure {
            None => Ok(report),
            Some(error) => Err(error),
        }
    }
}
