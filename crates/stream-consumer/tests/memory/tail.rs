//! Consumers without a group: where they begin, what they leave, and who takes their entries.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{
    Consumer, Context, EntryId, EphemeralBuilder, EphemeralReport, Event, OnGap, Outcome, RetryPolicy, RunError,
    Shutdown, StartFrom,
};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use tokio::time::sleep;

use super::publish;

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

fn ids(server: &MemoryServer, key: &str) -> Vec<EntryId> {
    server.entries(key).iter().map(stream_consumer::Entry::id).collect()
}

fn at(key: &str, ms: u64) -> (StreamKey, EntryId) {
    (StreamKey::new(key).unwrap(), id(ms))
}

fn tail(server: &MemoryServer, key: &str) -> EphemeralBuilder {
    Consumer::ephemeral(&server.client()).stream(key).block(Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn an_entry_waits_for_being_taken_as_long_as_it_takes() {
    let server = MemoryServer::new();
    publish(&server, "s", 10);
    for concurrency in [1, 4] {
        let consumer = tail(&server, "s")
            .start(StartFrom::Beginning)
            .concurrency(concurrency)
            .timeout(Duration::from_secs(1))
            .build()
            .unwrap();
        let mut entries = consumer.entries();
        let mut taken = vec![entries.next().await.unwrap().id()];
        sleep(Duration::from_secs(10)).await;
        while taken.len() < 10 {
            let next = tokio::time::timeout(Duration::from_mins(1), entries.next()).await.expect("all of them come");
            taken.push(next.unwrap().id());
        }
        taken.sort_unstable();
        assert_eq!(taken, ids(&server, "s"), "concurrency {concurrency}");
        let stats = entries.stop().await.unwrap().stats;
        assert_eq!((stats.handled, stats.given_up, stats.retried), (10, 0, 0), "concurrency {concurrency}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_pulled_yet_has_not_failed_and_what_is_held_too_long_has() {
    let server = MemoryServer::new();
    publish(&server, "s", 3);
    let mut deliveries = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(2)
        .timeout(Duration::from_secs(1))
        .retry(RetryPolicy::immediate().max_attempts(1))
        .build()
        .unwrap()
        .deliveries();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(server.len("s:dead"), 0, "nobody was given any");
    for _ in 0..2 {
        let delivery = deliveries.next().await.unwrap();
        assert!(!delivery.context().is_cancelled());
        delivery.acknowledge();
        sleep(Duration::from_secs(10)).await;
    }
    let held = deliveries.next().await.unwrap();
    assert_eq!(held.context().attempt(), 1);
    tokio::time::timeout(Duration::from_mins(1), held.context().cancelled()).await.expect("its holder is told");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.len("s:dead"), 1);
    held.settle(Outcome::Done);
    let stats = deliveries.stop().await.unwrap().stats;
    assert_eq!((stats.acknowledged, stats.dead_lettered), (2, 1));
}

/// What a consumer was given and told.
#[derive(Clone, Default)]
struct Seen {
    entries: Arc<Mutex<Vec<EntryId>>>,
    events: Arc<Mutex<Vec<String>>>,
}

impl Seen {
    fn ids(&self) -> Vec<EntryId> {
        self.entries.lock().unwrap().clone()
    }

    /// The events that say that something is missing.
    fn losses(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| event.starts_with("StreamReset") || event.starts_with("Gap")).cloned().collect()
    }
}

/// Runs for 20 s, `halfway` through which something is done.
async fn run(builder: EphemeralBuilder, halfway: impl FnOnce()) -> (Seen, Result<EphemeralReport, RunError>) {
    let seen = Seen::default();
    let (noted, told, shutdown) = (seen.clone(), seen.clone(), Shutdown::new());
    let observer = move |_: &StreamKey, event: &Event<'_>| told.events.lock().unwrap().push(format!("{event:?}"));
    let consumer = builder.observer(observer).build().unwrap();
    let switch = shutdown.clone();
    let handler = move |cx: Context| {
        noted.entries.lock().unwrap().push(cx.id());
        std::future::ready(())
    };
    let task = tokio::spawn(async move { consumer.run_with(&switch, handler).await });
    sleep(Duration::from_secs(10)).await;
    halfway();
    sleep(Duration::from_secs(10)).await;
    shutdown.stop();
    (seen, task.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_not_opened_leaves_where_it_was_to_go_on_and_nothing_else() {
    let server = MemoryServer::new();
    server.set_down(true);
    let (_, report) = run(tail(&server, "s").resume([at("s", 7)]), || {}).await;
    assert_eq!(report.unwrap().positions, [at("s", 7)]);
    let (_, report) = run(tail(&server, "s").start(StartFrom::Beginning), || {}).await;
    assert_eq!(report.unwrap().positions, [], "its start was not resolved");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_opened_beside_others_keeps_its_position() {
    let server = MemoryServer::new();
    let last = server.add("a", [("data", "0")]);
    server.set_string("b");
    let builder = tail(&server, "a").stream("b").stream("c").resume([at("a", 10), at("b", 20)]);
    let consumer = builder.build().unwrap();
    let positions = consumer.positions();
    assert_eq!(positions.get(), [at("a", 10), at("b", 20)], "known before it runs");
    let shutdown = Shutdown::new();
    let switch = shutdown.clone();
    let task = tokio::spawn(async move { consumer.run_with(&switch, || async {}).await });
    sleep(Duration::from_secs(10)).await;
    shutdown.stop();
    let report = task.await.unwrap().unwrap();
    let expected = [(StreamKey::new("a").unwrap(), last), at("b", 20), at("c", 0)];
    assert_eq!((positions.get(), report.positions), (expected.to_vec(), expected.to_vec()));
}

fn add(server: &MemoryServer, all: std::ops::RangeInclusive<u64>) -> Vec<EntryId> {
    all.clone().for_each(|ms| server.add_at("s", id(ms), [("data", "0")]).unwrap());
    all.map(id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stream_made_anew_before_its_reader_came_back_is_told_and_read() {
    let server = MemoryServer::new();
    let all = add(&server, 1..=3);
    let (seen, report) = run(tail(&server, "s").resume([at("s", 100)]), || {}).await;
    assert_eq!((seen.ids(), seen.losses().len()), (all, 1), "{:?}", seen.losses());
    assert_eq!(report.unwrap().positions, [at("s", 3)]);
    assert_eq!(seen.events.lock().unwrap().iter().filter(|event| *event == "Ready").count(), 1);

    let (seen, _) = run(tail(&server, "s").resume([at("s", 100)]).on_gap(OnGap::End), || {
        add(&server, 4..=5);
    })
    .await;
    assert_eq!((seen.ids(), seen.losses().len()), (vec![id(4), id(5)], 1), "{:?}", seen.losses());

    let (seen, report) = run(tail(&server, "s").resume([at("s", 100)]).on_gap(OnGap::Fail), || {}).await;
    assert!(matches!(report, Err(RunError::EntriesMissing { .. })), "{report:?}");
    assert_eq!((seen.ids(), seen.losses().len()), (vec![], 1));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_gone_when_its_reader_comes_back_is_told_and_read_once_it_is_there() {
    let server = MemoryServer::new();
    let (seen, report) = run(tail(&server, "s").resume([at("s", 100)]), || {
        add(&server, 1..=3);
    })
    .await;
    assert_eq!((seen.ids(), seen.losses().len()), (vec![id(1), id(2), id(3)], 1), "{:?}", seen.losses());
    assert_eq!(report.unwrap().positions, [at("s", 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_back_to_its_stream_is_told_nothing() {
    let server = MemoryServer::new();
    let all = add(&server, 1..=5);
    for deleted in [0, 2, 5] {
        server.xdel("s", &all[5 - deleted..]);
        let (seen, report) = run(tail(&server, "s").resume([at("s", 5)]), || {}).await;
        assert_eq!((seen.ids(), seen.losses()), (vec![], vec![]), "{deleted} of the last were deleted");
        assert_eq!(report.unwrap().positions, [at("s", 5)]);
    }
    let (seen, _) = run(tail(&server, "s").resume([at("s", 5)]), || {
        add(&server, 6..=6);
    })
    .await;
    assert_eq!((seen.ids(), seen.losses()), (vec![id(6)], vec![]));
    // One that was at the beginning of a stream that was not there yet, and still is not.
    let (seen, _) = run(tail(&server, "other").resume([at("other", 0)]), || {}).await;
    assert_eq!(seen.losses(), Vec::<String>::new());
    // A start may lie ahead on purpose.
    let (seen, _) = run(tail(&server, "s").start(StartFrom::Id(id(7))), || {
        add(&server, 7..=8);
    })
    .await;
    assert_eq!((seen.ids(), seen.losses()), (vec![id(8)], vec![]));
}
