//! The modes that acknowledge beforehand or not at all: whatever they give up, a process that lives loses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Acknowledge, Consumer, Context, Data, DurableBuilder, Event, Outcome, RetryPolicy, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, abandoned, publish, settled};

const BEFOREHAND: [Acknowledge; 2] = [Acknowledge::First, Acknowledge::NoAck];

#[tokio::test(start_paused = true)]
async fn what_queues_for_longer_than_a_lease_is_started_all_the_same() {
    for mode in BEFOREHAND {
        let server = MemoryServer::new();
        publish(&server, "s", 20);
        let journal = Journal::default();
        let shutdown = Shutdown::new();
        // One at a time, ten seconds each: the last one waits for three minutes.
        let consumer = Consumer::durable(&server.client())
            .stream("s")
            .group("g")
            .acknowledge(mode)
            .order_by_entry(|_| Some(0))
            .build()
            .unwrap();
        let run = tokio::spawn({
            let (journal, shutdown) = (journal.clone(), shutdown.clone());
            async move {
                let handler = move |cx: Context| {
                    let journal = journal.clone();
                    async move {
                        journal.done(cx.clone()).await;
                        sleep(Duration::from_secs(10)).await;
                        assert!(!cx.is_cancelled(), "nobody else can own it");
                    }
                };
                consumer.run_with(&shutdown, handler).await
            }
        });
        sleep(Duration::from_mins(5)).await;
        shutdown.stop();
        let report = run.await.unwrap().unwrap();
        assert_eq!((journal.attempts().len(), report.stats.leases_lost), (20, 0), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_runs_what_was_acknowledged_beforehand() {
    for mode in BEFOREHAND {
        for streams in [&["s"][..], &["s", "t"]] {
            let server = MemoryServer::new();
            for key in streams {
                publish(&server, key, 8);
            }
            let shutdown = Shutdown::new();
            let consumer = Consumer::durable(&server.client()).group("g").acknowledge(mode);
            let consumer = streams.iter().fold(consumer, DurableBuilder::stream);
            let consumer = consumer.concurrency(8).order_by_entry(|_| Some(0)).build().unwrap();
            let run = tokio::spawn({
                let shutdown = shutdown.clone();
                async move { consumer.run_with(&shutdown, || sleep(Duration::from_millis(100))).await }
            });
            sleep(Duration::from_millis(150)).await;
            shutdown.stop();
            let report = run.await.unwrap().unwrap();
            assert!(report.stats.received >= 4, "something was queued");
            assert_eq!(report.stats.started, report.stats.received, "{mode:?} {streams:?}");
            assert_eq!(report.aborted, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_is_an_event_in_every_mode() {
    for mode in [Acknowledge::Always, Acknowledge::First, Acknowledge::NoAck] {
        let server = MemoryServer::new();
        publish(&server, "s", 3);
        let given_up = Arc::new(Mutex::new(Vec::new()));
        let shutdown = Shutdown::new();
        let consumer = Consumer::durable(&server.client())
            .stream("s")
            .group("g")
            .acknowledge(mode)
            .observer({
                let given_up = Arc::clone(&given_up);
                move |_: &StreamKey, event: &Event<'_>| {
                    if let Event::GivenUp { reason, .. } = event {
                        given_up.lock().unwrap().push(reason.detail().map(str::to_owned));
                    }
                }
            })
            .build()
            .unwrap();
        let run = tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                let handler = |Data(data): Data| async move {
                    if data == "1" { Outcome::failed("no such order") } else { Outcome::Done }
                };
                consumer.run_with(&shutdown, handler).await
            }
        });
        sleep(Duration::from_secs(1)).await;
        shutdown.stop();
        let report = run.await.unwrap().unwrap();
        assert_eq!(*given_up.lock().unwrap(), [Some("no such order".to_owned())], "{mode:?}");
        assert_eq!((report.stats.started, report.stats.handled), (3, 2), "{mode:?}");
        assert!(server.pending("s", "g").is_empty());
    }
}

/// An `XACK` that is cut off before or after it was carried out, and a server that cannot be reached for longer than a lease.
async fn first_over_an_outage(fault: Fault, taken_by_another: bool) -> (usize, u64) {
    let server = MemoryServer::new();
    let entry = server.add("s", [("data", "0")]);
    server.fail_next("XACK", fault);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(Duration::from_secs(3))
        .backoff(Duration::from_millis(10), Duration::from_millis(100))
        .acknowledge(Acknowledge::First)
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    while server.count("XACK") == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    server.set_down(true);
    sleep(Duration::from_secs(10)).await;
    if taken_by_another {
        server.command(["XCLAIM", "s", "g", "other", "0", &entry.to_string()]).unwrap();
    }
    server.set_down(false);
    // Less than the lease of the other.
    sleep(Duration::from_secs(2)).await;
    let owners: Vec<_> = server.pending("s", "g").into_iter().map(|(_, owner, ..)| owner).collect();
    assert_eq!(
        owners,
        if taken_by_another { vec!["other"] } else { vec![] },
        "nobody's entry but ours is acknowledged"
    );
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    (journal.attempts().len(), report.stats.leases_lost)
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_beforehand_that_is_repeated_takes_nothing_from_a_new_owner() {
    // Not carried out, and nobody came: it is ours still.
    assert_eq!(first_over_an_outage(Fault::CutBefore, false).await, (1, 0));
    // Carried out, and only the answer was lost: nobody else can have it.
    assert_eq!(first_over_an_outage(Fault::CutAfter, false).await, (1, 0));
    // Not carried out, and another has taken it over meanwhile.
    assert_eq!(first_over_an_outage(Fault::CutBefore, true).await, (0, 1));
}

/// An answer to a read that comes long after the lease, as to a process that was frozen. Another has taken the entry over
/// meanwhile, and perhaps finished it. Returns how many were started and lost, and whose the entry is.
async fn first_after_a_freeze(finished: bool) -> (usize, u64, Vec<String>) {
    let server = MemoryServer::new();
    let entry = server.add("s", [("data", "0")]).to_string();
    server.fail_next("XREADGROUP", Fault::Delay(Duration::from_secs(40)));
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(Duration::from_secs(3))
        .take_over(false)
        .acknowledge(Acknowledge::First)
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    sleep(Duration::from_secs(20)).await;
    assert_eq!(server.pending("s", "g").len(), 1, "it was delivered");
    server.command(["XCLAIM", "s", "g", "other", "0", &entry]).unwrap();
    if finished {
        server.command(["XACK", "s", "g", &entry]).unwrap();
    }
    sleep(Duration::from_secs(30)).await;
    let owners = server.pending("s", "g").into_iter().map(|(_, owner, ..)| owner).collect();
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    (journal.attempts().len(), report.stats.leases_lost, owners)
}

#[tokio::test(start_paused = true)]
async fn what_another_took_over_while_this_process_was_frozen_is_neither_acknowledged_beforehand_nor_started() {
    assert_eq!(first_after_a_freeze(false).await, (0, 1, vec!["other".to_owned()]));
    assert_eq!(first_after_a_freeze(true).await, (0, 1, vec![]));
}

/// Entries of a dead owner that the bytes do not allow, and acknowledgements that are refused for a while.
#[tokio::test(start_paused = true)]
async fn an_entry_beyond_the_bytes_is_the_only_one_also_while_it_is_acknowledged_beforehand() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 10, 1);
    let busy = Fault::error("BUSY Redis is busy running a script");
    for command in ["XACK", "EVALSHA ACKNOWLEDGE", "EVAL ACKNOWLEDGE"] {
        server.fail_always(command, busy.clone());
    }
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(Duration::from_secs(30))
        .acknowledge(Acknowledge::First)
        .prefetch_bytes(1)
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    sleep(Duration::from_secs(60)).await;
    let fetched = server.count("EVALSHA TAKE");
    assert!((1..=2).contains(&fetched), "one that fits and one beyond that, but {fetched} were fetched");
    assert_eq!(journal.attempts().len(), 0);
    server.clear_faults();
    settled(&server, "s", "g", 10, &journal).await;
    shutdown.stop();
    assert_eq!(run.await.unwrap().unwrap().stats.handled, 10);
}

/// However often their owners died: what kills its process is not pending any more when it does.
#[tokio::test(start_paused = true)]
async fn what_is_acknowledged_beforehand_is_never_given_up_for_the_death_of_its_owner() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 10, 7);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(Duration::from_secs(3))
        .acknowledge(Acknowledge::First)
        .retry(RetryPolicy::immediate().max_attempts(3))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    settled(&server, "s", "g", 10, &journal).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.handled, report.stats.given_up, report.stats.dead_lettered), (10, 0, 0));
}
