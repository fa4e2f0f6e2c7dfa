//! Hosts on the in-memory server with paused time: failures, restarts, stops, and what is told of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Consumer, Context, DurableBuilder, OnGap, RunState, Shutdown};
use stream_core::{BackoffPolicy, EntryId, RestartPolicy, StreamKey};
use stream_maint::Trimmer;
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, Warnings, work_for};
use tokio::task::JoinHandle;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// What happened, as text, and the entries that handlers got.
#[derive(Clone, Default)]
struct Told {
    events: Arc<Mutex<Vec<String>>>,
    seen: Arc<Mutex<Vec<EntryId>>>,
}

impl Told {
    fn observer(&self) -> impl Fn(&HostEvent<'_>) + Send + Sync + 'static {
        let events = Arc::clone(&self.events);
        move |event| events.lock().unwrap().push(format!("{event:?}"))
    }

    fn handler(&self) -> impl Fn(Context) -> std::future::Ready<()> + Clone + Send + Sync + 'static {
        let seen = Arc::clone(&self.seen);
        move |cx| {
            seen.lock().unwrap().push(cx.id());
            std::future::ready(())
        }
    }

    fn count(&self, name: &str) -> usize {
        self.events.lock().unwrap().iter().filter(|event| event.starts_with(name)).count()
    }

    fn seen(&self) -> Vec<EntryId> {
        self.seen.lock().unwrap().clone()
    }
}

fn publish(server: &MemoryServer, key: &str, count: usize) -> Vec<EntryId> {
    (0..count).map(|n| server.add(key, [("data", n.to_string())])).collect()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    stream_testkit::eventually(Duration::from_hours(1), what, || std::future::ready(holds().then_some(()))).await;
}

fn durable(server: &MemoryServer, key: &str) -> DurableBuilder {
    Consumer::durable(&server.client()).stream(key).group("g")
}

fn run(host: Host) -> (Shutdown, HostHealth, JoinHandle<HostReport>) {
    let (shutdown, health) = (Shutdown::new(), host.health());
    let switch = shutdown.clone();
    (shutdown, health, tokio::spawn(async move { host.run_with(&switch).await }))
}

/// The report that started all this: a reader of a stream that does not exist, with trimming on and no pause between trims.
#[tokio::test(start_paused = true)]
async fn a_missing_stream_is_waited_for_in_silence_while_trimming_is_on() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let server = MemoryServer::new();
    let client = server.client();
    let told = Told::default();
    let host = Host::builder()
        .ephemeral("log", Consumer::ephemeral(&client).stream("s"), told.handler())
        .trim("trim", Trimmer::builder(&client).stream("s").trim_every(Duration::ZERO).build().unwrap())
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, health, task) = run(host);
    work_for(SECOND).await;
    let before = server.commands();
    work_for(SECOND * 60).await;
    let count = |name: &str| server.count(name) - before.get(name).copied().unwrap_or(0);
    assert_eq!((count("XREAD"), count("CONNECT")), (12, 0), "one for each BLOCK period of 5 s");
    let ids = publish(&server, "s", 1);
    let at = tokio::time::Instant::now();
    until("the first entry", || told.seen() == ids).await;
    assert!(at.elapsed() < Duration::from_millis(20), "{:?}", at.elapsed());
    assert_eq!((warnings.lines().len(), told.events.lock().unwrap().len()), (0, 0));
    assert_eq!((health.get()[0].1.reconnects, health.get()[0].1.state), (0, RunState::Running));
    shutdown.stop();
    task.await.unwrap().into_result().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_switch_stops_all_and_one_report_tells_of_each() {
    let server = MemoryServer::new();
    let client = server.client();
    let (billing, log, rows) = (Told::default(), Told::default(), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&rows);
    let host = Host::builder()
        .durable("billing", durable(&server, "events"), billing.handler())
        .durable_batches("rows", durable(&server, "events").group("rows"), 50, move |items: Vec<Context>| {
            *counted.lock().unwrap() += items.len();
            std::future::ready(())
        })
        .ephemeral("log", Consumer::ephemeral(&client).stream("events"), log.handler())
        .trim("trim", Trimmer::builder(&client).stream("events").trim_every(SECOND).build().unwrap())
        .build()
        .unwrap();
    assert!(host.health().is_live() && !host.health().is_ready(SECOND), "it does not run yet");
    let (shutdown, health, task) = run(host);
    until("all to read", || health.is_ready(SECOND * 15)).await;
    let ids = publish(&server, "events", 200);
    until("all three to have all", || billing.seen().len() == 200 && log.seen() == ids && *rows.lock().unwrap() == 200)
        .await;
    // Trimmed is what both groups have finished; the last entry always stays.
    until("the stream to be trimmed", || server.len("events") == 1).await;
    let names: Vec<_> = health.get().iter().map(|(name, health)| ((*name).to_owned(), health.state)).collect();
    assert_eq!(names, ["billing", "rows", "log"].map(|name| (name.to_owned(), RunState::Running)));
    shutdown.stop();
    let report = task.await.unwrap().into_result().unwrap();
    let ends: Vec<_> = report.members.iter().map(|member| (member.name.as_str(), member.restarts)).collect();
    assert_eq!(ends, [("billing", 0), ("rows", 0), ("log", 0), ("trim", 0)]);
    let MemberEnd::Durable(drained) = &report.member("billing").unwrap().end else { panic!("{report:?}") };
    assert_eq!((drained.stats.acknowledged, drained.consumer_removed), (200, true));
    let MemberEnd::Ephemeral(stopped) = &report.member("log").unwrap().end else { panic!("{report:?}") };
    assert_eq!(stopped.positions[0].1, ids[199]);
    let MemberEnd::Maintenance(totals) = &report.member("trim").unwrap().end else { panic!("{report:?}") };
    assert!(totals.runs > 0 && totals.failures == 0, "{totals:?}");
    assert!(!health.is_live());
    assert_eq!(server.open_connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_started_anew_and_the_others_do_not_notice() {
    let server = MemoryServer::new();
    let (told, bad) = (Told::default(), Told::default());
    server.set_string("bad");
    let host = Host::builder()
        .durable("good", durable(&server, "good"), told.handler())
        .durable("bad", durable(&server, "bad"), bad.handler())
        .restart(RestartPolicy::on_failure())
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, health, task) = run(host);
    until("three restarts", || told.count("Restarting") == 3).await;
    assert_eq!(told.events.lock().unwrap()[0].matches("WRONGTYPE").count(), 1, "{:?}", told.events);
    assert!(!health.is_live(), "one waits to be started anew");
    publish(&server, "good", 10);
    until("the good one to go on", || told.seen().len() == 10).await;
    server.delete_key("bad");
    publish(&server, "bad", 5);
    until("the bad one to be mended", || bad.seen().len() == 5).await;
    assert!(health.is_live());
    shutdown.stop();
    let report = task.await.unwrap().into_result().unwrap();
    assert!(report.member("bad").unwrap().restarts >= 3);
    assert_eq!((report.member("good").unwrap().restarts, told.count("Failed")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_cannot_be_helped_ends_the_host_or_is_left_behind() {
    for policy in [OnFailure::StopAll, OnFailure::GoOn] {
        let server = MemoryServer::new();
        server.set_string("bad");
        let told = Told::default();
        let host = Host::builder()
            .durable("good", durable(&server, "good"), told.handler())
            .durable("bad", durable(&server, "bad"), || async {})
            .restart_of("bad", RestartPolicy::on_failure().limit(2))
            .on_failure(policy)
            .observer(told.observer())
            .build()
            .unwrap();
        let (shutdown, _, task) = run(host);
        until("it to be given up", || told.count("Failed") == 1).await;
        assert_eq!(told.count("Restarting"), 2);
        if policy == OnFailure::GoOn {
            work_for(SECOND * 60).await;
            publish(&server, "good", 3);
            until("the good one to go on", || told.seen().len() == 3).await;
            shutdown.stop();
        }
        let report = task.await.unwrap();
        assert!(matches!(report.member("good").unwrap().end, MemberEnd::Durable(_)), "{report:?}");
        assert_eq!(report.member("bad").unwrap().restarts, 2);
        assert_eq!(shutdown.is_stopping(), policy == OnFailure::GoOn, "the caller's switch is the caller's");
        let error = report.into_result().unwrap_err();
        assert_eq!(error.to_string(), "the member `bad` of the host has failed");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_consumer_goes_on_where_it_failed() {
    let server = MemoryServer::new();
    let told = Told::default();
    let backoff = BackoffPolicy::new(SECOND, SECOND * 2).unwrap();
    let host = Host::builder()
        .ephemeral("log", Consumer::ephemeral(&server.client()).stream("s").block(SECOND), told.handler())
        .restart(RestartPolicy::on_failure().backoff(backoff).unlimited())
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, health, task) = run(host);
    until("it to read", || health.is_ready(SECOND * 3)).await;
    let mut published = publish(&server, "s", 10);
    until("ten", || told.seen().len() == 10).await;
    // Twice, and in the second life before anything is known: what the first knew still counts.
    for denied in ["XREAD", "XINFO"] {
        server.deny("XREAD");
        let fault = Fault::error("NOPERM this user has no permissions");
        server.fail_always(denied, fault);
        server.kill_readers();
        let before = told.count("Restarting");
        until("two failures", || told.count("Restarting") >= before + 2).await;
        published.extend(publish(&server, "s", 10));
        server.clear_faults();
        until("what came meanwhile", || told.seen().len() >= published.len()).await;
        assert_eq!(told.seen(), published, "none is skipped, none comes twice");
    }
    shutdown.stop();
    task.await.unwrap().into_result().unwrap();
}

#[tokio::test(start_paused = true)]
async fn entries_that_are_missing_in_one_stream_are_no_loss_in_another() {
    let server = MemoryServer::new();
    let told = Told::default();
    let consumer = Consumer::ephemeral(&server.client()).stream("a").stream("b").block(SECOND).on_gap(OnGap::Fail);
    let host = Host::builder()
        .ephemeral("log", consumer, told.handler())
        .restart(RestartPolicy::on_failure())
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, health, task) = run(host);
    until("it to read", || health.is_ready(SECOND * 3)).await;
    let mut published = [publish(&server, "a", 3), publish(&server, "b", 3)].concat();
    until("six", || told.seen().len() == 6).await;
    work_for(SECOND * 3).await;
    server.delete_key("a");
    until("a restart", || told.count("Restarting") == 1).await;
    published.extend(publish(&server, "b", 3));
    work_for(SECOND * 30).await;
    published.extend(publish(&server, "a", 1));
    work_for(SECOND * 30).await;
    let mut seen = told.seen();
    seen.sort_unstable();
    published.sort_unstable();
    assert_eq!((seen, told.count("Restarting")), (published, 1), "none is skipped, none comes twice");
    shutdown.stop();
    task.await.unwrap().into_result().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_position_in_a_stream_that_is_gone_is_not_gone_back_to() {
    let server = MemoryServer::new();
    publish(&server, "s", 3);
    let told = Told::default();
    let ahead = EntryId::new(u64::MAX, 0);
    let consumer = Consumer::ephemeral(&server.client())
        .stream("s")
        .block(SECOND)
        .resume([(StreamKey::new("s").unwrap(), ahead)])
        .on_gap(OnGap::Fail);
    let host = Host::builder()
        .ephemeral("log", consumer, told.handler())
        .restart(RestartPolicy::on_failure())
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, _, task) = run(host);
    until("a restart", || told.count("Restarting") == 1).await;
    work_for(SECOND * 30).await;
    let published = publish(&server, "s", 1);
    work_for(SECOND * 30).await;
    assert_eq!((told.seen(), told.count("Restarting")), (published, 1), "it begins at the end, as its settings say");
    shutdown.stop();
    task.await.unwrap().into_result().unwrap();
}

#[tokio::test(start_paused = true)]
async fn maintenance_that_fails_disturbs_nobody_and_is_told_once() {
    let server = MemoryServer::new();
    let client = server.client();
    let told = Told::default();
    let panicked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&panicked);
    let trimmer = Trimmer::builder(&client).stream("s").trim_every(SECOND).without_lease().build().unwrap();
    let host = Host::builder()
        .durable("billing", durable(&server, "s"), told.handler())
        .trim("trim", trimmer)
        .every("broken", SECOND, move || {
            *counted.lock().unwrap() += 1;
            async { if true { panic!("a bug") } else { Ok::<(), std::io::Error>(()) } }
        })
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, health, task) = run(host);
    let before = server.count("CONNECT");
    publish(&server, "s", 100);
    until("a trim", || server.len("s") == 1).await;
    server.deny("XTRIM");
    publish(&server, "s", 100);
    work_for(SECOND * 60).await;
    assert_eq!(told.seen().len(), 200);
    let named = |name: &str, member: &str| {
        let events = told.events.lock().unwrap();
        events.iter().filter(|event| event.starts_with(name) && event.contains(member)).count()
    };
    assert_eq!(named("MaintenanceFailed", "\"trim\""), 1, "{:?}", told.events);
    assert_eq!(named("MaintenanceFailed", "\"broken\""), 1);
    assert!(*panicked.lock().unwrap() >= 50, "it is tried again all the same");
    server.clear_faults();
    until("it to work again", || named("MaintenanceMended", "\"trim\"") == 1 && server.len("s") == 1).await;
    assert!(health.is_live());
    assert!(server.count("CONNECT") <= before + 4, "no consumer has connected anew");
    shutdown.stop();
    let report = task.await.unwrap().into_result().unwrap();
    let MemberEnd::Durable(drained) = &report.member("billing").unwrap().end else { panic!("{report:?}") };
    assert_eq!((drained.stats.reconnects, drained.stats.acknowledged), (0, 200));
    let MemberEnd::Maintenance(totals) = report.member("trim").unwrap().end else { panic!("{report:?}") };
    assert!(totals.failures > 50, "{totals:?}");
}

#[tokio::test(start_paused = true)]
async fn that_it_was_another_hosts_turn_mends_no_maintenance() {
    let server = MemoryServer::new();
    publish(&server, "s", 2);
    server.command(["XGROUP", "CREATE", "s", "g", "$"]).unwrap();
    server.deny("XTRIM");
    let rival = server.clone();
    let told = Told::default();
    let trimmer = Trimmer::builder(&server.client()).stream("s").trim_every(SECOND).build().unwrap();
    let host = Host::builder().trim("trim", trimmer).observer(told.observer()).build().unwrap();
    let (shutdown, _, task) = run(host);
    work_for(SECOND / 2).await;
    for _ in 0..10 {
        // It has the next turn, and this host the one after.
        rival.command(["SET", "{s}:streamkeeper:trim", "1", "PX", "1400"]).unwrap();
        work_for(SECOND * 2).await;
    }
    assert_eq!((told.count("MaintenanceFailed"), told.count("MaintenanceMended")), (1, 0), "{:?}", told.events);
    shutdown.stop();
    let report = task.await.unwrap().into_result().unwrap();
    let MemberEnd::Maintenance(totals) = report.member("trim").unwrap().end else { panic!("{report:?}") };
    assert_eq!((totals.failures, totals.runs), (11, 0));
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_aborts_and_a_failing_one_is_not_started_anew_while_stopping() {
    let server = MemoryServer::new();
    server.set_string("bad");
    publish(&server, "s", 1);
    let told = Told::default();
    let host = Host::builder()
        .durable("hanging", durable(&server, "s"), std::future::pending::<()>)
        .durable("bad", durable(&server, "bad"), || async {})
        .restart(RestartPolicy::on_failure().unlimited())
        .observer(told.observer())
        .build()
        .unwrap();
    let (shutdown, _, task) = run(host);
    until("a restart", || told.count("Restarting") == 1).await;
    let at = tokio::time::Instant::now();
    shutdown.stop();
    shutdown.stop();
    let report = task.await.unwrap();
    assert!(at.elapsed() < SECOND, "{:?}", at.elapsed());
    let MemberEnd::Durable(drained) = &report.member("hanging").unwrap().end else { panic!("{report:?}") };
    assert_eq!(drained.aborted, 1);
    assert!(matches!(report.member("bad").unwrap().end, MemberEnd::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_work_is_refused_by_the_name_of_its_member() {
    let server = MemoryServer::new();
    let good = || durable(&server, "s");
    let check = |builder: HostBuilder, text: &str| {
        let error = builder.build().unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error}: {source}").contains(text), "{error}: {source}");
    };
    let idle = || async {};
    check(Host::builder(), "no members");
    check(
        Host::builder().durable("a", good(), idle).durable("a", good(), idle),
        "two members of the host are called `a`",
    );
    check(Host::builder().durable("a", good().concurrency(0), idle), "`a` of the host is refused: concurrency is 0");
    check(
        Host::builder().ephemeral("e", Consumer::ephemeral(&server.client()), idle),
        "`e` of the host is refused: stream",
    );
    check(Host::builder().durable("a", good(), idle).restart_of("b", RestartPolicy::never()), "policy for `b`");
    let never = || std::future::ready(Ok::<(), std::io::Error>(()));
    check(Host::builder().every("m", Duration::ZERO, never), "`m` runs every 0ns");
    check(Host::builder().every("m", SECOND, never).restart_of("m", RestartPolicy::never()), "policy for `m`");
}
