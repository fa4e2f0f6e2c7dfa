//! On every server of the matrix, with RESP2 and RESP3.

use std::future::Future;
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, work_for};
use streamkeeper::{Client, Context, EntryId, StartFrom};
use streamkeeper_tests::{Ask, on_each_own};

use super::{Seen, ephemeral, run};

/// Runs `body` on servers of its own, with both protocols one after the other; keys are fresh for each.
async fn on_each_protocol<F, Fut>(body: F)
where
    F: Fn(RealServer, Client) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = RealServer> + Send + 'static,
{
    on_each_own(ServerOptions::new(), move |mut server| {
        let body = body.clone();
        async move {
            for protocol in ["resp2", "resp3"] {
                let client = Client::open(&format!("{}?protocol={protocol}", server.url())).unwrap();
                server.ask("FLUSHALL").await;
                server.ask("CONFIG RESETSTAT").await;
                server = body(server, client).await;
            }
        }
    })
    .await;
}

async fn add(server: &RealServer, ids: std::ops::RangeInclusive<u64>) {
    let mut cli = server.connect().await.unwrap();
    for ms in ids {
        cli.command(&["XADD", "s", &format!("{ms}-0"), "n", "1"]).await.unwrap();
    }
}

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

/// The report that started all this, in a sixtieth of its time: BLOCK 250 ms for 3 s; the whole minute is in `exact`.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_stream_is_waited_for_in_silence() {
    on_each_protocol(|server, client| async move {
        let seen = Seen::default();
        let running = run(ephemeral(&client, "s").block(Duration::from_millis(250)), seen.handler());
        server.until("ready", || std::future::ready(running.is_ready())).await;
        let before = server.calls().await;
        work_for(Duration::from_secs(3)).await;
        let after = server.calls().await;
        let count = |name: &str| after.get(name).copied().unwrap_or(0) - before.get(name).copied().unwrap_or(0);
        // A loaded machine makes fewer, never more: a period cannot be shorter than it was asked to be.
        assert!((1..=13).contains(&count("xread")), "{} reads on {}", count("xread"), server.name());
        assert_eq!((count("hello"), count("auth"), count("xinfo|stream") + count("xinfo")), (0, 0, 0));
        assert!(running.is_calm(), "{:?}", running.events.all());
        let ids = server.publish("s", 1).await;
        server.until("the first entry", || std::future::ready(seen.len() == 1)).await;
        assert_eq!(seen.ids(), ids);
        assert!(running.is_calm());
        running.stop().await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_what_is_published_right_after_ready_is_received() {
    on_each_protocol(|server, client| async move {
        server.publish("s", 20).await;
        let seen = Seen::default();
        let running = run(ephemeral(&client, "s"), seen.handler());
        server.until("ready", || std::future::ready(running.is_ready())).await;
        let published = server.publish("s", 1_000).await;
        server.until("all", || std::future::ready(seen.len() >= 1_000)).await;
        assert_eq!(seen.ids(), published);
        running.stop().await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_two_streams_alternately_with_short_blocks_miss_nothing() {
    on_each_protocol(|server, client| async move {
        let seen = Seen::default();
        let builder = ephemeral(&client, "a").stream("b").block(Duration::from_millis(100));
        let running = run(builder, seen.handler());
        server.until("both to be ready", || std::future::ready(running.events.count("Ready") == 2)).await;
        let mut published = [Vec::new(), Vec::new()];
        for n in 0..200_usize {
            published[n % 2].extend(server.publish(["a", "b"][n % 2], 1).await);
            work_for(Duration::from_millis((n as u64 * 37) % 23)).await;
        }
        server.until("all", || std::future::ready(seen.len() >= 200)).await;
        assert_eq!([seen.of("a"), seen.of("b")], published);
        assert!(running.is_calm(), "on {}", server.name());
        running.stop().await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_a_consumer_that_is_killed_leaves_nothing_behind() {
    on_each_protocol(|server, client| async move {
        let seen = Seen::default();
        let running = run(ephemeral(&client, "s").start(StartFrom::Beginning), seen.handler());
        server.publish("s", 10).await;
        server.until("all", || std::future::ready(seen.len() == 10)).await;
        // As a kill does: its sockets close, and nothing is said to the server.
        running.task.abort();
        let keys = server.cli(&["KEYS", "*"]).await.unwrap();
        assert!(matches!(&keys, stream_redis::Value::Array(keys) if keys.len() == 1), "{keys:?}");
        let groups = server.cli(&["XINFO", "GROUPS", "s"]).await.unwrap();
        assert!(matches!(&groups, stream_redis::Value::Array(groups) if groups.is_empty()), "{groups:?}");
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b35_a_stream_made_anew_with_smaller_ids_is_noticed() {
    on_each_protocol(|server, client| async move {
        add(&server, 1..=100).await;
        let seen = Seen::default();
        let builder = ephemeral(&client, "s").start(StartFrom::Beginning).block(Duration::from_millis(500));
        let running = run(builder, seen.handler());
        server.until("all of the old one", || std::future::ready(seen.len() == 100)).await;
        server.ask("RENAME s old").await;
        add(&server, 5..=7).await;
        server.until("the new one", || std::future::ready(seen.len() >= 103)).await;
        assert_eq!(seen.ids()[100..], [id(5), id(6), id(7)], "on {}", server.name());
        let told = running.events.named("StreamReset");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].text.contains("last: 100-0"), "{}", told[0].text);
        running.stop().await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b39_a_reader_trimmed_past_its_cursor_says_so() {
    on_each_protocol(|server, client| async move {
        add(&server, 1..=100).await;
        let seen = Seen::default();
        let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        let builder = ephemeral(&client, "s").start(StartFrom::Beginning).prefetch(9).block(Duration::from_millis(100));
        let (noted, opened) = (seen.clone(), std::sync::Arc::clone(&gate));
        let running = run(builder, move |cx: Context| {
            noted.note(&cx);
            let gate = std::sync::Arc::clone(&opened);
            async move { drop(gate.acquire().await) }
        });
        server.until("ten to be held", || std::future::ready(running.stats.get().received == 10)).await;
        server.ask("XTRIM s MINID 50").await;
        // The reader has to stand still for a BLOCK period before it looks.
        work_for(Duration::from_millis(200)).await;
        gate.add_permits(1);
        server.until("the last", || std::future::ready(seen.ids().last() == Some(&id(100)))).await;
        assert_eq!(seen.ids(), (1..=10).chain(50..=100).map(id).collect::<Vec<_>>());
        let told = running.events.named("Gap");
        assert_eq!(told.len(), 1, "{told:?} on {}", server.name());
        let missed = if server.name().contains("6.2") { "None" } else { "Some(39)" };
        assert!(told[0].text.contains(&format!("after: 10-0, before: 50-0, missed: {missed}")), "{}", told[0].text);
        running.stop().await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_connections_cost_no_entry_and_bring_none_twice() {
    on_each_protocol(|server, client| async move {
        let seen = Seen::default();
        let builder = ephemeral(&client, "s").backoff(Duration::from_millis(20), Duration::from_millis(100));
        let running = run(builder, seen.handler());
        server.until("ready", || std::future::ready(running.is_ready())).await;
        let mut published = Vec::new();
        for _ in 0..10 {
            published.extend(server.publish("s", 100).await);
            server.ask("CLIENT KILL TYPE normal").await;
        }
        published.extend(server.publish("s", 10).await);
        server.until("all", || std::future::ready(seen.len() >= published.len())).await;
        assert_eq!(seen.ids(), published, "on {}", server.name());
        assert_eq!((running.events.count("Gap"), running.events.count("Ready")), (0, 1));
        running.stop().await;
        server
    })
    .await;
}
