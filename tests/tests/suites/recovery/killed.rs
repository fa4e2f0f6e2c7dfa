//! `kill -9` of the server under load, with its append-only file: nothing that was confirmed is lost, and consumers come
//! back by themselves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stream_testkit::{AppendFsync, Cli, RealServer, ServerOptions, eventually, matrix, work_for};
use streamkeeper::{Client, Consumer, Context, EntryId};
use streamkeeper_tests::{Ask, Journal, on_each_own, start};

/// Publishes until it is told to stop, whatever happens to the server; returns what the server has confirmed.
async fn publish(address: String, stop: Arc<AtomicBool>) -> BTreeSet<EntryId> {
    let mut confirmed = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut cli) = Cli::connect(&address, None).await else {
            work_for(Duration::from_millis(5)).await;
            continue;
        };
        while !stop.load(Ordering::Relaxed) {
            let number = confirmed.len().to_string();
            let Ok(id) = cli.command(&["XADD", "orders", "*", "data", &number]).await else { break };
            confirmed.insert(EntryId::parse(id.as_bytes().unwrap()).unwrap());
            work_for(Duration::from_millis(1)).await;
        }
    }
    confirmed
}

async fn survives(mut server: RealServer, kills: usize) {
    let name = server.name().to_owned();
    let journal = Journal::default();
    let run = |consumer: &str| {
        let seen = journal.clone();
        let builder = Consumer::durable(&Client::open(&server.url()).unwrap())
            .stream("orders")
            .group("g")
            .consumer(consumer)
            .block(Duration::from_secs(1))
            .lease(Duration::from_secs(2))
            .backoff(Duration::from_millis(20), Duration::from_millis(200));
        start(builder, move |cx: Context| {
            let run = seen.begin(&cx);
            async move {
                work_for(Duration::from_millis(3)).await;
                run.end();
            }
        })
    };
    let consumers = [run("one"), run("two")];
    let stop = Arc::new(AtomicBool::new(false));
    let publisher = tokio::spawn(publish(server.address(), Arc::clone(&stop)));
    for round in 0..kills {
        let before = consumers.each_ref().map(|consumer| consumer.stats.get().acknowledged);
        eventually(Duration::from_secs(90), format!("both to work on {name} after {round} kills"), || {
            let now = consumers.each_ref().map(|consumer| consumer.stats.get().acknowledged);
            std::future::ready((now[0] > before[0] + 20 && now[1] > before[1] + 20).then_some(()))
        })
        .await;
        work_for(Duration::from_millis((round as u64 * 37) % 90)).await;
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let confirmed = publisher.await.unwrap();
    eventually(Duration::from_secs(90), format!("everything to be handled on {name}"), || async {
        let stream = server.len("orders").await as usize;
        (journal.finished() >= stream && server.pending("orders", "g").await == 0).then_some(())
    })
    .await;
    let handled: BTreeSet<EntryId> = journal.attempts().into_keys().collect();
    let lost: Vec<_> = confirmed.difference(&handled).collect();
    assert!(lost.is_empty(), "{name}: {} of {} lost: {lost:?}", lost.len(), confirmed.len());
    assert!(confirmed.len() > 40 * kills, "{name}: {} published", confirmed.len());
    assert_eq!(journal.overlaps(), [], "{name}");
    for consumer in consumers {
        assert!(!consumer.is_over(), "{name}");
        assert!(consumer.events.count("Reconnecting") >= kills, "{name}");
        consumer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b45_three_kills_of_the_server_lose_nothing() {
    on_each_own(ServerOptions::new().aof(AppendFsync::Always), |server| survives(server, 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b45_twenty_kills_of_the_server_lose_nothing() {
    let options = ServerOptions::new().aof(AppendFsync::Always);
    survives(RealServer::start(&matrix::one(), &options).await.unwrap(), 20).await;
}
