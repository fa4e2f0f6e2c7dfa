//! Reading ahead without a group: the next read leaves as soon as it is known where it begins, if there is room for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{
    Consumer, Context, EntryId, EphemeralBuilder, EphemeralReport, Outcome, RunError, Shutdown, StartFrom, StatsHandle,
};
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, eventually};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// How many entries were received when an `XREAD` arrived, and its COUNT.
type Asked = Arc<Mutex<Vec<(u64, String)>>>;
type Seen = Arc<Mutex<Vec<EntryId>>>;

struct Running {
    stats: StatsHandle,
    asked: Asked,
    seen: Seen,
    shutdown: Shutdown,
    run: JoinHandle<Result<EphemeralReport, RunError>>,
}

/// A server whose replies come in pieces of 3 entries.
fn server(entries: usize, size: usize) -> (MemoryServer, Vec<EntryId>) {
    let server = MemoryServer::new();
    server.set_chunk(Some(3));
    let ids = (0..entries).map(|_| server.add("s", [("data", "x".repeat(size))])).collect();
    (server, ids)
}

fn consumer(server: &MemoryServer) -> EphemeralBuilder {
    Consumer::ephemeral(&server.client()).stream("s").start(StartFrom::Beginning)
}

/// Runs with a handler that takes a permit of `gate`, if there is one.
fn run(server: &MemoryServer, consumer: EphemeralBuilder, gate: Option<Arc<Semaphore>>) -> Running {
    let (asked, seen, shutdown) = (Asked::default(), Seen::default(), Shutdown::new());
    let consumer = consumer.build().unwrap();
    let stats = consumer.stats();
    let (noted, counted) = (Arc::clone(&asked), stats.clone());
    server.on_command(move |args| {
        if args[0] == b"XREAD" {
            noted.lock().unwrap().push((counted.get().received, String::from_utf8_lossy(args[2]).into_owned()));
        }
    });
    let (noted, switch) = (Arc::clone(&seen), shutdown.clone());
    let run = tokio::spawn(async move {
        let handler = move |cx: Context| {
            noted.lock().unwrap().push(cx.id());
            let gate = gate.clone();
            async move {
                if let Some(gate) = gate {
                    gate.acquire().await.unwrap().forget();
                }
                Outcome::Done
            }
        };
        consumer.run_with(&switch, handler).await
    });
    Running { stats, asked, seen, shutdown, run }
}

impl Running {
    async fn handled(&self, entries: usize) {
        eventually(Duration::from_hours(1), format!("{entries} entries to be handled"), || {
            std::future::ready((self.stats.get().handled >= entries as u64).then_some(()))
        })
        .await;
    }

    async fn stop(self) -> EphemeralReport {
        self.shutdown.stop();
        self.run.await.unwrap().unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_read_leaves_before_the_rest_of_a_reply_is_taken_up() {
    // A reply that brings less than was asked for says that nothing is behind it.
    for (entries, second) in [(90, 3), (19, 19)] {
        let (server, ids) = server(entries, 1);
        let running = run(&server, consumer(&server).prefetch(39), None);
        running.handled(entries).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let asked = running.asked.lock().unwrap().clone();
        assert_eq!(asked[..2], [(0, "20".to_owned()), (second, "20".to_owned())], "{asked:?}");
        assert_eq!(*running.seen.lock().unwrap(), ids);
        let report = running.stop().await;
        assert_eq!((report.unstarted, report.positions[0].1), (0, ids[entries - 1]));
    }
}

#[tokio::test(start_paused = true)]
async fn it_leaves_only_if_there_is_room_for_both_in_entries_and_in_bytes() {
    for (entries, bytes, most) in [(39, 1 << 20, 40), (24, 1 << 20, 25), (1_000, 10_500, 11)] {
        let (server, ids) = server(100, 1_000);
        let gate = Arc::new(Semaphore::new(0));
        let builder = consumer(&server).prefetch(entries).prefetch_bytes(bytes);
        let running = run(&server, builder, Some(Arc::clone(&gate)));
        for done in 0..60 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            let stats = running.stats.get();
            assert_eq!(stats.handled, done);
            assert!(stats.received - done <= most, "{stats:?}: {:?}", running.asked.lock().unwrap());
            gate.add_permits(1);
        }
        let asked = running.asked.lock().unwrap().clone();
        assert_eq!(asked.iter().any(|(received, _)| *received == 3), entries < 1_000, "{asked:?}");
        gate.add_permits(100);
        running.handled(100).await;
        assert_eq!(*running.seen.lock().unwrap(), ids);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_stream_is_compared_in_each_block_period_however_long_the_backlog() {
    let (server, _) = server(30_000, 1);
    server.set_latency(Duration::from_millis(100));
    let running = run(&server, consumer(&server).prefetch(39), None);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let looks = server.count("XINFO STREAM");
    assert!((10..=13).contains(&looks), "{looks} looks in 12 periods of 5 s");
    assert!(running.asked.lock().unwrap().len() > 500, "the backlog is read all the time");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_breaks_with_the_next_read_under_way_costs_no_entry_and_brings_none_twice() {
    let (server, ids) = server(5_000, 1);
    server.set_latency(Duration::from_millis(1));
    let builder = consumer(&server).prefetch(79).backoff(Duration::from_millis(1), Duration::from_millis(2));
    let running = run(&server, builder, None);
    let faults =
        [Fault::CutBefore, Fault::CutAfterEntries(5), Fault::error("LOADING not yet"), Fault::CutAfterEntries(39)];
    for fault in faults.into_iter().cycle().take(40) {
        tokio::time::sleep(Duration::from_millis(6)).await;
        server.fail_next("XREAD", fault);
    }
    running.handled(5_000).await;
    assert_eq!(*running.seen.lock().unwrap(), ids);
    let report = running.stop().await;
    assert!(report.stats.reconnects >= 20, "{report:?}");
    assert_eq!((report.stats.gaps, report.positions[0].1), (0, ids[4_999]));
}
