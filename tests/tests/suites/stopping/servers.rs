//! Stopping in every state, on real servers.

use std::sync::Arc;
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, work_for};
use streamkeeper::{Client, Consumer, Context, DrainReport, DurableBuilder};
use streamkeeper_tests::{Ask, Journal, Running, on_each, on_each_own, start};
use tokio::sync::Semaphore;

/// Within this time every stop here ends, also on a busy machine. It is a fraction of what a stop would wait for wrongly:
/// the BLOCK period, the grace period, a backlog, handlers, an answer that does not come. Exact bounds are in `exact`.
const LIMIT: Duration = Duration::from_secs(10);

fn builder(server: &RealServer, key: &str) -> DurableBuilder {
    Consumer::durable(&server.client()).stream(key).group("g")
}

fn taking(builder: DurableBuilder, journal: &Journal, time: Duration) -> Running {
    let seen = journal.clone();
    start(builder, move |cx: Context| {
        let run = seen.begin(&cx);
        async move {
            work_for(time).await;
            run.end();
        }
    })
}

/// Stops within [`LIMIT`].
async fn stops(consumer: Running, name: &str) -> DrainReport {
    let stop = tokio::time::timeout(LIMIT, consumer.stop()).await;
    stop.unwrap_or_else(|_| panic!("{name}: not stopped within {LIMIT:?}"))
}

/// What the next consumer is given: `count` entries, each once and at this attempt.
async fn next_sees(server: &RealServer, key: &str, count: usize, attempt: u32) {
    let journal = Journal::default();
    // The lease is the default of 30 s: what was handed back does not wait for it.
    let next = taking(builder(server, key).claim_every(Duration::from_millis(500)), &journal, Duration::ZERO);
    server.until("the next to get everything", || async { journal.finished() == count }).await;
    server.until("nothing to be pending", || async { server.pending(key, "g").await == 0 }).await;
    let attempts = journal.attempts();
    assert!(attempts.values().all(|attempts| *attempts == [attempt]), "{}: {attempts:?}", server.name());
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_a_stop_while_idle_is_immediate_and_removes_the_consumer() {
    on_each(|server| async move {
        let key = server.fresh_key("idle");
        // A stop waits half a second for the removal, which a busy machine may miss once, but not each time.
        let mut left = 0;
        for round in 1..=3 {
            let idle =
                taking(builder(&server, &key).block(Duration::from_mins(1)), &Journal::default(), Duration::ZERO);
            server.until("the consumer to be ready", || async { idle.events.count("Ready") == 1 }).await;
            let report = stops(idle, server.name()).await;
            if report.consumer_removed {
                break;
            }
            left += 1;
            assert!(round < 3, "{}: {report:?}", server.name());
        }
        assert!(server.consumers(&key, "g").await <= left, "{}", server.name());
        // Nobody reads any more under its name: what comes now is for the next.
        server.publish(&key, 5).await;
        assert_eq!(server.pending(&key, "g").await, 0, "{}", server.name());
        next_sees(&server, &key, 5, 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_a_stop_with_fifty_prefetched_hands_them_back_unburned() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("fifty"), server.name().to_owned());
        server.publish(&key, 51).await;
        let journal = Journal::default();
        let one_lane = builder(&server, &key).concurrency(51).prefetch(0).order_by_entry(|_| Some(0));
        let consumer = taking(one_lane, &journal, Duration::from_millis(400));
        server.until("all to be read", || async { consumer.stats.get().received == 51 }).await;
        let report = stops(consumer, &name).await;
        let done = journal.finished();
        assert_eq!(journal.starts(), done, "{name}");
        assert_eq!(report.handed_back, 51 - done as u64, "{name}: {report:?}");
        assert_eq!((report.aborted, report.unconfirmed, report.left_pending), (0, 0, 0), "{name}: {report:?}");
        let pending = server.pending_entries(&key, "g").await;
        assert_eq!(pending.len(), 51 - done, "{name}");
        assert!(pending.iter().all(|(_, _, deliveries)| *deliveries == 0), "{name}: {pending:?}");
        assert!(!report.consumer_removed, "{name}: it holds what nobody has taken yet");
        next_sees(&server, &key, 51 - done, 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_a_running_handler_finishes_within_the_grace_period() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("grace"), server.name().to_owned());
        server.publish(&key, 10).await;
        let journal = Journal::default();
        let consumer = taking(builder(&server, &key), &journal, Duration::from_millis(1_500));
        server.until("all to run", || async { journal.starts() == 10 }).await;
        let report = stops(consumer, &name).await;
        assert_eq!((report.stats.acknowledged, report.aborted, report.unconfirmed), (10, 0, 0), "{name}: {report:?}");
        assert_eq!(server.pending(&key, "g").await, 0, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_a_second_signal_aborts_and_the_starts_count() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("second"), server.name().to_owned());
        server.publish(&key, 10).await;
        let journal = Journal::default();
        let consumer = taking(builder(&server, &key), &journal, Duration::from_hours(1));
        server.until("all to run", || async { journal.starts() == 10 }).await;
        consumer.shutdown.stop();
        let report = stops(consumer, &name).await;
        assert_eq!((report.aborted, report.handed_back, report.left_pending), (10, 10, 0), "{name}: {report:?}");
        next_sees(&server, &key, 10, 2).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_a_stop_while_the_server_is_down_does_not_wait_for_it() {
    on_each_own(ServerOptions::new(), |mut server| async move {
        let name = server.name().to_owned();
        let consumer = taking(builder(&server, "orders"), &Journal::default(), Duration::ZERO);
        server.until("the consumer to be ready", || async { consumer.events.count("Ready") == 1 }).await;
        server.kill9().await.unwrap();
        server.until("it to be in its backoff", || async { consumer.events.count("Reconnecting") >= 2 }).await;
        let report = stops(consumer, &name).await;
        assert!(!report.consumer_removed, "{name}: {report:?}");
        assert_eq!((report.handed_back, report.left_pending, report.unconfirmed), (0, 0, 0), "{name}: {report:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_a_frozen_server_does_not_hold_up_a_stop_for_longer_than_its_last_words() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let (journal, gate) = (Journal::default(), Arc::new(Semaphore::new(0)));
        let (seen, passed) = (journal.clone(), Arc::clone(&gate));
        let client = Client::open(&format!("{}?response_timeout=60s", server.url())).unwrap();
        let builder = Consumer::durable(&client).stream("orders").group("g").grace(Duration::from_secs(1));
        let consumer = start(builder, move |cx: Context| {
            let (run, gate) = (seen.begin(&cx), Arc::clone(&passed));
            async move {
                gate.acquire().await.unwrap().forget();
                run.end();
            }
        });
        server.publish("orders", 3).await;
        server.until("all to run", || async { journal.starts() == 3 }).await;
        server.pause().await.unwrap();
        gate.add_permits(3);
        server.until("all to be done", || async { journal.ends() == 3 }).await;
        let report = stops(consumer, &name).await;
        server.resume().await.unwrap();
        assert_eq!(report.unconfirmed, 3, "{name}: {report:?}");
        assert!(!report.consumer_removed, "{name}: {report:?}");
    })
    .await;
}
