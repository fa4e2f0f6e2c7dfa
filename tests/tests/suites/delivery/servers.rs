//! Storms, suspects and long handlers on real servers.

use std::time::Duration;

use stream_testkit::{RealServer, work_for};
use streamkeeper::{Consumer, Context, Data, DurableBuilder, RetryPolicy};
use streamkeeper_tests::{Ask, Journal, Running, on_each, start};
use tokio::sync::mpsc;

fn builder(server: &RealServer, key: &str) -> DurableBuilder {
    // A client of its own for each consumer, as two processes have. Short pauses, since a renewal that is not answered in
    // time costs the connection, and the lease runs on meanwhile.
    Consumer::durable(&server.client())
        .stream(key)
        .group("g")
        .block(Duration::from_secs(1))
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
}

fn taking(builder: DurableBuilder, journal: &Journal, time: Duration) -> Running {
    let journal = journal.clone();
    start(builder, move |cx: Context| {
        let run = journal.begin(&cx);
        async move {
            work_for(time).await;
            run.end();
        }
    })
}

async fn settled(server: &RealServer, key: &str, journal: &Journal, count: usize) {
    let name = server.name();
    stream_testkit::eventually(Duration::from_secs(90), format!("{count} entries to be handled on {name}"), || async {
        (journal.finished() == count && server.pending(key, "g").await == 0).then_some(())
    })
    .await;
}

/// Two consumers, 120 messages, a handler of 200 ms, a lease of 6 s.
async fn storm(server: &RealServer, each: impl Fn(DurableBuilder) -> DurableBuilder) {
    let key = server.fresh_key("storm");
    let journal = Journal::default();
    server.publish(&key, 120).await;
    let run = |name: &str| {
        let builder = each(builder(server, &key).consumer(name).lease(Duration::from_secs(6)));
        taking(builder, &journal, Duration::from_millis(200))
    };
    let (one, two) = (run("one"), run("two"));
    settled(server, &key, &journal, 120).await;
    let (one, two) = (one.stop().await, two.stop().await);
    assert_eq!(journal.starts(), 120, "{}", server.name());
    assert_eq!(one.stats.acknowledged + two.stats.acknowledged, 120, "{}", server.name());
    assert_eq!(one.stats.taken_over + two.stats.taken_over, 0, "{}", server.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_duplicate_storm_is_exactly_one_start_for_each_message() {
    on_each(|server| async move {
        tokio::join!(
            // 64 fetched at a time and handled one after the other: each is held for up to two leases.
            storm(&server, |builder| builder.concurrency(64).prefetch(0).order_by_entry(|_| Some(0))),
            storm(&server, |builder| builder.concurrency(1).prefetch(63)),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_five_leases_runs_once() {
    on_each(|server| async move {
        let key = server.fresh_key("long");
        let journal = Journal::default();
        server.publish(&key, 10).await;
        let run = || {
            let builder = builder(&server, &key).lease(Duration::from_secs(2)).concurrency(5).prefetch(0);
            taking(builder, &journal, Duration::from_secs(10))
        };
        let (one, two) = (run(), run());
        settled(&server, &key, &journal, 10).await;
        let (one, two) = (one.stop().await, two.stop().await);
        assert_eq!(journal.starts(), 10, "{}", server.name());
        assert_eq!(one.stats.leases_lost + two.stats.leases_lost, 0, "{}", server.name());
    })
    .await;
}

/// One process that is restarted under a new name whenever message number `killer` of `count` takes it down.
async fn suspects(server: &RealServer, killer: usize, count: usize) {
    let context = format!("{}, killer {killer}", server.name());
    let key = server.fresh_key("suspects");
    let dead = format!("{key}:dead");
    let ids = server.publish(&key, count).await;
    let journal = Journal::default();
    let (killed, mut deaths) = mpsc::unbounded_channel();
    let run = |n: usize| {
        let (journal, killed) = (journal.clone(), killed.clone());
        let builder = builder(server, &key)
            .consumer(format!("worker-{n}"))
            .lease(Duration::from_secs(2))
            .concurrency(64)
            .retry(RetryPolicy::immediate().max_attempts(3));
        start(builder, move |Data(data): Data, cx: Context| {
            let run = journal.begin(&cx);
            let killed = killed.clone();
            let number: usize = std::str::from_utf8(&data).unwrap().parse().unwrap();
            async move {
                work_for(Duration::from_millis(5 + (number as u64 * 7) % 20)).await;
                if number == killer {
                    killed.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                run.end();
            }
        })
    };
    let mut consumer = run(0);
    let mut restarts = 0;
    let settled = async || {
        stream_testkit::eventually(Duration::from_secs(90), format!("the end on {context}"), || async {
            (server.len(&dead).await > 0 && server.pending(&key, "g").await == 0).then_some(())
        })
        .await;
    };
    loop {
        tokio::select! {
            Some(()) = deaths.recv() => {
                consumer.crash().await;
                restarts += 1;
                consumer = run(restarts);
            }
            () = settled() => break,
        }
    }
    consumer.stop().await;
    assert_eq!(restarts, 3, "{context}");
    assert_eq!(server.len(&dead).await, 1, "{context}");
    assert_eq!(journal.attempts_of(ids[killer]), [1, 2, 3], "{context}");
    assert_eq!(journal.finished(), count - 1, "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn suspects_only_the_killer_is_dead_lettered_and_after_exactly_three_starts() {
    on_each(|server| async move {
        tokio::join!(suspects(&server, 0, 64), suspects(&server, 40, 64), suspects(&server, 100, 150));
    })
    .await;
}
