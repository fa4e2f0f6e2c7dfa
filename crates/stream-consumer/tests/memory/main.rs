//! The run loop on the in-memory server and on paused time: exact where real servers can only be watched.

mod support;

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
