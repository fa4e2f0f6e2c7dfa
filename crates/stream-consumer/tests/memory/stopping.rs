//! Stopping: what was not started goes back at once, what was done is acknowledged, and the report tells what happened.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Outcome, Shutdown};
use stream_testkit::MemoryServer;
use tokio::time::sleep;

use super::support::{Journal, publish};

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
