//! The run loop on the in-memory server and on paused time: exact where real servers can only be watched.

mod modes;
mod owning;
mod stopping;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Outcome, RetryPolicy, Shutdown};
use stream_testkit::MemoryServer;

use support::{Journal, publish, settled};

#[tokio::test(start_paused = true)]
async fn every_entry_is_handled_once_and_acknowledged() {
    let server = MemoryServer::new();
    publish(&server, "s", 500);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    settled(&server, "s", "g", 500, &journal).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!(report.stats.acknowledged, 500);
    assert!(report.consumer_removed);
    assert_eq!(journal.attempts().values().filter(|attempts| **attempts == [1]).count(), 500);
}

#[tokio::test(start_paused = true)]
async fn a_failing_entry_is_tried_again_and_then_goes_to_the_dead_letters() {
    let server = MemoryServer::new();
    publish(&server, "s", 10);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .retry(RetryPolicy::fixed(Duration::from_secs(100)).max_attempts(3))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            consumer
                .run_with(&shutdown, move |Data(data): Data, cx: Context| {
                    let journal = journal.clone();
                    async move {
                        journal.done(cx).await;
                        if data == "3" { Outcome::failed("three") } else { Outcome::Done }
                    }
                })
                .await
        }
    });
    settled(&server, "s", "g", 10, &journal).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.dead_lettered, report.stats.retried), (1, 2));
    assert_eq!(server.len("s:dead"), 1);
    assert_eq!(journal.attempts().values().filter(|attempts| **attempts == [1, 2, 3]).count(), 1);
}

/// `count` new entries, delivered twice to a consumer that is dead.
fn abandoned(server: &MemoryServer, key: &str, count: usize) {
    publish(server, key, count);
    let count = count.to_string();
    server.command(["XGROUP", "CREATE", key, "g", "0"]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", &count, "STREAMS", key, ">"]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", &count, "STREAMS", key, "0"]).unwrap();
    for (id, ..) in server.pending(key, "g") {
        let id = id.to_string();
        server.command(["XCLAIM", key, "g", "dead", "0", &id, "RETRYCOUNT", "2", "JUSTID"]).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn suspects_do_not_wait_for_places_that_nobody_uses() {
    // In steps of 8 and a rest: several places become free at once when the last are started.
    let took = suspects(404, Duration::from_secs(30)).await;
    // The lease, one claim interval, and a moment for each suspect; had each waited for a lease, it would be ten minutes.
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn suspects_get_their_turn_while_there_is_a_backlog() {
    let took = suspects(4_000, Duration::from_secs(3)).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// Consumes 20 suspects at their last attempt and `others`. Checks that whatever a suspect did to its process could be
/// blamed on it alone, and returns how long all took.
async fn suspects(others: usize, lease: Duration) -> Duration {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(1));
    abandoned(&server, "s", 20);
    publish(&server, "s", others);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(8)
        .lease(lease)
        .retry(RetryPolicy::immediate().max_attempts(3))
        .build()
        .unwrap();
    let running = Arc::new(AtomicU32::new(0));
    let began = tokio::time::Instant::now();
    let run = tokio::spawn({
        let (server, journal, shutdown) = (server.clone(), journal.clone(), shutdown.clone());
        async move {
            consumer
                .run_with(&shutdown, move |cx: Context| {
                    let (server, journal, running) = (server.clone(), journal.clone(), running.clone());
                    async move {
                        let beside = running.fetch_add(1, Ordering::SeqCst);
                        if cx.attempt() == 3 {
                            assert_eq!(beside, 0, "others run beside a suspect");
                            let blamed = server
                                .pending("s", "g")
                                .into_iter()
                                .filter(|(id, _, _, deliveries)| *id != cx.id() && *deliveries >= 3);
                            assert_eq!(blamed.count(), 0, "an entry that was handled is not acknowledged yet");
                        }
                        journal.done(cx).await;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                    }
                })
                .await
        }
    });
    settled(&server, "s", "g", 20 + others, &journal).await;
    let took = began.elapsed();
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    // A panic would be a failed attempt, and its entry be dead.
    assert_eq!((report.stats.acknowledged, report.stats.dead_lettered), (20 + others as u64, 0));
    assert_eq!(journal.attempts().values().filter(|attempts| **attempts == [3]).count(), 20);
    took
}
