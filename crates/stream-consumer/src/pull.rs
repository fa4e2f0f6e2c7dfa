//! [`Deliveries`]: entries as a stream, for those who own their loop.
//!
//! Underneath runs the same loop as for handlers; here the "handler" of an entry is whoever holds its [`PulledDelivery`].
//! Its lease is renewed for as long as it is held. One that is dropped without a word is given back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::Stream;
use stream_core::{Entry, EntryId, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::codec::{DecodeError, FromDelivery};
use crate::delivery::{Context, Delivery};
use crate::durable::{DrainReport, DurableConsumer};
use crate::error::RunError;
use crate::job::too_long;
use crate::shutdown::Shutdown;
use crate::tasks::gated;
use crate::work::{Begun, Outcomes, Work};

/// An entry that was pulled. Say what became of it with [`settle`](Self::settle); dropped without a word, it is given back
/// and handled again.
#[derive(Debug)]
#[must_use = "an entry that is dropped without a word is given back"]
pub struct PulledDelivery {
    delivery: Delivery,
    context: Context,
    settle: oneshot::Sender<Outcome>,
}

impl PulledDelivery {
    /// The entry.
    pub fn entry(&self) -> &Entry {
        self.delivery.entry()
    }

    /// The entry's id.
    pub fn id(&self) -> EntryId {
        self.delivery.id()
    }

    /// What is known of this delivery, and whether it is still ours.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Decodes the entry with an extractor.
    ///
    /// # Errors
    /// [`DecodeError`]; the entry stays yours to settle, for example with [`Outcome::reject`].
    pub fn extract<T: FromDelivery>(&self) -> Result<T, DecodeError> {
        T::from_delivery(&self.delivery)
    }

    /// Says what became of the entry: done, to be tried again, to the dead letters, or given back.
    pub fn settle(self, outcome: Outcome) {
        // The consumer may have stopped meanwhile; then the entry was given back already.
        let _ = self.settle.send(outcome);
    }

    /// [`settle`](Self::settle) with [`Outcome::Done`].
    pub fn acknowledge(self) {
        self.settle(Outcome::Done);
    }
}

/// A stream of deliveries; made by [`DurableConsumer::deliveries`]. It ends when the consumer has stopped.
///
/// At most as many entries as the concurrency can be held at a time: settle them, or no more will come. Dropping the stream
/// stops the consumer; [`stop`](Self::stop) waits for it and reports.
#[derive(Debug)]
pub struct Deliveries {
    deliveries: mpsc::Receiver<Offered>,
    shutdown: Shutdown,
    run: Option<JoinHandle<Result<DrainReport, RunError>>>,
}

/// A delivery on its way, and how its taking is told.
#[derive(Debug)]
struct Offered {
    pulled: PulledDelivery,
    taken: oneshot::Sender<()>,
}

impl Offered {
    fn take(self) -> PulledDelivery {
        // The consumer may have stopped meanwhile; then the entry was given back already.
        let _ = self.taken.send(());
        self.pulled
    }
}

impl Deliveries {
    /// The next delivery; `None` when the consumer has stopped, for the reason that [`stop`](Self::stop) tells.
    pub async fn next(&mut self) -> Option<PulledDelivery> {
        self.deliveries.recv().await.map(Offered::take)
    }

    /// Stops gracefully: what is held may still be settled within the grace period.
    ///
    /// # Errors
    /// Why the consumer had ended before, if it had.
    ///
    /// # Panics
    /// When a task of the consumer panicked, which is a bug of the library.
    pub async fn stop(mut self) -> Result<DrainReport, RunError> {
        self.shutdown.stop();
        // Entries that nobody took are given back by being dropped.
        self.deliveries.close();
        while self.deliveries.recv().await.is_some() {}
        match self.run.take() {
            Some(run) => run.await.expect("the consumer's own task does not panic"),
            None => Ok(DrainReport::default()),
        }
    }
}

impl Stream for Deliveries {
    type Item = PulledDelivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.deliveries.poll_recv(cx).map(|offered| offered.map(Offered::take))
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

impl DurableConsumer {
    /// Consumes as a stream: the caller owns the loop, and settles each delivery. With a
    /// [`timeout`](crate::DurableBuilder::timeout), one that is held for longer has failed: its context is cancelled, and what
    /// is said of it afterwards is of no account. The time until it is taken does not count.
    ///
    /// ```
    /// # use stream_consumer::Consumer;
    /// # async fn example(client: stream_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut deliveries = Consumer::durable(&client).stream("orders").group("billing").build()?.deliveries();
    /// while let Some(delivery) = deliveries.next().await {
    ///     println!("{:?}", delivery.entry().get("data"));
    ///     delivery.acknowledge();
    /// #   break;
    /// }
    /// let report = deliveries.stop().await?;
    /// # assert_eq!(report.stats.acknowledged, 1);
    /// # Ok(())
    /// # }
    /// # let server = stream_testkit::MemoryServer::new();
    /// # server.add("orders", [("data", "7")]);
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    /// #     .block_on(example(server.client())).unwrap();
    /// ```
    pub fn deliveries(self) -> Deliveries {
        let (send, deliveries) = mpsc::channel(1);
        let shutdown = Shutdown::new();
        let turned = shutdown.clone();
        let limit = self.timeout();
        let run = tokio::spawn(gated(async move { self.run_work(&turned, Arc::new(Pull { send, limit })).await }));
        Deliveries { deliveries, shutdown, run: Some(run) }
    }
}

/// Gives each delivery to the puller and waits for its word.
struct Pull {
    send: mpsc::Sender<Offered>,
    /// How long a delivery may be held.
    limit: Option<Duration>,
}

impl Work for Pull {
    type Future = Pin<Box<dyn Future<Output = Outcomes> + Send>>;

    fn batch(&self) -> usize {
        1
    }

    fn begin(&self, deliveries: &[Delivery]) -> Begun<Self::Future> {
        let Some(delivery) = deliveries.first() else { return Begun { future: None, undecodable: Vec::new() } };
        let (settle, settled) = oneshot::channel();
        let pulled = PulledDelivery { context: delivery.context(), delivery: delivery.share(), settle };
        let (taken, was_taken) = oneshot::channel();
        let (send, limit, token) = (self.send.clone(), self.limit, pulled.context.token().clone());
        let future = async move {
            if send.send(Offered { pulled, taken }).await.is_err() || was_taken.await.is_err() {
                return Outcomes::All(Outcome::Release);
            }
            let settled = async { settled.await.unwrap_or(Outcome::Release) };
            let Some(limit) = limit else { return Outcomes::All(settled.await) };
            let outcome = tokio::time::timeout(limit, settled).await.unwrap_or_else(|_| {
                token.cancel();
                too_long(limit)
            });
            Outcomes::All(outcome)
        };
        Begun { future: Some(Box::pin(future)), undecodable: Vec::new() }
    }

    /// The time until it is taken is not that of an attempt, so what limits it begins then.
    fn limit(&self, _: Option<Duration>) -> Option<Duration> {
        None
    }
}
