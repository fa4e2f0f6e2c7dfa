//! Consumers of Redis Streams that do not lose entries, and do not run them twice while their owner lives.
//!
//! * [`Consumer::durable`]: through a consumer group, at least once, with leases, retries and dead letters.
//! * [`Consumer::ephemeral`]: along a stream without any state on the server, from its end or from an id.
//! * [`Handler`] and the extractors ([`Json`], [`Data`], [`Fields`], [`Context`], ...): what runs for an entry.
//! * [`Deliveries`]: the same as a stream, for those who own their loop.
//! * [`Shutdown`], [`DrainReport`]: stopping without losing anything.
//! * [`Observer`], [`Event`], [`Stats`]: what happens meanwhile; [`Health`]: how it is now, for probes.

mod codec;
mod delivery;
mod durable;
mod ephemeral;
mod error;
mod handler;
mod health;
mod job;
mod lane;
mod link;
mod observe;
mod pace;
mod pull;
mod shutdown;
mod work;

pub use codec::{Attempt, DATA_FIELD, Data, DecodeError, Fields, FromDelivery, Json};
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

use stream_redis::Client;

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
}
