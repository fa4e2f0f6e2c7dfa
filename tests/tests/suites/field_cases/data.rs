//! Shapes of replies, sizes of entries.

use std::time::Duration;

use stream_testkit::RealServer;
use streamkeeper::{Client, Consumer, Context, Data, Outcome, RetryPolicy};
use streamkeeper_tests::{Ask, Journal, on_each, start};

use super::{builder, left_behind, settled};

/// Reads, retries, takes over, cleans up and buries, all over one protocol.
async fn everything(server: &RealServer, protocol: &str) {
    let context = format!("{} over {protocol}", server.name());
    let key = server.fresh_key("b57");
    let dead = format!("{key}:dead");
    server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
    let ids = server.publish(&key, 20).await;
    left_behind(server, &key, "dead", 10).await;
    server.ask(&format!("XDEL {key} {}", ids[1])).await;
    let journal = Journal::default();
    let seen = journal.clone();
    let client = Client::open(&format!("{}?protocol={protocol}", server.url())).unwrap();
    let consumer = Consumer::durable(&client)
        .stream(&key)
        .group("g")
        .block(Duration::from_millis(200))
        .lease(Duration::from_millis(600))
        .retry(RetryPolicy::fixed(Duration::from_millis(100)).max_attempts(3));
    let running = start(consumer, move |Data(data): Data, cx: Context| {
        seen.begin(&cx).end();
        async move {
            match (&data[..], cx.attempt()) {
                (b"12", _) => Outcome::failed("always"),
                (b"14", 1) => Outcome::failed("once"),
                _ => Outcome::Done,
            }
        }
    });
    server.until("the dead letter", || async { server.len(&dead).await == 1 }).await;
    settled(server, &key, &journal, 19).await;
    // Several reads without an entry: the nothing of both protocols.
    let reads = running.stats.get().reads;
    server.until("empty reads", || async { running.stats.get().reads >= reads + 3 }).await;
    assert_eq!(running.events.count("Reconnecting"), 0, "{context}: {:?}", running.events.all());
    assert_eq!(running.events.count("Degraded"), 0, "{context}: {:?}", running.events.all());
    let report = running.stop().await;
    assert_eq!(report.stats.deleted_while_pending, 1, "{context}");
    assert!(report.consumer_removed, "{context}: {report:?}");
    assert_eq!((journal.attempts_of(ids[0]), journal.attempts_of(ids[11])), (vec![2], vec![1]), "{context}");
    assert_eq!((journal.attempts_of(ids[12]), journal.attempts_of(ids[14])), (vec![1, 2, 3], vec![1, 2]), "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b65_an_entry_larger_than_the_bound_is_handled_alone() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b65"), server.name().to_owned());
        let body = "x".repeat(9 << 20);
        for _ in 0..3 {
            server.cli(&["XADD", &key, "*", "data", &body]).await.unwrap();
        }
        let journal = Journal::default();
        let running = super::taking(builder(&server, &key).prefetch_bytes(1), &journal, Duration::ZERO);
        settled(&server, &key, &journal, 3).await;
        running.stop().await;
        assert_eq!(journal.starts(), 3, "{name}");
    })
    .await;
}
