//! Redis Streams consumers that do not lose messages.
//!
//! A service reads streams through consumer groups, at least once: an entry is acknowledged only after its handler
//! returned, whatever dies in between; a slow handler is not run twice while its process lives; what fails is tried again
//! and in the end moved to the dead letters. Redis 6.2 to 8.6 and Valkey 8 and 9.
//!
//! ```
//! use std::time::Duration;
//! use streamkeeper::{Client, Consumer, Context, Json, RetryPolicy, Shutdown, StartFrom};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     id: u64,
//! }
//!
//! # async fn example(server: stream_testkit::MemoryServer) -> Result<(), Box<dyn std::error::Error>> {
//! # server.add("orders", [("data", r#"{"id":7}"#)]);
//! # let client = server.client();
//! # #[cfg(any())]
//! let client = Client::open("redis://127.0.0.1/")?;
//! let shutdown = Shutdown::new();
//! # let stop = shutdown.clone();
//! let report = Consumer::durable(&client)
//!     .stream("orders")
//!     .group("billing")
//!     .start(StartFrom::Beginning) // only where the group is created
//!     .concurrency(64)
//!     .lease(Duration::from_secs(30)) // how soon a dead process is noticed, not how long a handler may run
//!     .retry(RetryPolicy::exponential(Duration::from_secs(1)..=Duration::from_secs(300)).max_attempts(8))
//!     .dead_letter("orders:dead")
//!     .build()?
//!     .run_with(&shutdown, move |Json(order): Json<Order>, cx: Context| {
//! #       stop.stop();
//!         async move {
//!             println!("order {} at attempt {}", order.id, cx.attempt());
//!             Ok::<_, std::io::Error>(())
//!         }
//!     })
//!     .await?;
//! assert_eq!(report.stats.acknowledged, 1);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(example(stream_testkit::MemoryServer::new())).unwrap();
//! ```
//!
//! # Overview
//!
//! | For | Use |
//! |---|---|
//! | where the server is | [`Client`], [`ConnectOptions`] |
//! | a consumer of a group | [`Consumer::durable`], [`DurableBuilder`], [`DurableConsumer`] |
//! | following a stream without leaving anything on the server | [`Consumer::ephemeral`], [`EphemeralBuilder`], [`EphemeralConsumer`], [`Entries`] |
//! | a handler's arguments | [`Json`], [`Data`], [`Fields`], [`Entry`], [`Context`], [`Attempt`], [`FromDelivery`] |
//! | a handler's answer | `()`, [`Outcome`], `Result` of these |
//! | a handler of many at once | [`DurableConsumer::run_batches`] |
//! | a loop of one's own | [`DurableConsumer::deliveries`], [`Deliveries`], [`PulledDelivery`] |
//! | stopping | [`Shutdown`], [`shutdown_signal`], [`DrainReport`], [`EphemeralReport`] |
//! | seeing what happens | [`Observer`], [`Event`], [`Stats`], spans and events of `tracing`; [`Health`] for probes |
//! | several consumers and maintenance in one process | [`Host`], [`host`] |
//! | configuration by the environment | [`Settings`], [`settings`] |
//! | publishing | [`Publisher`] |
//! | one logical stream over several, for the nodes of a cluster | [`Partitions`], [`PartitionedPublisher`], [`DurableBuilder::partitions`] |
//! | tests without a server | [`testing`](crate#features) |
//! | working beside Prefect | [`PrefectMessage`], [`PrefectPublisher`], [`PrefectKeys`], [`Outcome::stop`], [`Consumer::ephemeral_subscription`] |
//! | working beside `FastStream` | [`FastStream`], [`FastStreamPublisher`], [`FastStreamMessage`], [`Acknowledge`] |
//! | what failed for good | [`DeadLetter`], [`maint::DeadLetters`] |
//! | trimming, clean-up, lag | [`maint`] |
//!
//! What is guaranteed, under which conditions, and where it is proven: [`guarantees`].
//!
//! # Features
//!
//! | Feature | Default | Adds |
//! |---|---|---|
//! | `rustls` | no | `rediss://`: TLS by rustls, with the ring provider |
//! | `testing` | no | `testing`: a server in memory, for the tests of what is built on this crate |

mod chain;
pub mod guarantees;
pub mod host;
pub mod maint;
pub mod settings;
#[cfg(feature = "testing")]
pub mod testing;

pub use host::Host;
pub use settings::Settings;
pub use stream_consumer::{
    Acknowledge, Attempt, ConfigError, Consumer, Context, DATA_FIELD, Data, DeadLetterLayout, DecodeError, Deliveries,
    Delivery, DrainReport, DurableBuilder, DurableConsumer, Entries, EphemeralBuilder, EphemeralConsumer,
    EphemeralReport, Event, FastStream, FastStreamBody, FastStreamEnvelope, Fields, FromDelivery, Handler, Health,
    HealthHandle, IntoOutcome, IntoOutcomes, Json, Observer, OnGap, OnGroupLost, Positions, PrefectMessage,
    PulledDelivery, RetryOrder, RunError, RunState, Shutdown, Stats, StatsHandle, shutdown_signal,
};
pub use stream_core::{
    BackoffPolicy, ConsumerName, DeadLetter, DeadLetterError, DeadReason, Entry, EntryId, GroupName, Outcome,
    Partitions, PartitionsError, PrefectKeys, RestartPolicy, RetryPolicy, StartFrom, StreamKey,
};
pub use stream_redis::command::Precision;
pub use stream_redis::{
    Address, Client, ClusterOptions, ConnectOptions, ConnectOptionsBuilder, CredentialProvider, Credentials, Error,
    ErrorKind, FastStreamFormat, FastStreamMessage, FastStreamPublisher, Keepalive, PartitionedPublisher,
    PrefectPublisher, PrefectPublisherBuilder, Protocol, PublishError, Publisher, PublisherBuilder, Receipt, Recovery,
    SentinelOptions, Unconfirmed,
};
#[cfg(feature = "rustls")]
pub use stream_redis::{Pem, TlsOptions};
