//! Durable consumers: they read through a consumer group, at least once, whatever dies in between.
//!
//! `config` is the builder; `run` sees to the streams of a consumer; `worker` is the loop of one stream, made of `reading` (the socket), `start` (handlers),
//! `settle` (outcomes) and `stop`; `steward` renews leases and takes over abandoned entries beside it; `group` keeps the
//! group there.

mod afterwards;
mod arriving;
mod config;
mod first;
mod flight;
mod flights;
mod gaps;
mod group;
mod held;
mod mode;
mod reading;
mod rewound;
mod run;
mod settle;
mod single;
mod start;
mod steward;
mod stop;
mod stream;
mod suspects;
mod waiting;
mod worker;

pub use afterwards::DeadLetterLayout;
pub use config::{Acknowledge, DurableBuilder, OnGroupLost, RetryOrder};
pub use stop::DrainReport;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use stream_core::{ConsumerName, GroupName, StreamKey};

use crate::codec::FromDelivery;
use crate::error::RunError;
use crate::handler::Handler;
use crate::health::{HealthHandle, Pulses};
use crate::observe::{Counters, Stats};
use crate::shutdown::Shutdown;
use crate::work::{Batch, IntoOutcomes, Single};
use crate::{job, link};
use config::Config;

/// A consumer of a group that is ready to run; made by [`DurableBuilder::build`].
#[derive(Debug)]
#[must_use = "a consumer does nothing until it runs"]
pub struct DurableConsumer {
    config: Arc<Config>,
    counters: Arc<Counters>,
    pulses: Pulses,
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
        let pulses = Pulses::new(config.streams.len());
        Self { config: Arc::new(config), counters: Arc::default(), pulses }
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

    /// How long one attempt may take.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.config.timeout
    }

    /// A handle to the counters, for metrics and probes.
    pub fn stats(&self) -> StatsHandle {
        StatsHandle(Arc::clone(&self.counters))
    }

    /// A handle to how it is, for probes. It costs the consumer nothing for an entry, and the server nothing at all.
    ///
    /// ```
    /// # fn example(client: &stream_redis::Client) -> Result<(), stream_consumer::ConfigError> {
    /// let consumer = stream_consumer::Consumer::durable(client).stream("orders").group("billing").build()?;
    /// let health = consumer.health(); // given to whatever answers the probes
    /// assert!(health.get().is_live());
    /// assert!(!health.get().is_ready(std::time::Duration::from_secs(15))); // it does not run yet
    /// # Ok(())
    /// # }
    /// # example(&stream_testkit::MemoryServer::new().client()).unwrap();
    /// ```
    pub fn health(&self) -> HealthHandle {
        HealthHandle::new(&self.pulses, &self.counters)
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
}
