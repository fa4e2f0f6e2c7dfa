//! A permission that is missing is told once, and nothing loops.

use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, work_for};
use streamkeeper::{Client, Consumer, DurableBuilder, RetryPolicy};
use streamkeeper_tests::{Ask, Journal, on_each_own};

use super::taking;

/// What a consumer needs to do everything: `orders` is the stream, `orders:dead` its dead letters.
const EVERYTHING: &str = "~orders ~orders:dead +hello +ping +client|setname +select +xreadgroup +xack +xautoclaim +xclaim \
                          +xpending +xrange +xadd +xgroup +xinfo +eval +evalsha";

async fn user(server: &RealServer, rules: &str) -> DurableBuilder {
    server.ask(&format!("ACL SETUSER worker reset on >word {rules}")).await;
    let client = Client::open(&server.url().replace("redis://", "redis://worker:word@")).unwrap();
    Consumer::durable(&client)
        .stream("orders")
        .group("g")
        .block(Duration::from_secs(1))
        .lease(Duration::from_secs(1))
        .retry(RetryPolicy::fixed(Duration::from_millis(100)).max_attempts(3))
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_without_the_permission_to_acknowledge_nothing_storms() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let builder = user(&server, &EVERYTHING.replace("+xack ", "")).await;
        server.publish("orders", 10).await;
        let journal = Journal::default();
        let running =
            taking(builder.backoff(Duration::from_millis(500), Duration::from_secs(2)), &journal, Duration::ZERO);
        server.until("all to be handled", || async { journal.finished() == 10 }).await;
        work_for(Duration::from_secs(3)).await;
        let degraded = running.events.named("Degraded");
        assert!((1..=3).contains(&degraded.len()), "{name}: {} of {:?}", degraded.len(), degraded[0]);
        let asked = running.stats.get().ack_commands;
        assert!(asked <= 20, "{name}: {asked} attempts to acknowledge in three seconds");
        // The permission is given, and what was handled is acknowledged without another run.
        server.ask("ACL SETUSER worker +xack").await;
        server.until("all to be acknowledged", || async { server.pending("orders", "g").await == 0 }).await;
        running.stop().await;
        assert_eq!(journal.starts(), 10, "{name}");
    })
    .await;
}
