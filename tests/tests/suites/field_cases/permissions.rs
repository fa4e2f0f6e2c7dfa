//! Users that may do little: what is needed is documented and enough, what is missing is told once, and nothing loops.

use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, work_for};
use streamkeeper::{Client, Consumer, Context, Data, DurableBuilder, Outcome, RetryPolicy};
use streamkeeper_tests::{Ask, Journal, on_each_own, start};

use super::{left_behind, settled, taking};

/// What a consumer needs to do everything: `orders` is the stream, `orders:dead` its dead letters.
const EVERYTHING: &str = "~orders ~orders:dead +hello +ping +client|setname +select +xreadgroup +xack +xautoclaim +xclaim \
                          +xpending +xrange +xadd +xgroup +xinfo +eval +evalsha";
/// What it needs to read and acknowledge at all, in a group that exists.
const LEAST: &str = "~orders +xreadgroup +xack +xautoclaim";

async fn user(server: &RealServer, rules: &str) -> DurableBuilder {
    server.ask(&format!("ACL SETUSER worker reset on >word {rules}")).await;
    let client = Client::open(&server.url().replace("redis://", "redis://worker:word@")).unwrap();
    Consumer::durable(&client)
        .stream("orders")
        .group("g")
        .block(Duration::from_secs(1))
        .lease(Duration::from_millis(1_000))
        .retry(RetryPolicy::fixed(Duration::from_millis(100)).max_attempts(3))
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_the_documented_permissions_are_enough_for_everything() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let builder = user(&server, EVERYTHING).await;
        server.ask("XGROUP CREATE orders g 0 MKSTREAM").await;
        server.publish("orders", 20).await;
        left_behind(&server, "orders", "dead", 5).await;
        let journal = Journal::default();
        let seen = journal.clone();
        let running = start(builder, move |Data(data): Data, cx: Context| {
            seen.begin(&cx).end();
            async move { if data == "7" { Outcome::failed("always") } else { Outcome::Done } }
        });
        server.until("the dead letter", || async { server.len("orders:dead").await == 1 }).await;
        settled(&server, "orders", &journal, 20).await;
        server.ask("XGROUP DESTROY orders g").await;
        server.publish("orders", 5).await;
        settled(&server, "orders", &journal, 25).await;
        assert_eq!(running.events.count("Degraded"), 0, "{name}: {:?}", running.events.named("Degraded"));
        let report = running.stop().await;
        assert!(report.consumer_removed, "{name}: {report:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_reading_acknowledging_and_claiming_is_enough_to_consume() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let builder = user(&server, LEAST).await;
        server.ask("XGROUP CREATE orders g 0 MKSTREAM").await;
        server.publish("orders", 20).await;
        left_behind(&server, "orders", "dead", 5).await;
        let journal = Journal::default();
        let running = taking(builder, &journal, Duration::ZERO);
        settled(&server, "orders", &journal, 20).await;
        work_for(Duration::from_secs(2)).await;
        let degraded = running.events.named("Degraded");
        assert!(degraded.len() <= 4, "{name}: {degraded:?}");
        assert_eq!(running.events.count("Reconnecting"), 0, "{name}: {:?}", running.events.all());
        server.publish("orders", 20).await;
        settled(&server, "orders", &journal, 40).await;
        running.stop().await;
        assert_eq!(journal.starts(), 40, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_without_the_permission_to_read_the_run_ends_at_once_with_a_clear_error() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let builder = user(&server, &EVERYTHING.replace("+xreadgroup", "")).await;
        let running = taking(builder, &Journal::default(), Duration::ZERO);
        server.until("the end of the run", || async { running.is_over() }).await;
        assert_eq!(running.events.count("Reconnecting"), 0, "{name}");
        let error = running.ended().await.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("XREADGROUP") && cause.contains("NOPERM"), "{name}: {cause}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_b66_a_user_who_may_not_create_the_missing_group_is_told_so() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let builder = user(&server, LEAST).await;
        let running = taking(builder, &Journal::default(), Duration::ZERO);
        server.until("the end of the run", || async { running.is_over() }).await;
        let error = running.ended().await.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("XGROUP CREATE") && cause.contains("NOPERM"), "{name}: {cause}");
    })
    .await;
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
