//! Acknowledgements under load: nobody waits for a slow neighbour, none is a command of its own, and one at a time is in
//! order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, EntryId, Shutdown};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::{Instant, sleep};

use super::support::{Journal, publish, settled};

#[tokio::test(start_paused = true)]
async fn a_slow_handler_does_not_hold_back_the_acknowledgements_of_others() {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(1));
    publish(&server, "s", 5_000);
    let slow: Vec<EntryId> = [0, 7, 2_500].map(|place| server.entries("s")[place].id()).to_vec();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let (shutdown, slow) = (shutdown.clone(), slow.clone());
        async move {
            let handler = move |cx: Context| {
                let takes = if slow.contains(&cx.id()) { Duration::from_hours(1) } else { Duration::ZERO };
                async move {
                    if takes > Duration::ZERO {
                        sleep(takes).await;
                    }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    let last = server.entries("s").last().map(stream_core::Entry::id);
    let began = Instant::now();
    stream_testkit::eventually(Duration::from_mins(10), "all but the slow to be acknowledged", || {
        let pending: Vec<EntryId> = server.pending("s", "g").into_iter().map(|(id, ..)| id).collect();
        let all_read = server.group_last_delivered("s", "g") == last;
        std::future::ready((all_read && pending == slow).then_some(()))
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    sleep(Duration::from_hours(2)).await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.acknowledged, report.stats.leases_lost), (5_000, 0));
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_under_load_are_no_more_commands_than_reads() {
    for latency in [0, 1, 20].map(Duration::from_millis) {
        let server = MemoryServer::new();
        server.set_latency(latency);
        publish(&server, "s", 20_000);
        let journal = Journal::default();
        let shutdown = Shutdown::new();
        let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
        let stats = consumer.stats();
        let run = tokio::spawn({
            let (journal, shutdown) = (journal.clone(), shutdown.clone());
            async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
        });
        settled(&server, "s", "g", 20_000, &journal).await;
        let (acks, reads) = (server.count("XACK"), stats.get().reads);
        assert!(acks <= reads + reads / 50 + 1, "{acks} acknowledgements for {reads} reads at {latency:?}");
        shutdown.stop();
        assert_eq!(run.await.unwrap().unwrap().stats.acknowledged, 20_000);
    }
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time_is_in_order_whether_handlers_are_ready_at_once_or_later() {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(1));
    publish(&server, "s", 3_000);
    let ids: Vec<EntryId> = server.entries("s").iter().map(stream_core::Entry::id).collect();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").concurrency(1).build().unwrap();
    let steps = Arc::new(Mutex::new(Vec::new()));
    let run = tokio::spawn({
        let (shutdown, steps) = (shutdown.clone(), Arc::clone(&steps));
        async move {
            let handler = move |cx: Context, Data(data): Data| {
                let steps = Arc::clone(&steps);
                async move {
                    steps.lock().unwrap().push((cx.id(), "begins"));
                    // Mostly ready at once, now and then not for a while.
                    if data.ends_with(b"77") {
                        sleep(Duration::from_millis(3)).await;
                    } else if data.ends_with(b"5") {
                        tokio::task::yield_now().await;
                    }
                    steps.lock().unwrap().push((cx.id(), "ends"));
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    stream_testkit::eventually(Duration::from_hours(1), "all to be acknowledged", || {
        let done = steps.lock().unwrap().len() == 6_000 && server.pending("s", "g").is_empty();
        std::future::ready(done.then_some(()))
    })
    .await;
    shutdown.stop();
    run.await.unwrap().unwrap();
    let expected: Vec<_> = ids.iter().flat_map(|&id| [(id, "begins"), (id, "ends")]).collect();
    assert_eq!(*steps.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_waits_for_its_connection_beyond_the_lease_takes_nothing_from_a_new_owner() {
    let server = MemoryServer::new();
    let entry = server.add("s", [("data", "0")]);
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .lease(Duration::from_secs(3))
        .take_over(false)
        .backoff(Duration::from_millis(10), Duration::from_millis(20))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move {
            let handler = move |_: Context| {
                server.fail_always("CONNECT", Fault::Delay(Duration::from_secs(10)));
                server.kill_connections();
                std::future::ready(())
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    sleep(Duration::from_secs(5)).await;
    server.command(["XCLAIM", "s", "g", "other", "0", &entry.to_string()]).unwrap();
    sleep(Duration::from_mins(1)).await;
    let owners: Vec<_> = server.pending("s", "g").into_iter().map(|(_, owner, ..)| owner).collect();
    assert_eq!(owners, ["other"]);
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.stats.handled, report.stats.acknowledged, report.stats.leases_lost), (1, 0, 1));
}
