//! The run loop on the in-memory server and on paused time: exact where real servers can only be watched.

mod acknowledging;
mod ahead;
mod blocking;
mod finished;
mod first;
mod half_open;
mod late;
mod lost_group;
mod modes;
mod nodes;
mod owning;
mod panicking;
mod stewarding;
mod stopping;
mod support;
mod suspects;
mod tail;
mod takes;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Entry, Outcome, RetryOrder, RetryPolicy, Shutdown};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;

use support::{Journal, abandoned, publish, settled};

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

#[tokio::test(start_paused = true)]
async fn suspects_do_not_wait_for_places_that_nobody_uses() {
    // In steps of 8 and a rest: several places become free at once when the last are started.
    let (_, took) = suspects(404, Duration::from_secs(30), Order::None).await;
    // The lease, one claim interval, and a moment for each suspect; had each waited for a lease, it would be ten minutes.
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn suspects_get_their_turn_while_there_is_a_backlog() {
    let (suspects, took) = suspects(8_000, Duration::from_secs(3), Order::None).await;
    assert!(took > Duration::from_secs(10) && took < Duration::from_secs(15), "{took:?}");
    // The lease, one claim interval, and a moment for each.
    assert!(suspects < Duration::from_secs(6), "{suspects:?}");
}

#[tokio::test(start_paused = true)]
async fn suspects_are_alone_also_after_they_had_to_wait_for_others_of_their_key() {
    let (suspects, took) = suspects(8_000, Duration::from_secs(3), Order::Keys).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    // Two entries of each key before them are tried again once, after five seconds.
    assert!(suspects > Duration::from_secs(10), "{suspects:?}");
}

#[tokio::test(start_paused = true)]
async fn suspects_are_alone_also_after_they_had_to_wait_for_the_whole_stream() {
    let (suspects, took) = suspects(100, Duration::from_secs(3), Order::Stream).await;
    assert!(took < Duration::from_mins(1), "{took:?}");
    assert!(suspects > Duration::from_secs(5), "{suspects:?}");
}

#[tokio::test(start_paused = true)]
async fn suspects_are_alone_also_after_their_count_could_not_be_set() {
    for (order, others) in [(Order::None, 8_000), (Order::Keys, 8_000), (Order::Stream, 100)] {
        let server = MemoryServer::new();
        let breaking = server.clone();
        let breaker = tokio::spawn(async move {
            // The script has to be known to the server, or what is cut off is the answer that it is not.
            while breaking.count("EVALSHA TAKE") < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            for _ in 0..10 {
                breaking.fail_next("EVALSHA TAKE", Fault::CutAfter);
            }
        });
        suspects_on(server, others, Duration::from_secs(3), order).await;
        breaker.await.unwrap();
    }
}

/// What waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    None,
    /// Entries with a small number, among them all suspects, have one of four keys.
    Keys,
    Stream,
}

fn number(data: &[u8]) -> u32 {
    std::str::from_utf8(data).unwrap().parse().unwrap()
}

async fn suspects(others: usize, lease: Duration, order: Order) -> (Duration, Duration) {
    suspects_on(MemoryServer::new(), others, lease, order).await
}

/// Consumes 20 suspects at their last attempt and `others`; where there is an order, the first of these fail once and are
/// waited for. Checks that whatever a suspect did to its process could be blamed on it alone, and returns how long it took
/// until the last suspect was started and until all was done.
async fn suspects_on(server: MemoryServer, others: usize, lease: Duration, order: Order) -> (Duration, Duration) {
    server.set_latency(Duration::from_millis(1));
    abandoned(&server, "s", 20, 2);
    publish(&server, "s", others);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let mut consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(8)
        .lease(lease)
        .backoff(Duration::from_millis(10), Duration::from_millis(20))
        .retry(RetryPolicy::fixed(Duration::from_secs(5)).max_attempts(3));
    if order != Order::None {
        consumer = consumer.retry_order(RetryOrder::InPlace);
    }
    if order == Order::Keys {
        let number = |entry: &Entry| number(entry.get("data").unwrap_or_default());
        consumer = consumer.order_by_entry(move |entry| Some(number(entry)).filter(|n| *n < 40).map(|n| n % 4));
    }
    let consumer = consumer.build().unwrap();
    let running = Arc::new(AtomicU32::new(0));
    let beside_suspects = Arc::new(AtomicU32::new(0));
    let last_suspect = Arc::new(Mutex::new(Duration::ZERO));
    let began = tokio::time::Instant::now();
    let run = tokio::spawn({
        let (server, journal, shutdown) = (server.clone(), journal.clone(), shutdown.clone());
        let (beside_suspects, last_suspect) = (Arc::clone(&beside_suspects), Arc::clone(&last_suspect));
        async move {
            consumer
                .run_with(&shutdown, move |Data(data): Data, cx: Context| {
                    let (server, journal, running) = (server.clone(), journal.clone(), running.clone());
                    let beside_suspects = Arc::clone(&beside_suspects);
                    if cx.attempt() == 3 {
                        *last_suspect.lock().unwrap() = began.elapsed();
                    }
                    let fails = order != Order::None && cx.attempt() == 1 && number(&data) < 8;
                    async move {
                        let beside = running.fetch_add(1, Ordering::SeqCst);
                        // Were this process to die now, an entry that is counted above the limit would be given up.
                        let blamed = |id, deliveries| id != cx.id() && deliveries > 3;
                        let pending = server.pending("s", "g");
                        let blamed = pending.into_iter().any(|(id, _, _, deliveries)| blamed(id, deliveries));
                        if blamed || (cx.attempt() == 3 && beside > 0) {
                            beside_suspects.fetch_add(1, Ordering::SeqCst);
                        }
                        journal.done(cx).await;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                        if fails { Outcome::failed("once") } else { Outcome::Done }
                    }
                })
                .await
        }
    });
    settled(&server, "s", "g", 20 + others, &journal).await;
    let took = began.elapsed();
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!(beside_suspects.load(Ordering::SeqCst), 0, "handlers ran beside suspects that were not settled");
    assert_eq!((report.stats.handled, report.stats.dead_lettered), (20 + others as u64, 0));
    assert_eq!(journal.attempts().values().filter(|attempts| **attempts == [3]).count(), 20);
    let last_suspect = *last_suspect.lock().unwrap();
    (last_suspect, took)
}
