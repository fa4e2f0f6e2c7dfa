//! The stream or the group vanishes under a blocked consumer: a state and not a failure, on every server.

use std::time::{Duration, Instant};

use stream_testkit::{RealServer, ServerOptions, eventually, work_for};
use streamkeeper::{Client, Consumer, Context, RunError};
use streamkeeper_tests::{Ask, Journal, Running, on_each_own, start};

const BLOCK: Duration = Duration::from_secs(1);
/// The BLOCK period, after which 6.2 notices, and room for a busy machine. What is noticed only by the steward, every ten
/// seconds by default, comes too late.
const NOTICED: Duration = Duration::from_secs(6);

/// A consumer of `orders` that has handled five entries and waits for more.
async fn blocked(server: &RealServer) -> (Running, Journal) {
    let journal = Journal::default();
    let seen = journal.clone();
    let builder = Consumer::durable(&server.client()).stream("orders").group("g").block(BLOCK);
    let consumer = start(builder, move |cx: Context| {
        seen.begin(&cx).end();
        async {}
    });
    server.publish("orders", 5).await;
    server.until("five to be acknowledged", || async { consumer.stats.get().acknowledged == 5 }).await;
    server.until("the read to wait", || async { is_blocked(server).await }).await;
    (consumer, journal)
}

async fn is_blocked(server: &RealServer) -> bool {
    let info = server.ask("INFO clients").await;
    String::from_utf8_lossy(info.as_bytes().unwrap()).contains("blocked_clients:1")
}

/// Whether the stream is still there and has an end set.
async fn expires(server: &RealServer) -> bool {
    server.ask("PTTL orders").await.as_int().unwrap() >= 0
}

/// Commands of the consumer since the last reset.
async fn commands(server: &RealServer) -> u64 {
    let calls = server.calls().await;
    // What the test itself asks; a script's own commands are counted beside the script.
    let ours =
        ["info", "config", "config|resetstat", "del", "flushall", "set", "pexpire", "pttl", "xgroup|destroy", "xadd"];
    calls.iter().filter(|(name, _)| !ours.contains(&name.as_str())).map(|(_, calls)| calls).sum()
}

/// After `event`, at once and after a while, what is published next is consumed within [`NOTICED`].
async fn comes_back(event: &'static str) {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let (consumer, journal) = blocked(&server).await;
        let mut known = journal.attempts().len();
        for quiet in [Duration::ZERO, Duration::from_secs(3)] {
            server.until("the read to wait", || async { is_blocked(&server).await }).await;
            let began = Instant::now();
            server.ask("CONFIG RESETSTAT").await;
            server.ask(event).await;
            // What is added in the last millisecond before a stream expires is gone with it.
            server.until("the stream to have expired", || async { !expires(&server).await }).await;
            work_for(quiet).await;
            if !quiet.is_zero() {
                let commands = commands(&server).await;
                let took = began.elapsed();
                // Fewer than five a second, however long the pause has become.
                let most = 5 * took.as_secs();
                assert!(commands < most, "{name}: {commands} commands in {took:?}: {:?}", server.calls().await);
            }
            server.publish("orders", 5).await;
            eventually(NOTICED, format!("what is published next on {name}"), || {
                std::future::ready((journal.attempts().len() >= known + 5).then_some(()))
            })
            .await;
            known = journal.attempts().len();
        }
        server.until("nothing to be pending", || async { server.pending("orders", "g").await == 0 }).await;
        assert_eq!(consumer.events.count("Reconnecting"), 0, "{name}: {:?}", consumer.events.all());
        let report = consumer.stop().await;
        assert_eq!(report.stats.reconnects, 0, "{name}");
        assert_eq!(journal.attempts().len(), 15, "{name}");
        assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{name}: {:?}", journal.attempts());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_b35_deleting_the_stream_under_a_blocked_consumer() {
    comes_back("DEL orders").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_b35_flushing_everything_under_a_blocked_consumer() {
    comes_back("FLUSHALL").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_b35_destroying_the_group_under_a_blocked_consumer() {
    comes_back("XGROUP DESTROY orders g").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_b35_the_stream_expires_under_a_blocked_consumer() {
    comes_back("PEXPIRE orders 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b35_another_type_in_place_of_the_stream_ends_the_run_with_a_clear_error() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let (consumer, _) = blocked(&server).await;
        server.ask("CONFIG RESETSTAT").await;
        server.ask("SET orders text").await;
        eventually(NOTICED, format!("the run to end on {name}"), || {
            std::future::ready(consumer.is_over().then_some(()))
        })
        .await;
        let commands = commands(&server).await;
        assert!(commands < 10, "{name}: {commands} commands: {:?}", server.calls().await);
        assert_eq!(consumer.events.count("Reconnecting"), 0, "{name}: {:?}", consumer.events.all());
        check_wrong_type(&name, &consumer.ended().await.unwrap_err());
    })
    .await;
}

fn check_wrong_type(name: &str, error: &RunError) {
    assert_eq!(error.to_string(), "cannot consume the stream orders", "{name}");
    let cause = std::error::Error::source(error).unwrap().to_string();
    assert!(cause.contains("WRONGTYPE") && cause.contains("orders"), "{name}: {cause}");
}

/// A quarter of a minute on a quiet stream, with a response timeout below BLOCK, which must not end a read that waits.
async fn idle(server: RealServer) {
    let name = server.name().to_owned();
    let client = Client::open(&format!("{}?response_timeout=2s", server.url())).unwrap();
    let builder = Consumer::durable(&client).stream("orders").group("g").block(Duration::from_secs(5));
    let consumer = start(builder, |_: Context| async {});
    server.until("the read to wait", || async { is_blocked(&server).await }).await;
    let accepted = async || {
        let info = server.ask("INFO stats").await;
        let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let before = accepted().await;
    server.ask("CONFIG RESETSTAT").await;
    work_for(Duration::from_secs(15)).await;
    let calls = server.calls().await;
    assert!((2..=4).contains(&calls["xreadgroup"]), "{name}: {calls:?}");
    let background = calls.iter().filter(|(call, _)| call.starts_with('x') && *call != "xreadgroup");
    assert!(background.map(|(_, calls)| calls).sum::<u64>() <= 12, "{name}: {calls:?}");
    // Connections: each of the test's own questions is one; the statistics were reset after the first was counted.
    let own = calls.values().sum::<u64>().min(3) + 1;
    assert!(accepted().await <= own, "{name}: {before}");
    assert_eq!(consumer.events.count("Reconnecting"), 0, "{name}");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b40_an_idle_consumer_keeps_its_one_reading_connection_and_asks_seldom() {
    on_each_own(ServerOptions::new(), idle).await;
}
