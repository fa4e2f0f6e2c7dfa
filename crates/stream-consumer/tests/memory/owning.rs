//! Who owns an entry, runs it; nobody else, and nobody twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Event, Outcome, RetryPolicy, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use tokio::time::{Instant, sleep};

use super::support::{Journal, publish, settled};

#[tokio::test(start_paused = true)]
async fn an_observer_or_a_key_that_panics_stops_nothing() {
    let server = MemoryServer::new();
    publish(&server, "s", 10);
    server.command(["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", "5", "STREAMS", "s", ">"]).unwrap();
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .order_by_entry(|entry| {
            assert_ne!(entry.get("data"), Some(&b"7"[..]), "a key that cannot be made");
            Some(0)
        })
        .observer(|_: &StreamKey, event: &Event<'_>| {
            assert!(!matches!(event, Event::TakenOver { .. } | Event::Ready), "an observer with a bug");
        })
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context, Data(_): Data| {
                let journal = journal.clone();
                async move {
                    journal.done(cx).await;
                    // For longer than the lease: whoever renews it is alive.
                    sleep(Duration::from_mins(1)).await;
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    settled(&server, "s", "g", 10, &journal).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.acknowledged, report.stats.leases_lost), (10, 0));
    assert!(journal.attempts().values().all(|attempts| attempts.len() == 1));
}
