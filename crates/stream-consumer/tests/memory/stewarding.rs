//! What the steward makes of refusals that pass, and of what it is told late or only in part.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Consumer, Context, DurableBuilder, Event, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use stream_testkit::memory::{Fault, Profile};
use tokio::time::sleep;

use super::support::{Journal, abandoned, publish, settled};

const LEASE: Duration = Duration::from_secs(30);
/// The claim interval is a third of the lease, give or take a tenth.
const LOOK: Duration = Duration::from_secs(11);

/// What a consumer tells that it cannot do.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<&'static str>>>);

impl Told {
    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|told| told.contains(what)).count()
    }
}

fn consumer(server: &MemoryServer, told: &Told) -> DurableBuilder {
    let told = told.clone();
    let client = server.client();
    let consumer = Consumer::durable(&client).stream("s").group("g").consumer("c");
    consumer.lease(LEASE).grace(Duration::from_secs(1)).observer(move |_: &StreamKey, event: &Event<'_>| {
        if let Event::Degraded { what, .. } = event {
            told.0.lock().unwrap().push(what);
        }
    })
}

fn run(consumer: DurableBuilder, journal: &Journal) -> (Shutdown, tokio::task::JoinHandle<stream_consumer::Stats>) {
    let shutdown = Shutdown::new();
    let consumer = consumer.build().unwrap();
    let (journal, stop) = (journal.clone(), shutdown.clone());
    let run =
        tokio::spawn(async move { consumer.run_with(&stop, move |cx: Context| journal.done(cx)).await.unwrap().stats });
    (shutdown, run)
}

#[tokio::test(start_paused = true)]
async fn a_password_that_is_refused_once_puts_no_takeover_off() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 1, 1);
    let (journal, told) = (Journal::default(), Told::default());
    let (shutdown, run) = run(consumer(&server, &told), &journal);
    sleep(Duration::from_secs(1)).await;
    // The connection breaks after one search, and its successor is refused in the next.
    server.fail_next("XINFO GROUPS", Fault::CutBefore);
    server.fail_next("CONNECT", Fault::error("WRONGPASS invalid username-password pair or user is disabled."));
    let started = || std::future::ready((!journal.attempts().is_empty()).then_some(()));
    stream_testkit::eventually(LEASE + 2 * LOOK, "the entry of the dead owner to be started", started).await;
    assert_eq!(told.count("entries of dead owners are not taken over"), 1, "it was refused");
    shutdown.stop();
    run.await.unwrap();
}

/// Runs a handler that does not end while leases cannot be renewed for so long.
async fn refused_for(period: Duration, denied: &[&str]) -> (MemoryServer, Told, Shutdown, tokio::task::JoinHandle<()>) {
    let server = MemoryServer::new();
    server.add("s", [("data", "0")]);
    let told = Told::default();
    let shutdown = Shutdown::new();
    let held = consumer(&server, &told).take_over(false).build().unwrap();
    let stop = shutdown.clone();
    let run = tokio::spawn(async move {
        held.run_with(&stop, std::future::pending::<()>).await.unwrap();
    });
    sleep(Duration::from_secs(5)).await;
    for command in denied {
        server.deny(command);
    }
    sleep(period).await;
    assert_eq!(told.count("leases cannot be renewed"), 1, "{denied:?}");
    server.clear_faults();
    (server, told, shutdown, run)
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_again_once_that_is_allowed_again() {
    let (server, told, shutdown, run) = refused_for(Duration::from_mins(10), &["XCLAIM"]).await;
    let idle = || server.pending("s", "g")[0].2;
    assert!(idle() > Duration::from_mins(9), "{:?}", idle());
    let asked = server.count("EVALSHA RENEW");
    assert!((10..=20).contains(&asked), "{asked} times");
    sleep(Duration::from_secs(75)).await;
    for _ in 0..20 {
        assert!(idle() < LEASE, "{:?}", idle());
        sleep(LOOK).await;
    }
    assert_eq!(told.count("leases cannot be renewed"), 1);
    shutdown.stop();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_lease_is_lost_over_one_renewal_that_is_refused() {
    // Scripts are given up for good then; a lease that old counts as lost without them, and a new one is renewed.
    for (denied, held) in [(&["XCLAIM"][..], 0), (&["XCLAIM", "EVAL", "EVALSHA"], 1)] {
        let (server, _, shutdown, run) = refused_for(Duration::from_secs(6), denied).await;
        server.add("s", [("data", "1")]);
        for _ in 0..20 {
            sleep(LOOK).await;
            let pending = server.pending("s", "g");
            assert!(pending[held..].iter().all(|(_, _, idle, _)| *idle < LEASE), "{denied:?}: {pending:?}");
        }
        shutdown.stop();
        run.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_not_take_over_still_learns_where_the_group_stands() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 1, 1);
    server.deny("XAUTOCLAIM");
    let (journal, told) = (Journal::default(), Told::default());
    let (shutdown, run) = run(consumer(&server, &told), &journal);
    sleep(Duration::from_secs(1)).await;
    let before = server.count("XINFO GROUPS");
    sleep(20 * LOOK).await;
    assert!(server.count("XINFO GROUPS") >= before + 20, "{}", server.count("XINFO GROUPS") - before);
    assert!(server.count("XAUTOCLAIM") <= 2, "it asks seldom: {}", server.count("XAUTOCLAIM"));
    sleep(Duration::from_mins(20)).await;
    assert_eq!(told.count("entries of dead owners are not taken over"), 1);
    server.clear_faults();
    let started = || std::future::ready((!journal.attempts().is_empty()).then_some(()));
    stream_testkit::eventually(Duration::from_mins(6), "the entry to be taken over after all", started).await;
    shutdown.stop();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn deleted_entries_are_told_and_removed_also_where_nothing_can_be_counted() {
    for denied in [&["XPENDING"][..], &["XCLAIM", "EVAL", "EVALSHA"]] {
        let server = MemoryServer::with_profile(Profile::Redis62);
        abandoned(&server, "s", 6, 1);
        let ids: Vec<_> = server.entries("s").iter().map(stream_core::Entry::id).collect();
        server.xdel("s", &[ids[0], ids[3], ids[5]]);
        for command in denied {
            server.deny(command);
        }
        let (journal, told) = (Journal::default(), Told::default());
        let (shutdown, run) = run(consumer(&server, &told), &journal);
        settled(&server, "s", "g", 3, &journal).await;
        assert_eq!(journal.attempts().keys().copied().collect::<Vec<_>>(), [ids[1], ids[2], ids[4]], "{denied:?}");
        shutdown.stop();
        let stats = run.await.unwrap();
        assert_eq!((stats.started, stats.handled, stats.deleted_while_pending), (3, 3, 3), "{denied:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_entries_that_cannot_be_found_out_are_told_of_once_and_hold_up_nothing() {
    let server = MemoryServer::with_profile(Profile::Redis62);
    abandoned(&server, "s", 6, 1);
    let ids: Vec<_> = server.entries("s").iter().map(stream_core::Entry::id).collect();
    server.xdel("s", &[ids[0], ids[3], ids[5]]);
    server.deny("XPENDING");
    server.deny("XRANGE");
    let (journal, told) = (Journal::default(), Told::default());
    let (shutdown, run) = run(consumer(&server, &told), &journal);
    sleep(Duration::from_mins(10)).await;
    // One whose owner dies later.
    let entry = server.add("s", [("data", "0")]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(journal.attempts().len(), 4, "{entry} as well");
    assert_eq!((server.pending("s", "g").len(), told.count("deleted entries")), (3, 1));
    shutdown.stop();
    assert_eq!(run.await.unwrap().deleted_while_pending, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_longer_than_a_lease_ago_is_not_started_unasked() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 1, 1);
    let entry = server.entries("s")[0].id();
    server.deny("XPENDING");
    // As in a process that is frozen between the claim and the look at its answer.
    let lease = Duration::from_secs(3);
    server.fail_always("XAUTOCLAIM", Fault::Delay(Duration::from_secs(4)));
    let (journal, told) = (Journal::default(), Told::default());
    let (shutdown, run) = run(consumer(&server, &told).lease(lease), &journal);
    let owner = || {
        let (_, owner, _, deliveries) = server.pending("s", "g").pop()?;
        Some((owner, deliveries))
    };
    stream_testkit::eventually(Duration::from_mins(1), "the entry to be claimed with its body", || {
        std::future::ready((owner() == Some(("c".to_owned(), 2))).then_some(()))
    })
    .await;
    sleep(lease + Duration::from_millis(100)).await;
    let other = ["XCLAIM", "s", "g", "other", "3000", &entry.to_string()].map(str::to_owned);
    server.command(other).unwrap();
    assert_eq!(owner(), Some(("other".to_owned(), 3)));
    sleep(Duration::from_secs(2)).await;
    assert!(journal.attempts().is_empty(), "somebody else owns it: {:?}", journal.attempts());
    assert_eq!(owner(), Some(("other".to_owned(), 3)));
    shutdown.stop();
    run.await.unwrap();
}

/// The way to the server is most of the time that renewing takes; were it one call after the other, all would not get their turn
/// in a lease.
#[tokio::test(start_paused = true)]
async fn many_leases_are_kept_also_where_the_server_is_far_away() {
    const HELD: usize = 10_000;
    let server = MemoryServer::new();
    publish(&server, "s", HELD);
    server.set_latency(Duration::from_millis(40));
    let journal = Journal::default();
    let lease = |name: &str| {
        let consumer = Consumer::durable(&server.client()).stream("s").group("g").consumer(name);
        consumer.lease(Duration::from_secs(1)).block(Duration::from_millis(200)).prefetch(HELD)
    };
    let busy = Shutdown::new();
    let run_busy = tokio::spawn({
        let (consumer, busy, journal) =
            (lease("busy").concurrency(HELD).build().unwrap(), busy.clone(), journal.clone());
        async move {
            let handler = move |cx: Context| {
                let noted = journal.done(cx);
                async move {
                    noted.await;
                    sleep(Duration::from_secs(10)).await;
                }
            };
            consumer.run_with(&busy, handler).await.unwrap().stats
        }
    });
    stream_testkit::eventually(Duration::from_mins(1), "all to be started", || {
        std::future::ready((journal.attempts().len() == HELD).then_some(()))
    })
    .await;
    // Somebody who takes over whatever is left alone for a lease.
    let (idle, run_idle) = run(lease("idle"), &journal);
    settled(&server, "s", "g", HELD, &journal).await;
    busy.stop();
    idle.stop();
    let (busy, idle) = (run_busy.await.unwrap(), run_idle.await.unwrap());
    assert_eq!((busy.leases_lost, busy.acknowledged, idle.taken_over), (0, HELD as u64, 0), "{busy:?} {idle:?}");
    assert!(journal.attempts().values().all(|attempts| *attempts == [1]));
}

/// What somebody deletes while it is handled is nobody else's: no lease was lost, and the loss of the entry is told.
#[tokio::test(start_paused = true)]
async fn what_is_deleted_while_it_is_held_is_told_as_that_and_handled_to_the_end() {
    for scripts in [true, false] {
        let server = MemoryServer::new();
        publish(&server, "s", 2);
        if !scripts {
            server.deny("EVALSHA");
            server.deny("EVAL");
        }
        let told = Told::default();
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let client = server.client();
        let noted = Arc::clone(&deleted);
        let consumer = Consumer::durable(&client).stream("s").group("g").lease(LEASE).observer(
            move |_: &StreamKey, event: &Event<'_>| match event {
                Event::DeletedWhilePending { id } => noted.lock().unwrap().push(*id),
                Event::LeaseLost { .. } => told.0.lock().unwrap().push("lost"),
                _ => {}
            },
        );
        let (shutdown, consumer) = (Shutdown::new(), consumer.build().unwrap());
        let stop = shutdown.clone();
        let run = tokio::spawn(async move {
            let handler = |cx: Context| async move {
                sleep(3 * LEASE).await;
                assert!(!cx.is_cancelled());
            };
            consumer.run_with(&stop, handler).await.unwrap().stats
        });
        sleep(Duration::from_secs(5)).await;
        let id = server.entries("s")[0].id();
        server.command(["XDEL", "s", &id.to_string()]).unwrap();
        sleep(4 * LEASE).await;
        shutdown.stop();
        let stats = run.await.unwrap();
        assert_eq!(*deleted.lock().unwrap(), [id], "scripts {scripts}");
        assert_eq!(
            (stats.deleted_while_pending, stats.leases_lost, stats.handled),
            (1, 0, 2),
            "scripts {scripts}: {stats:?}"
        );
        assert!(server.pending("s", "g").is_empty());
    }
}
