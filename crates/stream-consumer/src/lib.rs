//! Consumers of Redis Streams that do not lose entries, and do not run them twice while their owner lives.
//!
//! * [`Consumer::durable`]: through a consumer group, at least once, with leases, retries and dead letters.
//! * [`Consumer::ephemeral`]: along a stream without any state on the server, from its end or from an id.
//! * [`Handler`] and the extractors ([`Json`], [`Data`], [`Fields`], [`Context`], [`PrefectMessage`], [`FastStream`], ...): what runs for an entry.
//! * [`Deliveries`]: the same as a stream, for those who own their loop.
//! * [`Shutdown`], [`DrainReport`]: stopping without losing anything.
//! * [`Observer`], [`Event`], [`Stats`]: what happens meanwhile; [`Health`]: how it is now, for probes.

mod codec;
mod delivery;
mod durable;
mod ephemeral;
mod error;
mod guard;
mod handler;
mod health;
mod in_place;
mod job;
mod lane;
mod link;
mod observe;
mod pace;
mod pull;
mod pulse;
mod setting;
mod shutdown;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod spare;
mod tasks;
mod work;

pub use codec::{
    Attempt, DATA_FIELD, Data, DecodeError, FastStream, FastStreamBody, FastStreamEnvelope, Fields, FromDelivery, Json,
    PrefectMessage,
};
pub use delivery::{Context, Delivery};
pub use durable::{
    Acknowledge, DeadLetterLayout, DrainReport, DurableBuilder, DurableConsumer, OnGroupLost, RetryOrder, StatsHandle,
};
pub use ephemeral::{Entries, EphemeralBuilder, EphemeralConsumer, EphemeralReport, OnGap};
pub use error::{ConfigError, RunError};
pub use handler::{Handler, IntoOutcome};
pub use health::{Health, HealthHandle, Positions, RunState};
pub use observe::{Event, Observer, Stats};
pub use pull::{Deliveries, PulledDelivery};
pub use shutdown::{Shutdown, shutdown_signal};
pub use stream_core::{Entry, EntryId, Outcome, RetryPolicy, StartFrom};
pub use work::IntoOutcomes;

use stream_core::StreamKey;
use stream_redis::command::{XInfoStream, run};
use stream_redis::{Client, Error, ErrorKind};

/// Where consumers begin.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Consumer;

impl Consumer {
    /// Builds a consumer that reads through a group and acknowledges what it has handled.
    pub fn durable(client: &Client) -> DurableBuilder {
        DurableBuilder::new(client)
    }

    /// Builds a consumer that follows streams without a group: nothing of it is on the server.
    pub fn ephemeral(client: &Client) -> EphemeralBuilder {
        EphemeralBuilder::new(client)
    }

    /// Like [`ephemeral`](Self::ephemeral), with `stream` and its present end as the start: what is published after this
    /// call returned is received, however much later the consumer runs. Asks the server once; what Prefect calls
    /// `ephemeral_subscription`.
    ///
    /// ```
    /// # use stream_consumer::{Consumer, Outcome, Shutdown};
    /// # async fn example(server: stream_testkit::MemoryServer) -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = server.client();
    /// let subscription = Consumer::ephemeral_subscription(&client, "events").await?;
    /// # server.add("events", [("data", "7")]);
    /// // Whatever is published from here on is received.
    /// let report = subscription.build()?.run_with(&Shutdown::new(), || async { Outcome::stop() }).await?;
    /// assert_eq!(report.stats.handled, 1);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    /// #     .block_on(example(stream_testkit::MemoryServer::new())).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server. A stream that does not exist is no error: it will be read from its first entry on.
    pub async fn ephemeral_subscription(client: &Client, stream: impl AsRef<[u8]>) -> Result<EphemeralBuilder, Error> {
        let refused = |error| Error::new(ErrorKind::Config, "the name of the stream is refused").with_source(error);
        let key = StreamKey::new(stream).map_err(refused)?;
        let connection = client.connector().connect(&key).await?;
        let end = match run(connection.as_ref(), &XInfoStream { key: key.clone() }).await {
            Ok(info) => info.last_generated_id,
            Err(error) if error.kind() == ErrorKind::Missing => EntryId::ZERO,
            Err(error) => return Err(error),
        };
        Ok(Self::ephemeral(client).stream(key).start(StartFrom::Id(end)))
    }
}
