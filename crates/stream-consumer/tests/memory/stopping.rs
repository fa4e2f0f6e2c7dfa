//! Stopping: what was not started goes back at once, what was done is acknowledged, and the report tells what happened.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Outcome, RetryPolicy, Shutdown, StartFrom};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, publish, settled};

#[tokio::test(start_paused = true)]
async fn who_stops_takes_nothing_over() {
    let server = MemoryServer::new();
    publish(&server, "s", 1);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .consumer("stopping")
        .lease(Duration::from_secs(3))
        .grace(Duration::from_mins(10))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { consumer.run_with(&shutdown, |_: Context| sleep(Duration::from_mins(5))).await }
    });
    sleep(Duration::from_secs(10)).await;
    shutdown.stop();
    sleep(Duration::from_secs(1)).await;
    // Another dies while this one waits for its handler.
    publish(&server, "s", 5);
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", "5", "STREAMS", "s", ">"]).unwrap();
    sleep(Duration::from_mins(1)).await;
    let owners: Vec<_> = server.pending("s", "g").into_iter().map(|(_, owner, ..)| owner).collect();
    assert_eq!(owners, ["stopping", "dead", "dead", "dead", "dead", "dead"]);
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.acknowledged, report.stats.taken_over), (1, 0));
    assert!(report.consumer_removed);
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_period_acknowledgements_are_written_all_the_same() {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(5));
    publish(&server, "s", 100);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").grace(Duration::ZERO).build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    stream_testkit::eventually(Duration::from_mins(1), "an entry to be handled", || {
        std::future::ready((!journal.attempts().is_empty()).then_some(()))
    })
    .await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.unconfirmed, report.left_pending), (0, 0), "{report:?}");
    // What was handed back is pending for whoever comes, and nothing else is.
    assert_eq!(server.pending("s", "g").len() as u64, report.handed_back);
}

#[tokio::test(start_paused = true)]
async fn what_handlers_gave_back_in_their_time_is_not_what_the_stop_gave_back() {
    let server = MemoryServer::new();
    publish(&server, "s", 10);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            // The first delivery of each is given back, and comes again with the next claim.
            let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
            let handler = move |Data(data): Data| {
                let first = seen.lock().unwrap().insert(data);
                async move { if first { Outcome::Release } else { Outcome::Done } }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_mins(2)).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.handed_back, report.stats.acknowledged), (10, 10));
    assert_eq!((report.handed_back, report.left_pending), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_has_returned_when_all_are_aborted_counts_by_its_outcome() {
    let server = MemoryServer::new();
    publish(&server, "s", 1);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let turned = shutdown.clone();
    let handler = move |_: Context| {
        let turned = turned.clone();
        async move {
            sleep(Duration::from_millis(1)).await;
            // The run loop sees both at once: that it must stop now, and that this has returned.
            turned.stop_now();
        }
    };
    let report = consumer.run_with(&shutdown, handler).await.unwrap();
    assert_eq!((report.aborted, report.handed_back, report.stats.acknowledged), (0, 0, 1));
    assert!(server.pending("s", "g").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_stops_its_consumer_stops_all_of_its_streams_and_nobody_elses_switch() {
    let server = MemoryServer::new();
    publish(&server, "a", 100);
    publish(&server, "b", 100);
    let shutdown = Shutdown::new();
    let consumer =
        Consumer::durable(&server.client()).stream("a").stream("b").group("g").concurrency(1).build().unwrap();
    let run = consumer.run_with(&shutdown, |Data(data): Data| async move {
        if data == "20" { Outcome::stop() } else { Outcome::Done }
    });
    let report = tokio::time::timeout(Duration::from_hours(1), run).await.unwrap().unwrap();
    assert!(!shutdown.is_stopping());
    // Far from all: what was fetched is handed back.
    let stats = report.stats;
    assert!((21..=130).contains(&stats.started), "{report:?}");
    assert_eq!((stats.acknowledged, stats.started + report.handed_back), (stats.started, stats.received), "{report:?}");
    assert_eq!((report.left_pending, report.unconfirmed), (0, 0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn who_follows_a_stream_and_stops_without_having_handled_an_entry_can_go_on_with_it() {
    let server = MemoryServer::new();
    let ids: Vec<_> = (0..10).map(|n| server.add("s", [("data", n.to_string())])).collect();
    for acknowledge in [false, true] {
        let consumer = Consumer::ephemeral(&server.client()).stream("s").start(StartFrom::Beginning).build().unwrap();
        let journal = Journal::default();
        let noted = journal.clone();
        let shutdown = Shutdown::new();
        let run = consumer.run_with(&shutdown, move |Data(data): Data, cx: Context| {
            let noted = noted.clone();
            async move {
                noted.done(cx).await;
                if data == "4" { Outcome::Stop { acknowledge } } else { Outcome::Done }
            }
        });
        let report = tokio::time::timeout(Duration::from_hours(1), run).await.unwrap().unwrap();
        assert_eq!(journal.attempts().len(), 5, "nothing was started after it");
        let position = if acknowledge { ids[4] } else { ids[3] };
        assert_eq!(report.positions[0].1, position, "{report:?}");
        assert_eq!(report.unstarted, 5 + u64::from(!acknowledge), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_was_pulled_can_stop_its_consumer() {
    let server = MemoryServer::new();
    publish(&server, "s", 3);
    let mut deliveries = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap().deliveries();
    deliveries.next().await.unwrap().settle(Outcome::stop());
    while let Some(delivery) = deliveries.next().await {
        // Fetched before the stop was noticed.
        delivery.settle(Outcome::Release);
    }
    assert_eq!(deliveries.stop().await.unwrap().stats.acknowledged, 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_cut_read_brought_goes_back_before_the_handlers_have_ended() {
    let server = MemoryServer::new();
    publish(&server, "s", 1);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(Duration::from_secs(3))
        .block(Duration::from_secs(1))
        .grace(Duration::from_mins(1))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { consumer.run_with(&shutdown, |_: Context| sleep(Duration::from_secs(30))).await }
    });
    sleep(Duration::from_millis(500)).await;
    server.fail_next("XREADGROUP", Fault::CutAfterEntries(0));
    // The next read waits, and is cut off from what it is given.
    sleep(Duration::from_secs(1)).await;
    publish(&server, "s", 1);
    shutdown.stop();
    sleep(Duration::from_secs(1)).await;
    let counts: Vec<_> = server.pending("s", "g").into_iter().map(|(.., count)| count).collect();
    assert_eq!(counts, [1, 0], "one runs, and the other was started by nobody");
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.handed_back, report.stats.acknowledged, report.left_pending), (1, 1, 0), "{report:?}");
}

/// A start that the handler gave back is none, however often the server has to be told.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_given_back_until_the_server_has_answered() {
    let busy = || Fault::error("BUSY Redis is busy running a script.");
    for (name, faults) in [
        ("busy", vec![busy(), busy(), busy()]),
        ("cut before", vec![Fault::CutBefore]),
        ("cut after", vec![Fault::CutAfter]),
        ("cut, then busy", vec![Fault::CutAfter, busy()]),
    ] {
        let server = MemoryServer::new();
        publish(&server, "s", 10);
        let (journal, shutdown) = (Journal::default(), Shutdown::new());
        let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
        let run = tokio::spawn({
            let (server, journal, shutdown) = (server.clone(), journal.clone(), shutdown.clone());
            async move {
                let handler = move |cx: Context| {
                    let again = journal.attempts().contains_key(&cx.id());
                    if journal.attempts().is_empty() {
                        for fault in &faults {
                            server.fail_next("EVALSHA HAND_BACK", fault.clone());
                        }
                    }
                    let noted = journal.done(cx);
                    async move {
                        noted.await;
                        if again { Outcome::Done } else { Outcome::Release }
                    }
                };
                consumer.run_with(&shutdown, handler).await
            }
        });
        settled(&server, "s", "g", 10, &journal).await;
        let attempts = journal.attempts();
        assert!(attempts.values().all(|attempts| *attempts == [1, 1]), "{name}: {attempts:?}");
        shutdown.stop();
        run.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_back_what_the_server_refused_at_first() {
    let server = MemoryServer::new();
    publish(&server, "s", 10);
    let shutdown = Shutdown::new();
    let retry = RetryPolicy::fixed(Duration::from_mins(10));
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").retry(retry).build().unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { consumer.run_with(&shutdown, |_: Context| async { Outcome::failed("always") }).await }
    });
    sleep(Duration::from_secs(1)).await;
    server.fail_next("EVALSHA HAND_BACK", Fault::error("BUSY Redis is busy running a script."));
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.handed_back, report.left_pending), (10, 0), "{report:?}");
}
