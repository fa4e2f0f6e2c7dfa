//! Trouble that lasts is told once, and once more only after it was over; what costs data is told each time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_core::{ConsumerPolicy, GroupPolicy, NamePattern, TrimPolicy};
use stream_maint::{ConsumerCleaner, GroupCleaner, Trimmed, Trimmer};
use stream_redis::{Error, ErrorKind};
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, Warnings, work_for};

const MINUTE: Duration = Duration::from_mins(1);
/// The lines of each task: how they begin.
const TASKS: [&str; 3] = ["trimming failed", "the clean-up of groups failed", "the clean-up of consumers failed"];

/// What came of each round.
type Rounds = Arc<Mutex<Vec<Option<ErrorKind>>>>;

fn noting<R>(rounds: &Rounds) -> impl FnMut(&Result<R, Error>) + Send + 'static {
    let rounds = Arc::clone(rounds);
    move |result| rounds.lock().unwrap().push(result.as_ref().err().map(Error::kind))
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_failure_is_logged_once_until_it_is_mended() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let server = MemoryServer::new();
    server.command("XGROUP CREATE s g 0 MKSTREAM".split(' ')).unwrap();
    // Something to trim, without which nothing is asked that could be refused.
    let finish_two = || {
        server.add("s", [("n", "1")]);
        server.add("s", [("n", "2")]);
        server.command("XREADGROUP GROUP g c NOACK COUNT 2 STREAMS s >".split(' ')).unwrap();
    };
    let client = server.client();
    let mut trimmer = Trimmer::builder(&client).stream("s").build().unwrap();
    let policy = GroupPolicy::new(NamePattern::new("tmp-*").unwrap(), MINUTE).unwrap();
    let mut groups = GroupCleaner::new(&client, "s", policy).unwrap();
    let mut consumers = ConsumerCleaner::new(&client, "s", "g", ConsumerPolicy::default()).unwrap();
    let rounds: [Rounds; 3] = Default::default();
    let [trims, of_groups, of_consumers] = rounds.each_ref().map(Clone::clone);
    let tasks = tokio::spawn(async move {
        let never = || std::future::pending::<()>();
        tokio::join!(
            trimmer.run_every(never(), noting(&trims)),
            groups.run_every(never(), noting(&of_groups)),
            consumers.run_every(never(), noting(&of_consumers)),
        )
    });
    // Five rounds of each, all of which end as they are expected to, and the lines that there are after them.
    let five = async |ends: [Option<ErrorKind>; 3], lines: [usize; 3]| {
        for rounds in &rounds {
            rounds.lock().unwrap().clear();
        }
        work_for(MINUTE * 5).await;
        for (rounds, end) in rounds.iter().zip(ends) {
            assert_eq!(*rounds.lock().unwrap(), [end; 5]);
        }
        assert_eq!(TASKS.map(|task| warnings.count(task)), lines, "{:#?}", warnings.lines());
    };
    let (denied, full, gone) = (Some(ErrorKind::NoPermission), Some(ErrorKind::Busy), Some(ErrorKind::Io));
    work_for(Duration::from_secs(1)).await;
    five([None; 3], [0; 3]).await;
    finish_two();
    server.deny("XTRIM");
    five([denied, None, None], [1, 0, 0]).await;
    server.deny("XINFO");
    five([denied; 3], [1; 3]).await;
    server.kill_connections();
    server.set_down(true);
    five([gone; 3], [2; 3]).await;
    // What had failed before the connection broke still does.
    server.set_down(false);
    five([denied; 3], [2; 3]).await;
    server.clear_faults();
    server.fail_always("XTRIM", Fault::error("OOM command not allowed when used memory > 'maxmemory'."));
    five([full, None, None], [3, 2, 2]).await;
    server.clear_faults();
    five([None; 3], [3, 2, 2]).await;
    // Anew, and that is news.
    finish_two();
    server.deny("XTRIM");
    server.deny("XINFO CONSUMERS");
    five([denied, None, denied], [4, 2, 3]).await;
    server.clear_faults();
    five([None; 3], [4, 2, 3]).await;
    assert_eq!(warnings.lines().len(), 9, "{:#?}", warnings.lines());
    for (part, lines) in [("NOPERM", 5), ("OOM", 1), ("stream=s", 9)] {
        assert_eq!(warnings.count(part), lines, "{part}: {:#?}", warnings.lines());
    }
    tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn that_it_was_somebody_elses_turn_mends_nothing() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let server = MemoryServer::new();
    for _ in 0..2 {
        server.add("s", [("n", "1")]);
    }
    server.command("XGROUP CREATE s g $".split(' ')).unwrap();
    server.deny("XTRIM");
    let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
    let mut seen = Vec::new();
    trimmer
        .run_every(work_for(MINUTE * 10 - Duration::from_secs(1)), |result| {
            seen.push(match result {
                Ok(done) => format!("{done:?}"),
                Err(error) => format!("{:?}", error.kind()),
            });
            if seen.len() % 2 == 1 {
                // Another member of the fleet has the next turn.
                server.command(["SET", "{s}:streamkeeper:trim", "1", "PX", "70000"]).unwrap();
            }
        })
        .await;
    assert_eq!(seen, ["NoPermission", "NotDue"].repeat(5));
    assert_eq!(warnings.count(TASKS[0]), 1, "{:#?}", warnings.lines());
}

#[tokio::test(start_paused = true)]
async fn b05_a_stale_group_that_is_left_out_is_named_in_the_log_with_what_it_lost() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let server = MemoryServer::new();
    for group in ["live", "dead-1"] {
        server.command(["XGROUP", "CREATE", "s", group, "0", "MKSTREAM"]).unwrap();
    }
    let policy = TrimPolicy::new().exclude_stale(NamePattern::new("dead-*").unwrap(), MINUTE * 10);
    let mut trimmer = Trimmer::builder(&server.client()).stream("s").policy(policy).build().unwrap();
    let mut reports = Vec::new();
    for _ in 0..12 {
        for _ in 0..1_000 {
            server.add("s", [("n", "1")]);
        }
        server.command("XREADGROUP GROUP live c NOACK COUNT 1000 STREAMS s >".split(' ')).unwrap();
        let Trimmed::Stream(report) = trimmer.run().await.unwrap() else { panic!("the stream is there") };
        reports.push(report);
        tokio::time::advance(MINUTE).await;
    }
    let removed: Vec<u64> = reports.iter().map(|report| report.removed).collect();
    assert_eq!(removed, [&[0; 10][..], &[10_999, 1_000]].concat());
    let pinned: Vec<_> = reports.iter().map(|report| report.pinned_age.map(|age| age.as_secs() / 60)).collect();
    assert_eq!(pinned[..10], (0..10).map(Some).collect::<Vec<_>>(), "how long it holds the stream is told");
    let lines = warnings.lines();
    assert_eq!(lines.len(), 2, "once for each loss, and nothing before: {lines:#?}");
    for part in ["group=dead-1", "lag=11000", "lag=1001", "stale group had not finished"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
    }
}
