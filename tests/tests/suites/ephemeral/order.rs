//! Lanes, starts and resuming, on the in-memory server with paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, work_for};
use streamkeeper::{Context, Entry, EntryId, Outcome, RetryOrder, RetryPolicy, RunState, StartFrom};

use super::{Seen, ephemeral, run};
use crate::memory::{publish, until};

/// What handlers were given by key, and how many of one key and of all ran at a time.
#[derive(Default)]
struct Lanes {
    starts: BTreeMap<String, Vec<EntryId>>,
    running: BTreeSet<String>,
    overlaps: usize,
    most: usize,
}

#[tokio::test(start_paused = true)]
async fn entries_of_one_key_run_one_at_a_time_in_order_and_others_beside_them() {
    for order in [None, Some(RetryOrder::Later)] {
        let server = MemoryServer::new();
        let mut ids: BTreeMap<String, Vec<EntryId>> = BTreeMap::new();
        for n in 0..120 {
            let key = format!("k{}", n % 6);
            let id = server.add("s", [("key", key.clone()), ("n", n.to_string())]);
            ids.entry(key).or_default().push(id);
        }
        let lanes = Arc::new(Mutex::new(Lanes::default()));
        let mut builder = ephemeral(&server.client(), "s")
            .start(StartFrom::Beginning)
            .concurrency(16)
            .order_by_field("key")
            .retry(RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(3));
        if let Some(order) = order {
            builder = builder.retry_order(order);
        }
        let noted = Arc::clone(&lanes);
        let running = run(builder, move |entry: Entry, cx: Context| {
            let lanes = Arc::clone(&noted);
            async move {
                let key = String::from_utf8(entry.get("key").unwrap().to_vec()).unwrap();
                {
                    let mut lanes = lanes.lock().unwrap();
                    lanes.starts.entry(key.clone()).or_default().push(cx.id());
                    let fresh = lanes.running.insert(key.clone());
                    lanes.overlaps += usize::from(!fresh);
                    lanes.most = lanes.most.max(lanes.running.len());
                }
                work_for(Duration::from_millis(100)).await;
                lanes.lock().unwrap().running.remove(&key);
                // Those from 10 to 19 fail at first: one or two of each key.
                if cx.attempt() == 1 && matches!(entry.get("n").unwrap(), [b'1', _]) {
                    return Outcome::failed("not yet");
                }
                Outcome::Done
            }
        });
        until("all", || running.stats.get().handled == 120).await;
        let report = running.stop().await;
        assert_eq!(report.positions[0].1, ids["k5"][19]);
        let lanes = lanes.lock().unwrap();
        assert_eq!((lanes.overlaps, lanes.most), (0, 6), "{order:?}");
        for (key, starts) in &lanes.starts {
            let mut once = starts.clone();
            once.dedup();
            if order.is_none() {
                assert_eq!(once, ids[key], "in place: a retry holds up those behind it, and only those");
            } else {
                let all: BTreeSet<_> = starts.iter().copied().collect();
                assert_eq!(all, ids[key].iter().copied().collect::<BTreeSet<_>>(), "later: none is forgotten");
                assert_ne!(once, ids[key], "the retry came out of order");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_forgets_none_that_waits_in_its_lane() {
    let server = MemoryServer::new();
    let ids = publish(&server, "s", 50);
    let builder = ephemeral(&server.client(), "s")
        .start(StartFrom::Beginning)
        .concurrency(8)
        .order_by_entry(|_| Some(0))
        .grace(Duration::from_secs(60));
    let running = run(builder, || work_for(Duration::from_secs(10)));
    until("the third to run", || running.stats.get().started == 3).await;
    let report = running.stop().await;
    assert_eq!((report.stats.handled, report.unstarted, report.positions[0].1), (3, 47, ids[2]));
}

#[tokio::test(start_paused = true)]
async fn a_start_some_time_ago_is_by_the_servers_clock_and_resolved_once() {
    let server = MemoryServer::new();
    publish(&server, "s", 5);
    work_for(Duration::from_mins(10)).await;
    let recent = publish(&server, "s", 5);
    work_for(Duration::from_mins(4)).await;
    let seen = Seen::default();
    // The first answer is lost on the way: the question is asked again.
    server.fail_next("TIME", Fault::error("LOADING Redis is loading the dataset in memory"));
    let running = run(ephemeral(&server.client(), "s").start_ago(Duration::from_mins(5)), seen.handler());
    until("what is younger", || seen.len() == 5).await;
    let asked = server.count("TIME");
    server.kill_connections();
    work_for(Duration::from_mins(20)).await;
    let last = publish(&server, "s", 1);
    until("the last", || seen.len() == 6).await;
    assert_eq!(seen.ids(), [recent, last].concat());
    assert_eq!((asked, server.count("TIME")), (2, 2), "not asked again after a reconnect");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_where_another_has_stopped() {
    let server = MemoryServer::new();
    let seen = Seen::default();
    let builder = || ephemeral(&server.client(), "a").stream("b");
    let running = run(builder(), seen.handler());
    until("both to be ready", || running.events.count("Ready") == 2).await;
    publish(&server, "a", 3);
    publish(&server, "b", 3);
    until("six", || seen.len() == 6).await;
    let report = running.stop().await;
    publish(&server, "a", 2);
    let running = run(builder().resume(report.positions), seen.handler());
    publish(&server, "b", 2);
    until("ten", || seen.len() == 10).await;
    assert_eq!((seen.of("a").len(), seen.of("b").len()), (5, 5));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn health_follows_the_consumer() {
    let server = MemoryServer::new();
    let consumer = ephemeral(&server.client(), "s").block(Duration::from_secs(1)).build().unwrap();
    let (health, shutdown) = (consumer.health(), streamkeeper::Shutdown::new());
    assert_eq!((health.get().state, health.get().is_live()), (RunState::Starting, true));
    let switch = shutdown.clone();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let task = tokio::spawn(async move {
        let handler = move || {
            let gate = Arc::clone(&opened);
            async move { gate.acquire_owned().await.unwrap().forget() }
        };
        consumer.run_with(&switch, handler).await
    });
    until("it to read", || health.get().is_ready(Duration::from_secs(3))).await;
    publish(&server, "s", 4);
    until("four to be held", || health.get().held == 4).await;
    assert_eq!(health.get().since_success, None);
    gate.add_permits(3);
    until("three to be handled", || health.get().held == 1).await;
    work_for(Duration::from_secs(2)).await;
    assert_eq!(health.get().since_success.unwrap().as_secs(), 2);
    server.set_down(true);
    server.kill_connections();
    until("it to notice", || health.get().state == RunState::Reconnecting).await;
    work_for(Duration::from_mins(5)).await;
    let away = health.get();
    assert!(away.is_live() && away.reconnects > 0 && away.since_read.unwrap() > Duration::from_mins(4), "{away:?}");
    server.set_down(false);
    until("it to be back", || health.get().is_ready(Duration::from_secs(3))).await;
    shutdown.stop();
    until("it to stop", || health.get().state == RunState::Stopping).await;
    gate.add_permits(1);
    task.await.unwrap().unwrap();
    assert_eq!((health.get().state, health.get().held), (RunState::Ended, 0));
}
