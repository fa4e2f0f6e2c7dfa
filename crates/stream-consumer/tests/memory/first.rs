//! Acknowledged before the start, where the order of the starts is that of the stream: an acknowledgement that has to be
//! repeated is not overtaken by those behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Acknowledge, Consumer, Context, DurableBuilder, EntryId, RetryOrder, Shutdown};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;

use super::support::{Journal, publish};

const ENTRIES: usize = 10;

fn consumer(server: &MemoryServer) -> DurableBuilder {
    Consumer::durable(&server.client()).stream("s").group("g").acknowledge(Acknowledge::First)
}

fn busy() -> Fault {
    Fault::error("BUSY Redis is busy running a script")
}

/// Each entry comes by itself, and the first acknowledgement goes wrong.
async fn check(kind: &str, fault: Fault, order: impl FnOnce(DurableBuilder) -> DurableBuilder) {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(1));
    server.set_chunk(Some(1));
    publish(&server, "s", ENTRIES);
    let ids: Vec<EntryId> = server.entries("s").iter().map(stream_core::Entry::id).collect();
    server.fail_next("XACK", fault.clone());
    let started = Arc::new(Mutex::new(Vec::new()));
    let shutdown = Shutdown::new();
    let consumer = order(consumer(&server)).build().unwrap();
    let run = tokio::spawn({
        let (shutdown, started) = (shutdown.clone(), Arc::clone(&started));
        async move {
            let handler = move |cx: Context| {
                started.lock().unwrap().push(cx.id());
                async {}
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    stream_testkit::eventually(Duration::from_mins(10), "all to be started", || {
        let done = started.lock().unwrap().len() >= ENTRIES && server.pending("s", "g").is_empty();
        std::future::ready(done.then_some(()))
    })
    .await;
    shutdown.stop();
    run.await.unwrap().unwrap();
    assert_eq!(*started.lock().unwrap(), ids, "{kind}, {fault:?}");
    // Whatever has come meanwhile goes with one command.
    assert!(server.count("XACK") < ENTRIES as u64, "{kind}, {fault:?}: {}", server.count("XACK"));
}

#[tokio::test(start_paused = true)]
async fn starts_keep_the_order_of_the_stream_although_an_acknowledgement_beforehand_is_repeated() {
    for fault in [busy(), Fault::CutBefore, Fault::CutAfter] {
        check("a key", fault.clone(), |consumer| consumer.order_by_entry(|_| Some(0))).await;
        check("one at a time", fault.clone(), |consumer| consumer.concurrency(1)).await;
        check("in place", fault, |consumer| consumer.retry_order(RetryOrder::InPlace)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_to_be_acknowledged_is_not_when_a_stop_is_not_waited_for() {
    let server = MemoryServer::new();
    server.set_chunk(Some(1));
    publish(&server, "s", ENTRIES);
    server.fail_always("XACK", busy());
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = consumer(&server).order_by_entry(|_| Some(0)).grace(Duration::from_secs(60)).build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    stream_testkit::eventually(Duration::from_mins(1), "an acknowledgement to be repeated", || {
        std::future::ready((server.count("XACK") > 1).then_some(()))
    })
    .await;
    shutdown.stop_now();
    server.clear_faults();
    let report = run.await.unwrap().unwrap();
    let left = server.pending("s", "g").len() as u64;
    assert!(left >= ENTRIES as u64 - 1, "at most the one whose acknowledgement was under way is: {left}");
    assert_eq!((journal.attempts().len(), report.left_pending), (0, left));
    assert_eq!(report.stats.given_up, ENTRIES as u64 - left);
}
