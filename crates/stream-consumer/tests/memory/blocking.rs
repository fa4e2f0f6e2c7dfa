//! A handler that never gives its thread back: on real threads and real time, since it cannot be stopped otherwise.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Event, Shutdown, StartFrom};
use stream_core::StreamKey;
use stream_testkit::{MemoryServer, eventually, work_for};
use tokio::time::timeout;

use super::support::publish;

const LONG: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_holds_up_neither_the_leases_nor_the_stop() {
    let server = MemoryServer::new();
    let slow = server.add("s", [("data", "slow")]);
    let lease = Duration::from_secs(6);
    let (release, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let blocked = Arc::new(AtomicBool::new(false));
    let told = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .consumer("c")
        .lease(lease)
        .grace(Duration::from_millis(100))
        .observer({
            let told = Arc::clone(&told);
            move |_: &StreamKey, event: &Event<'_>| {
                if matches!(event, Event::Blocked { .. }) {
                    told.store(true, Ordering::SeqCst);
                }
            }
        })
        .build()
        .unwrap();
    let stats = consumer.stats();
    let run = tokio::spawn({
        let (shutdown, blocked) = (shutdown.clone(), Arc::clone(&blocked));
        async move {
            let handler = move |Data(data): Data, _: Context| {
                let (gate, blocked, seen) = (Arc::clone(&gate), Arc::clone(&blocked), Arc::clone(&seen));
                async move {
                    if data == "slow" {
                        work_for(LONG).await;
                    }
                    // A task that has run a handler before is the run loop itself.
                    let inline = !seen.lock().unwrap().insert(tokio::task::id());
                    if inline && !blocked.swap(true, Ordering::SeqCst) {
                        let _ = gate.lock().unwrap().recv();
                    }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    eventually(LONG, "a handler to block the run loop", || {
        publish(&server, "s", 20);
        std::future::ready(blocked.load(Ordering::SeqCst).then_some(()))
    })
    .await;
    let before = server.count("EVALSHA RENEW");
    eventually(LONG, "leases to be renewed for longer than one lasts", || {
        let idle = server.pending("s", "g").into_iter().find(|(id, ..)| *id == slow).map(|(_, _, idle, _)| idle);
        assert!(idle.is_some_and(|idle| idle < lease), "the lease on {slow} was not renewed: {idle:?}");
        let renewed = server.count("EVALSHA RENEW") >= before + 4 && told.load(Ordering::SeqCst);
        std::future::ready(renewed.then_some(()))
    })
    .await;
    shutdown.stop();
    let report = timeout(LONG, run).await.expect("the stop is bounded").unwrap().unwrap();
    assert_eq!((report.stuck, report.consumer_removed, stats.get().leases_lost), (1, false, 0), "{report:?}");
    assert!(report.left_pending >= 2, "what runs and what blocks: {report:?}");
    // What is left is left: nobody renews it any more, and others may take it over.
    let renewed = server.count("EVALSHA RENEW");
    work_for(lease / 3 * 2).await;
    assert_eq!(server.count("EVALSHA RENEW"), renewed);
    drop(release);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_does_not_hold_up_the_stop_of_an_ephemeral_consumer() {
    let server = MemoryServer::new();
    let (release, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let blocked = Arc::new(Mutex::new(None));
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let shutdown = Shutdown::new();
    let consumer = Consumer::ephemeral(&server.client())
        .stream("s")
        .stream("quiet")
        .start(StartFrom::Beginning)
        .grace(Duration::from_millis(100))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (shutdown, blocked) = (shutdown.clone(), Arc::clone(&blocked));
        async move {
            let handler = move |cx: Context| {
                let (gate, blocked, seen) = (Arc::clone(&gate), Arc::clone(&blocked), Arc::clone(&seen));
                async move {
                    // A task that has run a handler before is the run loop itself.
                    let inline = !seen.lock().unwrap().insert(tokio::task::id());
                    if inline && blocked.lock().unwrap().is_none() {
                        *blocked.lock().unwrap() = Some(cx.id());
                        let _ = gate.lock().unwrap().recv();
                    }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    eventually(LONG, "a handler to block the run loop", || {
        publish(&server, "s", 20);
        std::future::ready(blocked.lock().unwrap().is_some().then_some(()))
    })
    .await;
    shutdown.stop();
    let report = timeout(LONG, run).await.expect("the stop is bounded").unwrap().unwrap();
    assert_eq!((report.stuck, report.positions.len()), (1, 2), "{report:?}");
    let blocked = blocked.lock().unwrap().unwrap();
    let (_, position) = report.positions.iter().find(|(key, _)| key.to_string() == "s").unwrap();
    assert!(*position < blocked, "nobody has handled {blocked}: {report:?}");
    drop(release);
}
