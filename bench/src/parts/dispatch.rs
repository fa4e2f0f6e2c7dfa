//! Dispatch: a consumer, mostly the durable one, with a handler that does nothing, on a server that costs next to nothing. Reads are
//! answered from entries that are there already, acknowledgements with their number; the rest is the in-memory server.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use async_trait::async_trait;
use stream_core::{Entry, EntryId, StreamKey};
use stream_redis::{
    Client, Connection, Connector, Error, ReadBatch, ReadProgress, ReadRequest, Reader, Request, ServerError, Value,
};
use stream_testkit::MemoryServer;
use streamkeeper::{Consumer, Data, DurableConsumer, Shutdown, StartFrom};
use tokio::runtime::{Builder, Runtime};

use super::Part;

const ENTRIES: u64 = 20_000;

/// A handler of single entries.
pub(super) fn no_op(concurrency: usize) -> Part {
    let (runtime, entries) = (runtime(), entries());
    Part::new(ENTRIES, move || {
        runtime.block_on(async {
            let (consumer, shutdown, seen) = begin(&entries, concurrency);
            let stop = shutdown.clone();
            let handler = move |Data(_): Data| {
                if seen.fetch_add(1, Ordering::Relaxed) + 1 == ENTRIES {
                    stop.stop();
                }
                async {}
            };
            end(consumer.run_with(&shutdown, handler).await);
        });
    })
}

/// A handler of batches.
pub(super) fn batches() -> Part {
    let (runtime, entries) = (runtime(), entries());
    Part::new(ENTRIES, move || {
        runtime.block_on(async {
            let (consumer, shutdown, seen) = begin(&entries, 64);
            let stop = shutdown.clone();
            let handler = move |batch: Vec<Data>| {
                let more = batch.len() as u64;
                if seen.fetch_add(more, Ordering::Relaxed) + more == ENTRIES {
                    stop.stop();
                }
                async {}
            };
            end(consumer.run_batches(&shutdown, 1_000, handler).await);
        });
    })
}

/// The ephemeral consumer.
pub(super) fn ephemeral() -> Part {
    let (runtime, entries) = (runtime(), entries());
    Part::new(ENTRIES, move || {
        runtime.block_on(async {
            let consumer = Consumer::ephemeral(&canned(&entries)).stream("orders").start(StartFrom::Beginning).build();
            let consumer = consumer.unwrap_or_else(|error| panic!("the settings are fine: {error}"));
            let (shutdown, seen) = (Shutdown::new(), AtomicU64::new(0));
            let stop = shutdown.clone();
            let handler = move |Data(_): Data| {
                if seen.fetch_add(1, Ordering::Relaxed) + 1 == ENTRIES {
                    stop.stop();
                }
                async {}
            };
            match consumer.run_with(&shutdown, handler).await {
                Ok(report) => assert_eq!(report.stats.handled, ENTRIES, "{report:?}"),
                Err(error) => panic!("nothing fails here: {error}"),
            }
        });
    })
}

fn canned(entries: &Arc<Vec<Entry>>) -> Client {
    let memory = MemoryServer::new().client();
    Client::from_connector(Canned { memory, entries: Arc::clone(entries) })
}

fn begin(entries: &Arc<Vec<Entry>>, concurrency: usize) -> (DurableConsumer, Shutdown, Arc<AtomicU64>) {
    let client = canned(entries);
    let consumer = Consumer::durable(&client).stream("orders").group("billing").concurrency(concurrency).build();
    let consumer = consumer.unwrap_or_else(|error| panic!("the settings are fine: {error}"));
    (consumer, Shutdown::new(), Arc::default())
}

fn end(report: Result<streamkeeper::DrainReport, streamkeeper::RunError>) {
    match report {
        Ok(report) => assert_eq!(report.stats.acknowledged, ENTRIES, "{report:?}"),
        Err(error) => panic!("nothing fails here: {error}"),
    }
}

fn runtime() -> Runtime {
    // What the consumer decides by the time that passes, it decides alike in every run.
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap_or_else(|error| panic!("a runtime needs a few descriptors: {error}"))
}

fn entries() -> Arc<Vec<Entry>> {
    let payload = "x".repeat(200);
    let entry = |number: u64| {
        let entry = Entry::new(EntryId::new(1_700_000_000_000 + number, 0), [("data", &payload)]);
        entry.unwrap_or_else(|_| unreachable!("the payload is small"))
    };
    Arc::new((0..ENTRIES).map(entry).collect())
}

struct Canned {
    memory: Client,
    entries: Arc<Vec<Entry>>,
}

impl fmt::Debug for Canned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Canned")
    }
}

#[async_trait]
impl Connector for Canned {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        Ok(Arc::new(Acknowledged { memory: self.memory.connector().connect(key).await? }))
    }

    async fn open_reader(&self, _: &StreamKey, _: &str) -> Result<Box<dyn Reader>, Error> {
        Ok(Box::new(Given { entries: Arc::clone(&self.entries), at: 0, in_flight: VecDeque::new() }))
    }
}

/// Answers `XACK` itself.
struct Acknowledged {
    memory: Arc<dyn Connection>,
}

#[async_trait]
impl Connection for Acknowledged {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        if requests.iter().all(|request| request.command() == "XACK") {
            // The command, the key, the group, and then ids.
            return Ok(requests.iter().map(|request| Ok(Value::Int(request.args().len() as i64 - 3))).collect());
        }
        self.memory.send(requests).await
    }
}

/// Answers reads with what there is, and does not answer when there is no more.
struct Given {
    entries: Arc<Vec<Entry>>,
    at: usize,
    in_flight: VecDeque<usize>,
}

impl Reader for Given {
    fn submit(&mut self, read: &ReadRequest) {
        self.in_flight.push_back(read.count);
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn poll_next(&mut self, _: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Result<ReadProgress, Error>> {
        let left = &self.entries[self.at..];
        if left.is_empty() {
            return Poll::Pending;
        }
        let Some(count) = self.in_flight.pop_front() else { return Poll::Pending };
        let total = count.min(left.len());
        batch.entries.extend_from_slice(&left[..total]);
        self.at += total;
        Poll::Ready(Ok(ReadProgress::Complete { total }))
    }
}
