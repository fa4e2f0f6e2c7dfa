//! Clean-up from another process, with consumers that live, that are quiet and that were killed.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, eventually, work_for};
use streamkeeper::{Consumer, Context};
use streamkeeper_tests::{Ask, Journal, Worker, on_each_own, start};

/// A cleaner process; killed when dropped.
struct Cleaner {
    child: Child,
    journal: std::path::PathBuf,
}

impl Cleaner {
    fn start(server: &RealServer, folder: &std::path::Path) -> Self {
        let journal = folder.join("cleaner");
        let child = Command::new(env!("CARGO_BIN_EXE_test-cleaner"))
            .args([&server.url(), "s", "g", journal.to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, journal }
    }

    fn lines(&self, start: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.journal).unwrap_or_default();
        text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Consumers that wait on a quiet stream for longer than every limit, one of which was given an entry once and one never;
/// a group that was read to its end; and the shortest limits there are, applied every second by another process.
async fn stays(server: RealServer) {
    let name = server.name().to_owned();
    let folder = tempfile::tempdir().unwrap();
    server.publish("s", 1).await;
    let journal = Journal::default();
    let run = |consumer: &str| {
        let seen = journal.clone();
        let builder = Consumer::durable(&server.client()).stream("s").group("g").consumer(consumer);
        start(builder.block(Duration::from_secs(5)), move |cx: Context| {
            let run = seen.begin(&cx);
            async move { run.end() }
        })
    };
    let first = run("first");
    eventually(Duration::from_secs(20), "the first entry", || std::future::ready((journal.ends() == 1).then_some(())))
        .await;
    let consumers = [first, run("second"), run("third")];
    // Nobody lives behind this name, so the clean-up is seen to work.
    server.ask("XGROUP CREATECONSUMER s g nobody").await;
    let cleaner = Cleaner::start(&server, folder.path());
    let what = format!("the consumer that is dead to go on {name}");
    eventually(Duration::from_mins(3), what, || {
        std::future::ready(cleaner.lines("consumer nobody").first().map(|_| ()))
    })
    .await;
    // By now all were quiet for longer than the limit, and every further second is one more try.
    let runs = cleaner.lines("run").len();
    eventually(Duration::from_mins(1), "ten more runs", || {
        std::future::ready((cleaner.lines("run").len() >= runs + 10).then_some(()))
    })
    .await;
    assert_eq!(cleaner.lines("consumer"), ["consumer nobody"], "{name}");
    assert_eq!(cleaner.lines("group"), Vec::<String>::new(), "{name}");
    assert_eq!(cleaner.lines("error"), Vec::<String>::new(), "{name}");
    assert_eq!(server.consumers("s", "g").await, 3, "{name}");
    server.publish("s", 30).await;
    server.until("the rest to be handled", || async { journal.finished() == 31 }).await;
    for consumer in consumers {
        assert_eq!(consumer.events.count("GroupCreated { after: 0-0, recreated: true"), 0, "{name}");
        consumer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b07_quiet_consumers_outlive_every_limit_while_another_process_cleans_up() {
    on_each_own(ServerOptions::new(), stays).await;
}

/// Workers with default names, each killed with entries in its hands.
async fn piles(server: RealServer) {
    const CYCLES: usize = 30;
    let name = server.name().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let (url, mut ids, mut done) = (server.url(), BTreeSet::new(), String::new());
    for cycle in 0..CYCLES {
        ids.extend(server.publish("s", 5).await);
        let path = folder.path().join(format!("{cycle}"));
        let args = [&url, "s", "g", "", path.to_str().unwrap(), "1000", "deaf", "20"];
        let worker = Worker::start(env!("CARGO_BIN_EXE_test-worker"), &args);
        worker.wrote("start").await;
        worker.wrote("done").await;
        done.push_str(&worker.journal());
        // Dropped, it is killed with -9.
    }
    assert!(server.consumers("s", "g").await >= CYCLES, "{name}: each start left a name");
    let path = folder.path().join("last");
    let args = [&url, "s", "g", "", path.to_str().unwrap(), "1000", "deaf", "1"];
    let last = Worker::start(env!("CARGO_BIN_EXE_test-worker"), &args);
    let cleaner = Cleaner::start(&server, folder.path());
    eventually(Duration::from_mins(3), format!("the dead to be cleaned up on {name}"), || async {
        let left = server.consumers("s", "g").await;
        (left <= 2 && server.pending("s", "g").await == 0).then_some(())
    })
    .await;
    assert_eq!(cleaner.lines("error"), Vec::<String>::new(), "{name}");
    for entry in 0..CYCLES {
        done.push_str(&std::fs::read_to_string(folder.path().join(format!("{entry}"))).unwrap());
    }
    done.push_str(&last.journal());
    let handled = |id: &&streamkeeper::EntryId| done.lines().any(|line| line == format!("done {id}"));
    let lost: Vec<_> = ids.iter().filter(|id| !handled(id)).collect();
    assert!(lost.is_empty(), "{name}: {} of {} lost: {lost:?}", lost.len(), ids.len());
    work_for(Duration::from_millis(100)).await;
    assert!(last.stop().await, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_thirty_killed_processes_leave_two_consumers_at_most_and_lose_nothing() {
    on_each_own(ServerOptions::new(), piles).await;
}
