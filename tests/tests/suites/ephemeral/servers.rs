//! On every server of the matrix, with RESP2 and RESP3.

use std::future::Future;
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, work_for};
use streamkeeper::{Client, Context, EntryId, StartFrom};
use streamkeeper_tests::{Ask, Worker, on_each_own};

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
async fn b06_a_process_that_is_killed_leaves_nothing_behind() {
    on_each_protocol(|server, _| async move {
        let folder = tempfile::tempdir().unwrap();
        let (url, journal) = (server.url(), folder.path().join("journal"));
        let args = [url.as_str(), "s", "-", "-", journal.to_str().unwrap()];
        let worker = Worker::start(env!("CARGO_BIN_EXE_test-tail"), &args);
        worker.wrote("ready").await;
        let ids = server.publish("s", 10).await;
        worker.wrote(&format!("start {}", ids[9])).await;
        let clients = async || {
            let list = server.ask("CLIENT LIST").await;
            String::from_utf8_lossy(list.as_bytes().unwrap()).matches("name=streamkeeper:").count()
        };
        assert!(clients().await > 0, "it is there");
        // Its drop is a kill -9: nothing is said to the server.
        drop(worker);
        server.until("its connections to be gone", || async { clients().await == 0 }).await;
        let keys = server.ask("KEYS *").await;
        assert!(matches!(&keys, stream_redis::Value::Array(keys) if keys.len() == 1), "{keys:?}");
        let groups = server.ask("XINFO GROUPS s").await;
        assert!(matches!(&groups, stream_redis::Value::Array(groups) if groups.is_empty()), "{groups:?}");
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b52_one_bad_stream_does_not_stop_the_others() {
    on_each_protocol(|server, _| async move {
        server.ask("SET bad x").await;
        server.ask("ACL SETUSER some on >word resetkeys +@all ~s ~bad ~missing").await;
        let client = Client::open(&server.url().replace("redis://", "redis://some:word@")).unwrap();
        let seen = Seen::default();
        let builder = ephemeral(&client, "bad").stream("missing").stream("hidden").stream("s");
        let builder = builder.block(Duration::from_millis(200));
        let running = run(builder.backoff(Duration::from_millis(50), Duration::from_millis(500)), seen.handler());
        server.until("two to be ready", || std::future::ready(running.events.count("Ready") == 2)).await;
        let published = server.publish("s", 50).await;
        server.until("all of it", || std::future::ready(seen.of("s").len() == 50)).await;
        assert_eq!(seen.of("s"), published, "on {}", server.name());
        let failed = |stream: &str, code: &str| {
            let told = running.events.named("StreamFailed");
            told.iter().any(|told| told.text.contains(code) && told.text.contains(&format!("{stream:?}")))
        };
        let both = || std::future::ready(failed("bad", "WRONGTYPE") && failed("hidden", "NOPERM"));
        server.until("both that cannot be read to be named", both).await;
        server.ask("DEL bad").await;
        server.ask("ACL SETUSER some ~hidden").await;
        server.until("both to be ready", || std::future::ready(running.events.count("Ready") == 4)).await;
        let rest = ["bad", "missing", "hidden"];
        for stream in rest {
            server.publish(stream, 1).await;
        }
        server.until("theirs", || std::future::ready(rest.iter().all(|stream| seen.of(stream).len() == 1))).await;
        running.stop().await;
        server
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_some_time_ago_is_by_the_servers_clock() {
    on_each_protocol(|server, client| async move {
        add(&server, 1..=20).await;
        let recent = server.publish("s", 5).await;
        let seen = Seen::default();
        let running = run(ephemeral(&client, "s").start_ago(Duration::from_mins(10)), seen.handler());
        server.until("what is recent", || std::future::ready(seen.len() == 5)).await;
        assert_eq!(seen.ids(), recent, "on {}", server.name());
        running.stop().await;
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
        // Ten were read in two reads. By the count it is certain that nothing was missing in the first.
        let (after, missed) = if server.name().contains("6.2") { (10, "None") } else { (5, "Some(39)") };
        let gap = format!("after: {after}-0, before: 50-0, missed: {missed}");
        assert!(told[0].text.contains(&gap), "{}", told[0].text);
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
