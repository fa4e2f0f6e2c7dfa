//! Who owns an entry, runs it; nobody else, and nobody twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Event, Outcome, RetryOrder, RetryPolicy, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::{Instant, sleep};

use super::support::{Journal, publish, settled};

#[tokio::test(start_paused = true)]
async fn an_entry_that_was_lost_and_came_back_is_not_run_by_its_former_retry_as_well() {
    let server = MemoryServer::new();
    let entry = server.add("s", [("data", "0")]);
    let lease = Duration::from_secs(3);
    let journal = Journal::default();
    let running = Arc::new(AtomicU32::new(0));
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(lease)
        .retry(RetryPolicy::fixed(Duration::from_secs(30)))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                let (journal, running) = (journal.clone(), Arc::clone(&running));
                async move {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "it runs already");
                    let attempt = cx.attempt();
                    journal.done(cx).await;
                    if attempt > 1 {
                        sleep(Duration::from_mins(1)).await;
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    if attempt == 1 { Outcome::failed("not yet") } else { Outcome::Done }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_secs(1)).await;
    // Another takes the entry while it waits for its retry, counts its start, and dies.
    server.command(["XCLAIM", "s", "g", "other", "0", &entry.to_string()]).unwrap();
    sleep(Duration::from_mins(3)).await;
    assert!(server.pending("s", "g").is_empty());
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!(journal.attempts()[&entry], [1, 3]);
    assert_eq!((report.stats.started, report.stats.acknowledged, report.stats.leases_lost), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_loses_nothing_to_a_server_that_does_not_tell_about_its_streams() {
    let server = MemoryServer::new();
    server.deny("XINFO");
    publish(&server, "s", 1);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                let journal = journal.clone();
                async move {
                    journal.done(cx.clone()).await;
                    sleep(Duration::from_mins(2)).await;
                    assert!(!cx.is_cancelled());
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_secs(10)).await;
    server.kill_connections();
    server.kill_readers();
    sleep(Duration::from_mins(10)).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!(journal.attempts().into_values().collect::<Vec<_>>(), [[1]]);
    assert_eq!((report.stats.acknowledged, report.stats.leases_lost), (1, 0));
}

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

#[tokio::test(start_paused = true)]
async fn batches_are_as_large_as_they_may_be_while_there_is_a_backlog() {
    let server = MemoryServer::new();
    publish(&server, "s", 2_000);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").concurrency(2).build().unwrap();
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let began = Instant::now();
    let run = tokio::spawn({
        let (shutdown, sizes) = (shutdown.clone(), Arc::clone(&sizes));
        async move {
            let handler = move |batch: Vec<Data>| {
                sizes.lock().unwrap().push(batch.len());
                sleep(Duration::from_secs(1))
            };
            consumer.run_batches(&shutdown, 100, handler).await
        }
    });
    stream_testkit::eventually(Duration::from_hours(24), "all to be handled", || {
        let all: usize = sizes.lock().unwrap().iter().sum();
        std::future::ready((all >= 2_000 && server.pending("s", "g").is_empty()).then_some(()))
    })
    .await;
    let took = began.elapsed();
    shutdown.stop();
    run.await.unwrap().unwrap();
    // Two at a time of a hundred in a second each.
    assert!(took < Duration::from_secs(20), "{took:?} with batches of {:?}", sizes.lock().unwrap());
}
#[tokio::test(start_paused = true)]
async fn what_a_dead_owner_left_is_taken_over_while_there_is_a_backlog() {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(1));
    publish(&server, "s", 5);
    server.command(["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", "5", "STREAMS", "s", ">"]).unwrap();
    publish(&server, "s", 60_000);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let lease = Duration::from_secs(3);
    let consumer =
        Consumer::durable(&server.client()).stream("s").group("g").concurrency(8).lease(lease).build().unwrap();
    let began = Instant::now();
    let taken = Arc::new(std::sync::Mutex::new(Vec::new()));
    let run = tokio::spawn({
        let (journal, shutdown, taken) = (journal.clone(), shutdown.clone(), Arc::clone(&taken));
        async move {
            let handler = move |cx: Context| {
                if cx.attempt() > 1 {
                    taken.lock().unwrap().push(began.elapsed());
                }
                let journal = journal.clone();
                async move {
                    journal.done(cx).await;
                    sleep(Duration::from_millis(1)).await;
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    settled(&server, "s", "g", 60_005, &journal).await;
    let whole = began.elapsed();
    shutdown.stop();
    run.await.unwrap().unwrap();
    let taken = taken.lock().unwrap();
    assert_eq!(taken.len(), 5);
    let last = *taken.last().unwrap();
    assert!(last < lease * 2 && lease * 2 < whole, "taken over at {last:?}, the backlog took {whole:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_pulled_an_entry_is_told_that_it_was_lost_however_it_asks() {
    let server = MemoryServer::new();
    let entry = server.add("s", [("data", "0")]);
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let mut deliveries = consumer.deliveries();
    let delivery = deliveries.next().await.unwrap();
    let extracted = delivery.extract::<Context>().unwrap();
    assert!(!extracted.is_cancelled());
    server.command(["XCLAIM", "s", "g", "other", "0", &entry.to_string()]).unwrap();
    tokio::time::timeout(Duration::from_mins(1), extracted.cancelled()).await.expect("it is told");
    assert!(delivery.context().is_cancelled());
    drop(delivery);
    deliveries.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_over_while_as_many_entries_wait_as_may() {
    let server = MemoryServer::new();
    publish(&server, "s", 5);
    server.command(["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", "5", "STREAMS", "s", ">"]).unwrap();
    publish(&server, "s", 3);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .consumer("alive")
        .lease(Duration::from_secs(3))
        .max_waiting(3)
        .retry(RetryPolicy::fixed(Duration::from_mins(10)))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            let handler =
                |cx: Context| async move { if cx.attempt() == 1 { Outcome::failed("not yet") } else { Outcome::Done } };
            consumer.run_with(&shutdown, handler).await
        }
    });
    let dead = || server.pending("s", "g").iter().filter(|(_, owner, ..)| owner == "dead").count();
    sleep(Duration::from_mins(9)).await;
    assert_eq!((dead(), server.pending("s", "g").len()), (5, 8), "three wait, which is all that may");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(server.pending("s", "g").len(), 0, "those that waited are done, and so is what the dead had left");
    shutdown.stop();
    assert_eq!(run.await.unwrap().unwrap().stats.taken_over, 5);
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_free_as_soon_as_the_retry_that_held_it_up_is_lost() {
    let server = MemoryServer::new();
    let first = server.add("s", [("data", "0")]);
    publish(&server, "s", 5);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .order_by_entry(|_| Some(0))
        .retry(RetryPolicy::fixed(Duration::from_hours(1)))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                let fails = cx.id() == first;
                let done = journal.done(cx);
                async move {
                    done.await;
                    if fails { Outcome::failed("not yet") } else { Outcome::Done }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_secs(5)).await;
    assert_eq!(journal.attempts().len(), 1, "the others wait for the retry");
    server.command(["XCLAIM", "s", "g", "other", "0", &first.to_string()]).unwrap();
    server.command(["XACK", "s", "g", &first.to_string()]).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(journal.attempts().len(), 6, "another has done the first one");
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.leases_lost, report.stats.acknowledged), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn counts_that_the_server_refuses_to_set_are_told_once_and_tried_ever_more_seldom() {
    let server = MemoryServer::new();
    server.add("s", [("data", "0")]);
    server.fail_always("EVALSHA TAKE", Fault::error("ERR something that no table knows"));
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let told = Arc::new(AtomicU32::new(0));
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .retry(RetryPolicy::immediate())
        .observer({
            let told = Arc::clone(&told);
            move |_: &StreamKey, event: &Event<'_>| {
                told.fetch_add(u32::from(matches!(event, Event::Degraded { .. })), Ordering::SeqCst);
            }
        })
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                let fails = cx.attempt() == 1;
                let done = journal.done(cx);
                async move {
                    done.await;
                    if fails { Outcome::failed("not yet") } else { Outcome::Done }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_hours(1)).await;
    let asked = server.count("EVALSHA TAKE");
    assert!(asked < 200, "asked {asked} times in an hour");
    assert_eq!(told.load(Ordering::SeqCst), 1);
    server.clear_faults();
    sleep(Duration::from_mins(2)).await;
    assert!(server.pending("s", "g").is_empty());
    shutdown.stop();
    run.await.unwrap().unwrap();
    assert_eq!(journal.attempts().into_values().collect::<Vec<_>>(), [[1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_another_has_made_anew_brings_nothing_twice() {
    let server = MemoryServer::new();
    publish(&server, "s", 20);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |Data(data): Data, cx: Context| {
                let done = journal.done(cx.clone());
                async move {
                    done.await;
                    if data == "19" {
                        sleep(Duration::from_mins(2)).await;
                        assert!(!cx.is_cancelled(), "it is ours again");
                    }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.pending("s", "g").len(), 1);
    server.destroy_group("s", "g");
    server.command(["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
    sleep(Duration::from_mins(5)).await;
    assert!(server.pending("s", "g").is_empty());
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{:?}", journal.attempts());
    assert_eq!((report.stats.recognised, report.stats.leases_lost, report.stats.groups_created), (19, 0, 1));
}

/// A hundred entries that fail once, all to be tried again at the same time. Returns how many ran at once then, at most.
async fn retried_together(prefetch_bytes: usize, order: RetryOrder) -> usize {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(1));
    for _ in 0..100 {
        server.add("s", [("data", "x".repeat(10_000))]);
    }
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(100)
        .prefetch_bytes(prefetch_bytes)
        .retry(RetryPolicy::fixed(Duration::from_secs(5)).max_attempts(2))
        .retry_order(order)
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown, most) = (journal.clone(), shutdown.clone(), Arc::clone(&most));
        async move {
            let handler = move |cx: Context| {
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                let first = cx.attempt() == 1;
                let started = journal.done(cx);
                async move {
                    started.await;
                    if first {
                        return Outcome::failed("once");
                    }
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    sleep(Duration::from_secs(1)).await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Outcome::Done
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    settled(&server, "s", "g", 100, &journal).await;
    shutdown.stop();
    assert_eq!(run.await.unwrap().unwrap().stats.handled, 100);
    most.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn retries_hold_no_more_bytes_than_are_allowed_and_one_entry() {
    let together = retried_together(1 << 20, RetryOrder::Later).await;
    assert!(together > 64, "the bytes are no limit here: {together}");
    let together = retried_together(100_000, RetryOrder::Later).await;
    assert!((5..=11).contains(&together), "{together} entries of 10 kB");
    assert_eq!(retried_together(1, RetryOrder::Later).await, 1);
    // Whatever waits behind it holds all the memory there is.
    assert_eq!(retried_together(100_000, RetryOrder::InPlace).await, 1);
    assert_eq!(retried_together(1, RetryOrder::InPlace).await, 1);
}
