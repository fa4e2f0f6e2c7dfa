//! Counts that cannot be set: all that is to be counted waits for the same time, and stays what it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Entry, Outcome, RetryOrder, RetryPolicy, Shutdown};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, abandoned, publish, settled};

#[tokio::test(start_paused = true)]
async fn retries_share_one_pause_while_the_server_is_busy() {
    let server = MemoryServer::new();
    publish(&server, "s", 200);
    server.fail_always("EVALSHA TAKE", Fault::error("BUSY Redis is busy running a script."));
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer =
        Consumer::durable(&server.client()).stream("s").group("g").retry(RetryPolicy::immediate()).build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                let fails = cx.attempt() == 1;
                let noted = journal.done(cx);
                async move {
                    noted.await;
                    if fails { Outcome::failed("not yet") } else { Outcome::Done }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_mins(10)).await;
    // One entry alone asks as often: ever more seldom, down to the longest pause of the backoff.
    let asked = server.count("EVALSHA TAKE");
    assert!(asked < 60, "asked {asked} times in ten minutes");
    server.clear_faults();
    settled(&server, "s", "g", 200, &journal).await;
    assert!(journal.attempts().values().all(|attempts| *attempts == [1, 2]), "{:?}", journal.attempts());
    shutdown.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn suspects_that_could_not_be_counted_are_still_started_one_at_a_time() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 10, 3);
    for _ in 0..10 {
        server.fail_next("EVALSHA TAKE", Fault::error("BUSY Redis is busy running a script."));
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown, most) = (journal.clone(), shutdown.clone(), Arc::clone(&most));
        async move {
            let handler = move |cx: Context| {
                let (noted, running, most) = (journal.done(cx), Arc::clone(&running), Arc::clone(&most));
                async move {
                    noted.await;
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    sleep(Duration::from_secs(5)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    settled(&server, "s", "g", 10, &journal).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(server.count("EVALSHA TAKE") > 10);
    shutdown.stop();
    run.await.unwrap().unwrap();
}

/// Reads that were held up for the order go on, also where what they were held up for is lost during the pause.
#[tokio::test(start_paused = true)]
async fn in_order_reading_goes_on_after_what_could_not_be_counted_is_lost() {
    let server = MemoryServer::new();
    publish(&server, "s", 3);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(1)
        .lease(Duration::from_secs(3))
        .retry_order(RetryOrder::InPlace)
        .retry(RetryPolicy::immediate())
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                let fails = cx.attempt() == 1;
                let noted = journal.done(cx);
                async move {
                    noted.await;
                    if fails { Outcome::failed("not yet") } else { Outcome::Done }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    server.fail_always("EVALSHA TAKE", Fault::error("BUSY Redis is busy running a script."));
    // By now the pauses are longer than leases are renewed.
    sleep(Duration::from_mins(5)).await;
    server.command(["DEL", "s"]).unwrap();
    sleep(Duration::from_secs(2)).await;
    server.clear_faults();
    publish(&server, "s", 5);
    stream_testkit::eventually(Duration::from_mins(10), "the new stream to be handled", || {
        let done = server
            .group_last_delivered("s", "g")
            .is_some_and(|last| Some(last) == server.entries("s").last().map(Entry::id));
        std::future::ready((done && server.pending("s", "g").is_empty()).then_some(()))
    })
    .await;
    shutdown.stop();
    run.await.unwrap().unwrap();
}

/// The bytes are no reason to keep an entry from its next attempt once its body is not held any more.
#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_its_share_is_tried_as_often_as_any_other() {
    for order in [RetryOrder::Later, RetryOrder::InPlace] {
        for busy in [0, 1, 3] {
            let server = MemoryServer::new();
            server.set_latency(Duration::from_millis(1));
            for _ in 0..3 {
                server.add("s", [("data", "x".repeat(10_000))]);
            }
            let journal = Journal::default();
            let shutdown = Shutdown::new();
            let consumer = Consumer::durable(&server.client())
                .stream("s")
                .group("g")
                .prefetch_bytes(1)
                .retry(RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(4))
                .retry_order(order)
                .build()
                .unwrap();
            let run = tokio::spawn({
                let (journal, shutdown, server) = (journal.clone(), shutdown.clone(), server.clone());
                async move {
                    let handler = move |cx: Context| {
                        if cx.attempt() == 2 {
                            for _ in 0..busy {
                                server.fail_next("EVALSHA TAKE", Fault::error("BUSY Redis is busy running a script."));
                            }
                        }
                        let noted = journal.done(cx);
                        async move {
                            noted.await;
                            Outcome::failed("always")
                        }
                    };
                    consumer.run_with(&shutdown, handler).await
                }
            });
            settled(&server, "s", "g", 3, &journal).await;
            assert_eq!(server.len("s:dead"), 3, "{order:?}, busy {busy} times");
            let attempts = journal.attempts();
            assert!(attempts.values().all(|attempts| *attempts == [1, 2, 3, 4]), "{order:?}, {busy}: {attempts:?}");
            shutdown.stop();
            run.await.unwrap().unwrap();
        }
    }
}
