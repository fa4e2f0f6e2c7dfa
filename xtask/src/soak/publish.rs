//! The publishers: entries at a steady rate, each written down with what the server said about it.
//!
//! Nothing is published twice by them: where the connection failed, nobody knows whether the entry is there, and that is
//! what is written down. Where a replica may take over, an entry counts as confirmed only when the replica has it as well
//! (`WAIT`): a master that dies before it has passed on what it confirmed loses it by design, and no consumer can help.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stream_redis::{Connection, Request, Value};
use stream_testkit::history::What;
use streamkeeper::{Client, EntryId, Publisher, StreamKey};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::STREAM;
use super::log::Log;
use super::plan::Message;
use crate::Failure;
use crate::fleet::journal::now;

/// Between two batches.
const PAUSE: Duration = Duration::from_millis(100);
/// A server that does not answer for so long is given up.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long a replica may take, in milliseconds.
const REPLICATED_WITHIN: u64 = 1_000;

/// What all publishers of a soak share.
#[derive(Debug)]
pub(crate) struct Publishers {
    pub(crate) client: Client,
    pub(crate) seed: u64,
    /// Entries of each publisher in a second.
    pub(crate) rate: u64,
    /// Whether a replica has to have an entry as well.
    pub(crate) replicated: bool,
    pub(crate) log: Log,
    next: AtomicU64,
    over: AtomicBool,
}

impl Publishers {
    pub(crate) fn new(client: Client, seed: u64, rate: u64, replicated: bool, log: Log) -> Arc<Self> {
        Arc::new(Self { client, seed, rate, replicated, log, next: AtomicU64::new(1), over: AtomicBool::new(false) })
    }

    /// Ends all of them after the batch that they are at.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Messages numbered so far.
    pub(crate) fn numbered(&self) -> u64 {
        self.next.load(Ordering::Relaxed) - 1
    }

    fn batch(&self) -> Vec<Message> {
        let count = self.rate * PAUSE.as_millis() as u64 / 1_000;
        let from = self.next.fetch_add(count, Ordering::Relaxed);
        (from..from + count).map(|number| Message::of(self.seed, number)).collect()
    }

    /// Publishes until all are stopped, over a connection of its own.
    pub(crate) async fn run(self: Arc<Self>) {
        let Ok(key) = StreamKey::new(STREAM) else { return };
        let mut connection: Option<Arc<dyn Connection>> = None;
        let mut tick = interval(PAUSE);
        // Catching up after an outage would be a flood.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.over.load(Ordering::Relaxed) {
            tick.tick().await;
            let open = if let Some(open) = connection.take() {
                open
            } else {
                let opened = timeout(PATIENCE, self.client.connector().connect(&key)).await;
                let Ok(Ok(open)) = opened else { continue };
                open
            };
            if self.publish(&*open, &key, self.batch()).await.is_ok() {
                connection = Some(open);
            }
        }
    }

    /// Publishes one batch. An error means that the connection is of no more use.
    async fn publish(&self, connection: &dyn Connection, key: &StreamKey, batch: Vec<Message>) -> Result<(), Failure> {
        let at = now();
        let requests: Vec<Request> = batch.iter().map(|message| xadd(key, message)).collect();
        let result = timeout(PATIENCE, connection.send(&requests)).await;
        let Ok(Ok(replies)) = result else {
            for message in &batch {
                self.unconfirmed(at, message);
            }
            return Err("the connection failed".into());
        };
        let kept = !self.replicated || self.is_replicated(connection).await;
        let mut failed = !kept;
        for (message, reply) in batch.iter().zip(replies) {
            match reply {
                Ok(value) => match value.as_bytes().and_then(|id| EntryId::parse(id).ok()) {
                    Some(entry) if kept => {
                        let (number, key, fate) = (message.number, message.key, message.fate());
                        self.log.write_at(at, What::Published { entry, number, key, fate });
                    }
                    _ => self.unconfirmed(at, message),
                },
                // Refused: it is not there, and was to be at no time.
                Err(_) => failed = true,
            }
        }
        if failed { Err("not all of it was taken".into()) } else { Ok(()) }
    }

    async fn is_replicated(&self, connection: &dyn Connection) -> bool {
        let wait = Request::new("WAIT").int(1).int(REPLICATED_WITHIN);
        matches!(timeout(PATIENCE, connection.call(&wait)).await, Ok(Ok(Value::Int(1..))))
    }

    fn unconfirmed(&self, at: u64, message: &Message) {
        let (number, key, fate) = (message.number, message.key, message.fate());
        self.log.write_at(at, What::Unconfirmed { number, key, fate });
    }

    /// Publishes until all are stopped, with the library's publisher: it writes again what a failed connection left in
    /// doubt, so each of its messages may be there more than once.
    pub(crate) async fn run_library(self: Arc<Self>) -> Result<(), Failure> {
        let publisher = Publisher::builder(&self.client).stream(STREAM).build()?;
        let mut tick = interval(PAUSE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.over.load(Ordering::Relaxed) {
            tick.tick().await;
            for message in self.batch() {
                let at = now();
                self.unconfirmed(at, &message);
                let receipt = publisher.enqueue(fields(&message)).await?;
                let log = self.log.clone();
                tokio::spawn(async move {
                    if let Ok(entry) = receipt.confirmed().await {
                        let (number, key, fate) = (message.number, message.key, message.fate());
                        log.write_at(at, What::Published { entry, number, key, fate });
                    }
                });
            }
        }
        publisher.close(PATIENCE).await;
        Ok(())
    }
}

fn fields(message: &Message) -> Vec<(&'static str, Vec<u8>)> {
    let mut fields = vec![("data", message.payload()), ("number", message.number.to_string().into_bytes())];
    fields.extend(message.key.map(|key| ("key", key.to_string().into_bytes())));
    fields
}

fn xadd(key: &StreamKey, message: &Message) -> Request {
    let mut request = Request::new("XADD").key(key).arg("*");
    for (name, value) in fields(message) {
        request = request.arg(name).arg(value);
    }
    request
}
