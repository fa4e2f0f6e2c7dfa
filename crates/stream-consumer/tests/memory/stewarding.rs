//! What the steward makes of refusals that pass.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Consumer, Context, DurableBuilder, Event, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, abandoned};

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
