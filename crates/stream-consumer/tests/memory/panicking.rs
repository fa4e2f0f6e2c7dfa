//! Code of the user that panics where nobody expects it: in destructors, also of what a panic carries, after polls in place.

use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread::panicking;
use std::time::Duration;

use stream_consumer::{Consumer, Data, DecodeError, Delivery, FromDelivery, Outcome, RetryPolicy, Shutdown, StartFrom};
use stream_testkit::{MemoryServer, eventually};

use super::support::publish;

/// Enough to have most handlers polled in place, where they were seen to be quick.
const ENTRIES: usize = 200;
const FAILING: u64 = 20;

/// Panics when it is dropped.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0 || panicking(), "dropped");
    }
}

/// A handler that is ready at once.
struct Ready {
    fails: bool,
    /// Dropped with it.
    _bomb: Bomb,
}

impl Future for Ready {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Outcome> {
        if self.fails {
            panic_any(Bomb(true));
        }
        Poll::Ready(Outcome::Done)
    }
}

/// Every tenth is one that fails in each way it can.
fn handle(data: &Data) -> Ready {
    let fails = data.0.ends_with(b"7");
    Ready { fails, _bomb: Bomb(fails) }
}

fn server() -> MemoryServer {
    let server = MemoryServer::new();
    publish(&server, "s", ENTRIES);
    server
}

/// Runs until the counters say that all entries are settled.
async fn run_out<R, E: std::fmt::Debug>(
    shutdown: &Shutdown,
    settled: impl Fn() -> u64,
    run: impl Future<Output = Result<R, E>>,
) -> R {
    let stop = async {
        eventually(Duration::from_hours(1), "all entries to be settled", || {
            std::future::ready((settled() == ENTRIES as u64).then_some(()))
        })
        .await;
        shutdown.stop();
    };
    tokio::pin!(run);
    tokio::select! {
        ended = &mut run => { ended.expect("it ended before it was stopped"); panic!("it ended before it was stopped") }
        () = stop => {}
    }
    run.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn destructors_that_panic_fail_their_entry_and_nothing_else() {
    for batches in [false, true] {
        let (server, shutdown) = (server(), Shutdown::new());
        let consumer = Consumer::durable(&server.client())
            .stream("s")
            .group("g")
            .retry(RetryPolicy::immediate().max_attempts(1))
            .build()
            .unwrap();
        let stats = consumer.stats();
        let settled = || stats.get().acknowledged + stats.get().dead_lettered;
        let report = if batches {
            let handler = |items: Vec<Data>| handle(&items[0]);
            run_out(&shutdown, settled, consumer.run_batches(&shutdown, 1, handler)).await
        } else {
            run_out(&shutdown, settled, consumer.run_with(&shutdown, |data: Data| handle(&data))).await
        };
        assert_eq!((report.stats.handled, report.stats.dead_lettered), (ENTRIES as u64 - FAILING, FAILING));
    }
}

#[tokio::test(start_paused = true)]
async fn destructors_that_panic_do_not_end_an_ephemeral_consumer() {
    let (server, shutdown) = (server(), Shutdown::new());
    let consumer = Consumer::ephemeral(&server.client())
        .stream("s")
        .start(StartFrom::Beginning)
        .retry(RetryPolicy::immediate().max_attempts(1))
        .build()
        .unwrap();
    let stats = consumer.stats();
    let settled = || stats.get().handled + stats.get().given_up;
    let report = run_out(&shutdown, settled, consumer.run_with(&shutdown, |data: Data| handle(&data))).await;
    assert_eq!((report.stats.handled, report.stats.given_up), (ENTRIES as u64 - FAILING, FAILING));
}

/// An extractor whose value, or the cause of whose error, panics when it is dropped.
struct Explosive;

impl FromDelivery for Explosive {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        if Data::from_delivery(delivery)?.0.ends_with(b"7") {
            return Err(DecodeError::new("not today").with_source(Cause(Bomb(true))));
        }
        Ok(Self)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it would not do")]
struct Cause(Bomb);

impl std::fmt::Debug for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bomb")
    }
}

#[tokio::test(start_paused = true)]
async fn causes_and_keys_that_panic_fail_their_entry_and_nothing_else() {
    let (server, shutdown) = (server(), Shutdown::new());
    let keys = Arc::new(AtomicU64::new(0));
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .retry(RetryPolicy::immediate().max_attempts(1))
        .order_by_entry({
            let keys = Arc::clone(&keys);
            move |_| -> Option<u64> {
                keys.fetch_add(1, Ordering::SeqCst);
                panic_any(Bomb(true))
            }
        })
        .build()
        .unwrap();
    let stats = consumer.stats();
    let settled = || stats.get().acknowledged + stats.get().dead_lettered;
    let report = run_out(&shutdown, settled, consumer.run_with(&shutdown, |_: Explosive| async {})).await;
    assert_eq!((report.stats.handled, report.stats.dead_lettered), (ENTRIES as u64 - FAILING, FAILING));
    assert_eq!(keys.load(Ordering::SeqCst), ENTRIES as u64);
}
