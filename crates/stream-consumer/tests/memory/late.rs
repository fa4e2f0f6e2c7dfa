//! What is decided in time and carried out late, and what is found in the own pending list: who owns an entry by then, and how
//! often it was started, stays right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stream_consumer::{Consumer, Context, DurableBuilder, EntryId, Event, Outcome, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, abandoned};

const LEASE: Duration = Duration::from_secs(3);

fn consumer(server: &MemoryServer) -> DurableBuilder {
    let client = server.client();
    Consumer::durable(&client).stream("s").group("g").consumer("c").lease(LEASE).grace(Duration::from_secs(1))
}

fn owner(server: &MemoryServer, id: EntryId) -> Option<(String, u64)> {
    let pending = server.pending("s", "g").into_iter().find(|(pending, ..)| *pending == id);
    pending.map(|(_, owner, _, deliveries)| (owner, deliveries))
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_waited_for_a_connection_takes_nothing_from_the_next_owner() {
    let server = MemoryServer::new();
    let entry = server.add("s", [("data", "0")]);
    let shutdown = Shutdown::new();
    let (stop, network) = (shutdown.clone(), server.clone());
    let consumer = consumer(&server).take_over(false).build().unwrap();
    let run = tokio::spawn(async move {
        let handler = move || {
            // The network is gone as the handler returns.
            network.kill_connections();
            network.set_down(true);
            async {}
        };
        consumer.run_with(&stop, handler).await
    });
    sleep(Duration::from_secs(5)).await;
    server.command(["XCLAIM", "s", "g", "other", "3000", &entry.to_string()]).unwrap();
    server.set_down(false);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(owner(&server, entry), Some(("other".to_owned(), 2)));
    shutdown.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_count_that_is_confirmed_after_its_lease_starts_nothing() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 1, 1);
    let entry = server.entries("s")[0].id();
    // The leases are not renewed, as when the process stands still.
    server.fail_always("RENEW", Fault::error("BUSY Redis is busy running a script."));
    server.fail_next("TAKE", Fault::error("NOSCRIPT No matching script. Please use EVAL."));
    server.fail_next("TAKE", Fault::Delay(Duration::from_secs(4)));
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = consumer(&server).build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    stream_testkit::eventually(Duration::from_mins(1), "the count to be set", || {
        std::future::ready((owner(&server, entry) == Some(("c".to_owned(), 2))).then_some(()))
    })
    .await;
    sleep(LEASE + Duration::from_millis(100)).await;
    server.command(["XCLAIM", "s", "g", "other", "3000", &entry.to_string()]).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(journal.attempts().is_empty(), "somebody else owns it: {:?}", journal.attempts());
    shutdown.stop();
    run.await.unwrap().unwrap();
}

/// Starts the consumer and leaves it an entry that another has read, and started so often, before it died.
async fn with_dead_neighbour(server: &MemoryServer, starts: u64) -> EntryId {
    sleep(Duration::from_secs(1)).await;
    // While the consumer's reader is away, another reads.
    server.kill_readers();
    let entry = server.add("s", [("data", "0")]);
    server.command(["XREADGROUP", "GROUP", "g", "dead", "STREAMS", "s", ">"]).unwrap();
    let (id, starts) = (entry.to_string(), starts.to_string());
    server.command(["XCLAIM", "s", "g", "dead", "0", &id, "RETRYCOUNT", &starts, "JUSTID"]).unwrap();
    entry
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_is_not_taken_for_what_a_cut_read_had_brought() {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = consumer(&server).build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    let entry = with_dead_neighbour(&server, 1).await;
    // All connections break between the claim and the look at its counts.
    let (network, broken) = (server.clone(), Arc::new(AtomicBool::new(false)));
    server.on_command(move |args| {
        let counts = args[0] == b"XPENDING" && args.last() == Some(&&b"c"[..]);
        if counts && owner(&network, entry).is_some() && !broken.swap(true, Ordering::SeqCst) {
            network.kill_connections();
        }
    });
    sleep(Duration::from_mins(1)).await;
    assert_eq!(journal.attempts()[&entry], [2], "the dead one had started it");
    assert!(server.pending("s", "g").is_empty());
    shutdown.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_at_a_stop_keeps_its_count_although_a_read_is_cut_off() {
    let server = MemoryServer::new();
    let shutdown = Shutdown::new();
    let consumer = consumer(&server).build().unwrap();
    let stop = shutdown.clone();
    let run = tokio::spawn(async move { consumer.run_with(&stop, std::future::pending::<()>).await });
    let entry = with_dead_neighbour(&server, 2).await;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(owner(&server, entry), Some(("c".to_owned(), 3)), "it runs");
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!((report.aborted, report.left_pending), (1, 0));
    assert_eq!(owner(&server, entry), Some(("c".to_owned(), 3)), "three starts, also for who takes it over");
}

/// What was carried out and got no answer was carried out by us, and nobody has taken anything.
#[tokio::test(start_paused = true)]
async fn what_was_settled_without_an_answer_is_not_told_as_lost() {
    for (command, outcome) in [("XACK", Outcome::Done), ("EVAL DEAD_LETTER", Outcome::reject("no"))] {
        let server = MemoryServer::new();
        server.add("s", [("data", "0")]);
        let shutdown = Shutdown::new();
        let (stop, network) = (shutdown.clone(), server.clone());
        let told = Arc::new(AtomicBool::new(false));
        let lost = Arc::clone(&told);
        let consumer = consumer(&server).observer(move |_: &StreamKey, event: &Event<'_>| {
            lost.fetch_or(matches!(event, Event::LeaseLost { .. }), Ordering::SeqCst);
        });
        let consumer = consumer.build().unwrap();
        server.fail_next(command, Fault::CutAfter);
        let run = tokio::spawn(async move {
            let handler = move || {
                let outcome = outcome.clone();
                async move { outcome }
            };
            consumer.run_with(&stop, handler).await
        });
        stream_testkit::eventually(LEASE, "it to be settled", || {
            std::future::ready((server.count(command) > 0).then_some(()))
        })
        .await;
        assert!(server.pending("s", "g").is_empty());
        // Until no lease is certain any more.
        network.set_down(true);
        sleep(2 * LEASE).await;
        network.set_down(false);
        sleep(Duration::from_mins(5)).await;
        shutdown.stop();
        let stats = run.await.unwrap().unwrap().stats;
        let settled = stats.acknowledged + stats.already_acknowledged + stats.dead_lettered;
        assert_eq!(
            (settled, stats.leases_lost, server.len("s:dead")),
            (1, 0, usize::from(command != "XACK")),
            "{stats:?}"
        );
        assert!(!told.load(Ordering::SeqCst), "{command}");
    }
}
