//! [`Entries`]: what an ephemeral consumer reads, as a stream, for those who own their loop.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use stream_core::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{EphemeralConsumer, EphemeralReport};
use crate::delivery::Delivery;
use crate::error::RunError;
use crate::shutdown::Shutdown;
use crate::tasks::gated;
use crate::work::{Begun, Outcomes, Work};

/// A stream of entries; made by [`EphemeralConsumer::entries`]. It ends when the consumer has stopped.
///
/// Reading goes ahead by no more than the builder's prefetch, however slowly the entries are taken. Dropping the stream
/// stops the consumer; [`stop`](Self::stop) waits for it and reports.
#[derive(Debug)]
pub struct Entries {
    entries: mpsc::Receiver<Given>,
    shutdown: Shutdown,
    run: Option<JoinHandle<Result<EphemeralReport, RunError>>>,
}

/// An entry on its way, and how its taking is told.
#[derive(Debug)]
struct Given {
    delivery: Delivery,
    taken: oneshot::Sender<()>,
}

impl Given {
    fn take(self) -> Delivery {
        // The consumer may have stopped meanwhile; then the entry is taken all the same.
        let _ = self.taken.send(());
        self.delivery
    }
}

impl Entries {
    /// The next entry; `None` when the consumer has stopped, for the reason that [`stop`](Self::stop) tells.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.entries.recv().await.map(Given::take)
    }

    /// Stops. The report's positions say where to go on; entries that were not taken are not counted as handled.
    ///
    /// # Errors
    /// Why the consumer had ended before, if it had.
    ///
    /// # Panics
    /// When a task of the consumer panicked, which is a bug of the library.
    pub async fn stop(mut self) -> Result<EphemeralReport, RunError> {
        self.shutdown.stop();
        // What nobody took is released by being dropped.
        self.entries.close();
        while self.entries.recv().await.is_some() {}
        match self.run.take() {
            Some(run) => run.await.expect("the consumer's own task does not panic"),
            None => Ok(EphemeralReport::default()),
        }
    }
}

impl Stream for Entries {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.entries.poll_recv(cx).map(|given| given.map(Given::take))
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

impl EphemeralConsumer {
    /// Reads as a stream: the caller owns the loop. An entry counts as handled when it is taken, and waits for that as long
    /// as it takes: to be taken is no attempt, so [`timeout`](super::EphemeralBuilder::timeout) and
    /// [`retry`](super::EphemeralBuilder::retry) have no meaning here.
    ///
    /// ```
    /// # use stream_consumer::{Consumer, StartFrom};
    /// # async fn example(client: stream_redis::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let consumer = Consumer::ephemeral(&client).stream("events").start(StartFrom::Beginning).build()?;
    /// let mut entries = consumer.entries();
    /// while let Some(event) = entries.next().await {
    ///     println!("{:?}", event.entry().get("data"));
    /// #   break;
    /// }
    /// entries.stop().await?;
    /// # Ok(())
    /// # }
    /// # let server = stream_testkit::MemoryServer::new();
    /// # server.add("events", [("data", "7")]);
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    /// #     .block_on(example(server.client())).unwrap();
    /// ```
    pub fn entries(self) -> Entries {
        let (send, entries) = mpsc::channel(1);
        let shutdown = Shutdown::new();
        let turned = shutdown.clone();
        let run = tokio::spawn(gated(async move { self.run_work(&turned, Arc::new(Give { send })).await }));
        Entries { entries, shutdown, run: Some(run) }
    }
}

/// Gives each entry to whoever takes it.
struct Give {
    send: mpsc::Sender<Given>,
}

impl Work for Give {
    type Future = Pin<Box<dyn Future<Output = Outcomes> + Send>>;

    fn batch(&self) -> usize {
        1
    }

    fn begin(&self, deliveries: &[Delivery]) -> Begun<Self::Future> {
        let Some(delivery) = deliveries.first() else { return Begun { future: None, undecodable: Vec::new() } };
        let (taken, was_taken) = oneshot::channel();
        let delivery = Delivery::new(delivery.entry().clone(), delivery.attempt(), Arc::clone(&delivery.source));
        let given = Given { delivery, taken };
        let send = self.send.clone();
        let future = async move {
            if send.send(given).await.is_ok() && was_taken.await.is_ok() {
                return Outcomes::All(Outcome::Done);
            }
            Outcomes::All(Outcome::Release)
        };
        Begun { future: Some(Box::pin(future)), undecodable: Vec::new() }
    }

    /// It is the caller who lets an entry wait; giving that up would skip it.
    fn limit(&self, _: Option<Duration>) -> Option<Duration> {
        None
    }
}
