//! Exact ones, on the in-memory server with paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use stream_testkit::{MemoryServer, work_for};
use streamkeeper::{Consumer, Context, EntryId, Fields, Json, Outcome, RetryPolicy, Shutdown, StartFrom};

use super::{Seen, ephemeral, run};
use crate::memory::{publish, until};

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

#[tokio::test(start_paused = true)]
async fn a_missing_stream_is_waited_for_in_silence_and_its_first_entry_handled_at_once() {
    let server = MemoryServer::new();
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s"), seen.handler());
    until("ready", || running.is_ready()).await;
    let before = server.commands();
    work_for(Duration::from_mins(1)).await;
    let count = |name: &str| server.count(name) - before.get(name).copied().unwrap_or(0);
    assert_eq!(count("XREAD"), 12, "one for each BLOCK period of 5 s");
    assert_eq!((count("XINFO STREAM"), count("CONNECT")), (0, 0));
    assert!(running.is_calm(), "{:?}", running.events.all());
    assert_eq!(server.commands().keys().map(String::as_str).filter(|name| name.starts_with("XGROUP")).count(), 0);

    let at = tokio::time::Instant::now();
    let first = server.add("s", [("data", "1")]);
    until("the first entry", || seen.len() == 1).await;
    assert!(at.elapsed() < Duration::from_millis(20), "{:?}", at.elapsed());
    assert_eq!(seen.ids(), [first]);
    assert!(running.is_calm());
    assert_eq!(running.stop().await.positions[0].1, first);
}

#[tokio::test(start_paused = true)]
async fn b37_what_is_published_right_after_ready_is_received() {
    let server = MemoryServer::new();
    publish(&server, "s", 50);
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s"), seen.handler());
    until("ready", || running.is_ready()).await;
    let published = publish(&server, "s", 1_000);
    until("all", || seen.len() == 1_000).await;
    assert_eq!(seen.ids(), published, "all of them, in order, and nothing from before");
    assert!(running.is_calm());
    let report = running.stop().await;
    assert_eq!((report.stats.received, report.stats.handled, report.unstarted), (1_000, 1_000, 0));
}

#[tokio::test(start_paused = true)]
async fn the_next_entries_of_a_backlog_are_read_while_a_handler_runs() {
    let server = MemoryServer::new();
    let published = publish(&server, "s", 100);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let seen = Seen::default();
    let (opens, noted) = (Arc::clone(&gate), seen.clone());
    let builder = ephemeral(&server.client(), "s").start(StartFrom::Beginning).prefetch(19);
    let running = run(builder, move |cx: Context| {
        noted.note(&cx);
        let gate = Arc::clone(&opens);
        async move { drop(gate.acquire_owned().await) }
    });
    until("two reads of half the room", || running.stats.get().received == 20).await;
    let stats = running.stats.get();
    assert_eq!((stats.reads, stats.started, server.count("XREAD")), (2, 1, 2));
    work_for(Duration::from_mins(1)).await;
    assert_eq!(running.stats.get().received, 20, "there is no room for more");
    gate.add_permits(tokio::sync::Semaphore::MAX_PERMITS);
    until("all", || seen.len() == 100).await;
    assert_eq!(seen.ids(), published);
    assert!(running.is_calm(), "{:?}", running.events.all());
    assert_eq!(running.stop().await.positions[0].1, published[99]);
}

#[tokio::test(start_paused = true)]
async fn b37_two_streams_alternately_with_short_blocks_miss_nothing() {
    let server = MemoryServer::new();
    let seen = Seen::default();
    let builder = ephemeral(&server.client(), "a").stream("b").block(Duration::from_millis(100));
    let running = run(builder, seen.handler());
    until("both to be ready", || running.events.count("Ready") == 2).await;
    let mut published = [Vec::new(), Vec::new()];
    for n in 0..1_000 {
        published[n % 2].extend(publish(&server, ["a", "b"][n % 2], 1));
        work_for(Duration::from_millis((n as u64 * 37) % 130)).await;
    }
    until("all", || seen.len() == 1_000).await;
    assert_eq!([seen.of("a"), seen.of("b")], published);
    assert!(running.is_calm(), "{:?}", running.events.all().iter().find(|told| !told.text.starts_with("Started")));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_start_begins_where_it_says() {
    let check = |start: StartFrom, expected: &'static [u64]| async move {
        let server = MemoryServer::new();
        for ms in 1..=5 {
            server.add_at("s", id(ms), [("n", "1")]).unwrap();
        }
        let seen = Seen::default();
        let running = run(ephemeral(&server.client(), "s").start(start), seen.handler());
        until("ready", || running.is_ready()).await;
        server.add_at("s", id(6), [("n", "1")]).unwrap();
        until("the last", || seen.ids().last() == Some(&id(6))).await;
        assert_eq!(seen.ids(), expected.iter().map(|ms| id(*ms)).collect::<Vec<_>>(), "{start:?}");
        running.stop().await;
    };
    check(StartFrom::End, &[6]).await;
    check(StartFrom::Beginning, &[1, 2, 3, 4, 5, 6]).await;
    check(StartFrom::Id(id(3)), &[4, 5, 6]).await;
    check(StartFrom::Time(3), &[3, 4, 5, 6]).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_costs_a_read_and_a_look_in_each_block_period() {
    let server = MemoryServer::new();
    publish(&server, "s", 3);
    let running = run(ephemeral(&server.client(), "s"), || async {});
    until("ready", || running.is_ready()).await;
    let before = server.commands();
    work_for(Duration::from_mins(1)).await;
    let count = |name: &str| server.count(name) - before.get(name).copied().unwrap_or(0);
    assert_eq!((count("XREAD"), count("XINFO STREAM"), count("CONNECT")), (12, 12, 0));
    assert!(running.is_calm());
    running.stop().await;
    assert!(server.groups("s").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_no_more_than_it_may() {
    let server = MemoryServer::new();
    publish(&server, "s", 5_000);
    let builder = ephemeral(&server.client(), "s").start(StartFrom::Beginning).prefetch(20);
    let running = run(builder, || work_for(Duration::from_secs(1)));
    for second in 1..100_u64 {
        work_for(Duration::from_secs(1)).await;
        let stats = running.stats.get();
        let held = stats.received - stats.handled;
        assert!(held <= 21, "{held} entries are held after {second} s");
        assert!(stats.handled + 2 >= second, "{} handled after {second} s", stats.handled);
    }
    // By bytes: ten entries of 1 KiB.
    let server = MemoryServer::new();
    for _ in 0..1_000 {
        server.add("s", [("data", "x".repeat(1_024))]);
    }
    let builder = ephemeral(&server.client(), "s").start(StartFrom::Beginning).prefetch_bytes(10_500);
    let by_bytes = run(builder, || work_for(Duration::from_secs(1)));
    for _ in 0..50 {
        work_for(Duration::from_secs(1)).await;
        let stats = by_bytes.stats.get();
        assert!(stats.received - stats.handled <= 11, "{stats:?}");
    }
    assert!(by_bytes.stats.get().handled >= 48);
    let report = by_bytes.stop().await;
    assert_eq!(report.stats.received, report.stats.handled + report.unstarted);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_counted_and_told_and_nothing_is_written() {
    let server = MemoryServer::new();
    for text in ["\"done\"", "\"retry\"", "\"reject\"", "\"release\"", "broken"] {
        server.add("s", [("data", text)]);
    }
    let builder = ephemeral(&server.client(), "s")
        .start(StartFrom::Beginning)
        .retry(RetryPolicy::fixed(Duration::from_secs(2)).max_attempts(3));
    let running = run(builder, |Json(word): Json<String>| async move {
        match word.as_str() {
            "retry" => Outcome::failed("no"),
            "reject" => Outcome::reject("never"),
            "release" => Outcome::Release,
            _ => Outcome::Done,
        }
    });
    until("all", || running.stats.get().handled + running.stats.get().given_up == 5).await;
    let events = running.events.clone();
    let report = running.stop().await;
    let stats = report.stats;
    assert_eq!((stats.handled, stats.retried, stats.given_up, stats.started), (1, 2, 4, 7));
    assert_eq!((events.count("Retrying"), events.count("GivenUp")), (2, 4));
    let given_up = events.named("GivenUp");
    for (told, reason) in given_up.iter().zip(["Exhausted", "Rejected", "Rejected", "Undecodable"]) {
        assert!(told.text.contains(reason), "in order, with the reason: {}", told.text);
    }
    assert_eq!(report.positions[0].1, server.entries("s").last().unwrap().id());
    let wrote = ["XADD", "XACK", "XGROUP CREATE", "EVAL", "EVALSHA"].iter().map(|name| server.count(name)).sum::<u64>();
    assert_eq!(wrote, 0);
}

#[tokio::test(start_paused = true)]
async fn more_handlers_at_a_time_are_allowed_and_the_position_is_still_the_finished_prefix() {
    let server = MemoryServer::new();
    let ids = publish(&server, "s", 20);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stuck = ids[3];
    let builder =
        ephemeral(&server.client(), "s").start(StartFrom::Beginning).concurrency(8).grace(Duration::from_secs(1));
    let running = run(builder, {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |cx: Context| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                work_for(Duration::from_millis(100)).await;
                if cx.id() == stuck {
                    std::future::pending::<()>().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
            }
        }
    });
    until("all but one", || running.stats.get().handled == 19).await;
    assert_eq!(most.load(Ordering::SeqCst), 8);
    let report = running.stop().await;
    assert_eq!((report.aborted, report.positions[0].1), (1, ids[2]));
}

#[tokio::test(start_paused = true)]
async fn batches_come_together_and_in_order() {
    let server = MemoryServer::new();
    publish(&server, "s", 25);
    let shutdown = Shutdown::new();
    let (seen, stop) = (Arc::new(std::sync::Mutex::new(Vec::new())), shutdown.clone());
    let noted = Arc::clone(&seen);
    let consumer = ephemeral(&server.client(), "s").start(StartFrom::Beginning).build().unwrap();
    let report = consumer
        .run_batches(&shutdown, 10, move |items: Vec<Fields>| {
            let mut seen = noted.lock().unwrap();
            seen.push(items.len());
            if seen.iter().sum::<usize>() == 25 {
                stop.stop();
            }
            std::future::ready(())
        })
        .await
        .unwrap();
    assert_eq!((seen.lock().unwrap().as_slice(), report.stats.handled), ([10, 10, 5].as_slice(), 25));
}

#[tokio::test(start_paused = true)]
async fn entries_come_as_a_stream_and_what_was_not_taken_is_not_counted() {
    let server = MemoryServer::new();
    let ids = publish(&server, "s", 100);
    let consumer = ephemeral(&server.client(), "s").start(StartFrom::Beginning).build().unwrap();
    let mut entries = consumer.entries();
    let taken: Vec<EntryId> = entries.by_ref().take(40).map(|delivery| delivery.id()).collect().await;
    assert_eq!(taken, ids[..40]);
    let report = entries.stop().await.unwrap();
    assert_eq!((report.stats.handled, report.positions[0].1), (40, ids[39]));
    // And that is where another one goes on.
    let consumer = ephemeral(&server.client(), "s").start(StartFrom::Id(ids[39])).build().unwrap();
    let mut entries = consumer.entries();
    assert_eq!(entries.next().await.map(|delivery| delivery.id()), Some(ids[40]));
    drop(entries);
    until("the dropped one to be gone", || server.open_connections() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_refused() {
    let server = MemoryServer::new();
    let client = server.client();
    let check = |builder: streamkeeper::EphemeralBuilder, text: &str| {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    check(Consumer::ephemeral(&client), "stream is missing");
    check(ephemeral(&client, "s").stream("s"), "named twice");
    check(ephemeral(&client, "s").concurrency(0), "concurrency");
    check(ephemeral(&client, "s").prefetch_bytes(0), "prefetch_bytes");
    check(ephemeral(&client, "s").block(Duration::ZERO), "block");
    check(ephemeral(&client, "s").timeout(Duration::ZERO), "timeout");
    check(ephemeral(&client, "s").retry(RetryPolicy::immediate().max_attempts(0)), "max_attempts");
}
