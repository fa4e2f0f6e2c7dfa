//! The modes that acknowledge beforehand or not at all: whatever they give up, a process that lives loses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Acknowledge, Consumer, Context, Data, DurableBuilder, Event, Outcome, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use tokio::time::sleep;

use super::support::{Journal, publish};

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
