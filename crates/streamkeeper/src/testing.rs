//! A server in memory, for the tests of what is built on this crate. Feature `testing`.
//!
//! [`MemoryServer`] stands where a real one would: the same consumers, publishers and maintenance run on it, without a
//! process or a port. What must stay true: it answers as real servers do, which a property test holds against all of the
//! matrix, and nothing but the test decides what happens when.
//!
//! * **Time** is tokio's. In a test with paused time (`#[tokio::test(start_paused = true)]`, tokio's feature
//!   `test-util`) a lease of half a minute passes in no time, and `tokio::time::advance` moves the server's clock as well.
//! * **Generations** of servers differ, and so does the model: [`Profile`].
//! * **Errors** are put in by [`MemoryServer::fail_next`] and its neighbours: [`Fault`].
//!
//! A handler that fails once, and half a minute of waiting that takes no time:
//!
//! ```
//! use std::time::Duration;
//! use streamkeeper::testing::MemoryServer;
//! use streamkeeper::{Consumer, Context, Outcome, RetryPolicy, Shutdown};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! let server = MemoryServer::new();
//! server.add("orders", [("item", "apple")]);
//! let half_a_minute = Duration::from_secs(30);
//! let consumer = Consumer::durable(&server.client())
//!     .stream("orders")
//!     .group("billing")
//!     .retry(RetryPolicy::exponential(half_a_minute..=half_a_minute).max_attempts(3))
//!     .build()?;
//! let shutdown = Shutdown::new();
//! let stop = shutdown.clone();
//! let report = consumer
//!     .run_with(&shutdown, move |cx: Context| {
//!         let last = cx.attempt() == 2;
//!         if last {
//!             stop.stop();
//!         }
//!         async move { if last { Outcome::Done } else { Outcome::retry() } }
//!     })
//!     .await?;
//! assert_eq!(report.stats.acknowledged, 1);
//! assert!(server.pending("orders", "billing").is_empty());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use stream_redis::Client;
pub use stream_testkit::memory::{Fault, Profile};
pub use stream_testkit::{MemoryServer, eventually};

mod sealed {
    pub trait Sealed {}
    impl Sealed for stream_redis::Client {}
}

/// `Client::in_memory()`.
pub trait InMemory: sealed::Sealed {
    /// A client of a server of its own in memory, which lasts as long as the client and its clones.
    ///
    /// To look at what the server holds, or to make it fail, start from [`MemoryServer::client`].
    ///
    /// ```
    /// use streamkeeper::testing::InMemory;
    /// use streamkeeper::{Client, Publisher};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let client = Client::in_memory();
    /// let publisher = Publisher::builder(&client).stream("orders").build()?;
    /// let id = publisher.publish([("item", "apple")]).await?;
    /// assert!(id.ms() > 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    fn in_memory() -> Self;
}

impl InMemory for Client {
    fn in_memory() -> Self {
        MemoryServer::new().client()
    }
}
