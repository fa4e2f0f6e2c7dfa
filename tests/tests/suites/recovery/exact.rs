//! Exact tests of faults, on the in-memory server with paused time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, work_for};
use streamkeeper::{Consumer, Context, Data, OnGroupLost, RunError};
use streamkeeper_tests::{Journal, start};

use crate::memory::{builder, publish, until};

/// A handler that takes `time`.
fn taking(
    journal: &Journal,
    time: Duration,
) -> impl Fn(Context) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync + 'static {
    let journal = journal.clone();
    move |cx| {
        let run = journal.begin(&cx);
        Box::pin(async move {
            if !time.is_zero() {
                work_for(time).await;
            }
            run.end();
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_idle_keeps_no_place_from_another() {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let both = builder(&server).stream("t").concurrency(1);
    let consumer = start(both, taking(&journal, Duration::ZERO));
    for (n, key) in ["s", "t", "s", "t", "t", "s"].into_iter().enumerate() {
        // So many, that the handler is known to be quick.
        publish(&server, key, 200);
        until("the only place to be free for either stream", || journal.starts() == 200 * (n + 1)).await;
    }
    consumer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_reply_left_behind_is_taken_up_once_although_its_lease_is_over_as_well() {
    for down in [0_u64, 1, 2, 3, 4, 10, 60] {
        let server = MemoryServer::new();
        server.set_response_timeout(Some(Duration::from_secs(1)));
        let journal = Journal::default();
        let consumer = start(builder(&server), taking(&journal, Duration::from_secs(1)));
        until("a read to wait", || server.blocked_readers() == 1).await;
        server.fail_next("XREADGROUP", Fault::CutAfter);
        work_for(Duration::from_secs(6)).await;
        publish(&server, "s", 40);
        server.kill_connections();
        server.set_down(down > 0);
        work_for(Duration::from_secs(down)).await;
        server.set_down(false);
        until("all to be handled", || journal.finished() == 40 && server.pending("s", "g").is_empty()).await;
        consumer.stop().await;
        assert_eq!(journal.starts(), 40, "down for {down} s");
        assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{:?}", journal.attempts());
    }
}

#[tokio::test(start_paused = true)]
async fn b47_a_server_that_is_down_is_asked_as_seldom_as_the_backoff_says() {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let consumer = start(builder(&server), taking(&journal, Duration::from_secs(1)));
    until("a read to wait", || server.blocked_readers() == 1).await;
    publish(&server, "s", 10);
    server.kill_connections();
    server.set_down(true);
    work_for(Duration::from_mins(10)).await;
    let before = server.count("CONNECT");
    work_for(Duration::from_hours(1)).await;
    let asked = server.count("CONNECT") - before;
    // Full jitter below 60 s: a pause of 30 s on average, for each of two connections; the reader asks through the other.
    assert!(asked <= 200, "{asked} attempts in an hour");
    assert!(asked >= 20, "{asked} attempts in an hour");
    server.set_down(false);
    until("all to be handled", || journal.finished() == 10 && server.pending("s", "g").is_empty()).await;
    consumer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b47_a_port_that_accepts_and_closes_is_backed_off_from_as_well() {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let consumer = start(builder(&server), taking(&journal, Duration::from_secs(1)));
    until("a read to wait", || server.blocked_readers() == 1).await;
    server.kill_connections();
    server.fail_always("*", Fault::CutBefore);
    work_for(Duration::from_mins(10)).await;
    let before = server.count("CONNECT");
    work_for(Duration::from_hours(1)).await;
    let asked = server.count("CONNECT") - before;
    assert!((20..=250).contains(&asked), "{asked} attempts in an hour");
    server.clear_faults();
    publish(&server, "s", 10);
    until("all to be handled", || journal.finished() == 10).await;
    // And the pauses begin anew after a success: the next short outage costs seconds.
    server.kill_connections();
    publish(&server, "s", 10);
    let begin = tokio::time::Instant::now();
    until("all to be handled", || journal.finished() == 20).await;
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    consumer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_must_not_be_recreated_ends_the_run_although_other_streams_could_go_on() {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let both = builder(&server).stream("t").on_group_lost(OnGroupLost::Fail);
    let consumer = start(both, taking(&journal, Duration::ZERO));
    until("reads to wait", || server.blocked_readers() == 2).await;
    server.destroy_group("t", "g");
    until("the run to end", || consumer.is_over()).await;
    let error = consumer.ended().await.unwrap_err();
    assert!(matches!(&error, RunError::GroupLost { stream } if stream.as_bytes() == b"t"), "{error}");
}

/// Runs of one key, with the greatest number of them at a time.
#[derive(Debug, Default)]
struct Keys {
    running: BTreeSet<String>,
    doubled: Vec<String>,
    handled: usize,
}

#[tokio::test(start_paused = true)]
async fn lanes_stay_lanes_when_the_stream_is_deleted_and_made_anew() {
    for reset in ["DEL", "XGROUP DESTROY"] {
        let server = MemoryServer::new();
        let keys = Arc::new(Mutex::new(Keys::default()));
        let lanes = builder(&server).order_by_field("key").concurrency(8);
        let seen = Arc::clone(&keys);
        let consumer = start(lanes, move |Data(key): Data| {
            let seen = Arc::clone(&seen);
            async move {
                let key = String::from_utf8_lossy(&key).into_owned();
                if !seen.lock().unwrap().running.insert(key.clone()) {
                    seen.lock().unwrap().doubled.push(key.clone());
                }
                work_for(Duration::from_millis(300)).await;
                let mut seen = seen.lock().unwrap();
                seen.running.remove(&key);
                seen.handled += 1;
            }
        });
        until("a read to wait", || server.blocked_readers() == 1).await;
        for round in 0..3 {
            for n in 0..60 {
                server.add("s", [("key", format!("{}", n % 3)), ("data", format!("{}", n % 3))]);
            }
            if round < 2 {
                work_for(Duration::from_millis(450)).await;
                match reset {
                    "DEL" => assert!(server.delete_key("s")),
                    _ => assert!(server.destroy_group("s", "g")),
                }
                // The consumer has noticed and reads what is new.
                work_for(Duration::from_secs(6)).await;
            }
        }
        until("the last round to be handled", || {
            server.pending("s", "g").is_empty()
                && server.group_last_delivered("s", "g") == server.entries("s").last().map(streamkeeper::Entry::id)
        })
        .await;
        consumer.stop().await;
        let keys = keys.lock().unwrap();
        assert!(keys.handled >= 60, "{reset}: {keys:?}");
        assert_eq!(keys.doubled, Vec::<String>::new(), "{reset}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_for_a_minute_is_at_most_fifteen_reads_and_the_documented_background_commands() {
    let server = MemoryServer::new();
    let idle = Consumer::durable(&server.client()).stream("s").group("g").block(Duration::from_secs(5));
    let consumer = start(idle, |_: Context| async {});
    until("a read to wait", || server.blocked_readers() == 1).await;
    let before = server.commands();
    work_for(Duration::from_mins(1)).await;
    let mut commands = server.commands();
    for (name, count) in &mut commands {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    commands.retain(|_, count| *count > 0);
    let reads = commands.remove("XREADGROUP").unwrap();
    assert!((12..=15).contains(&reads), "{reads}");
    // Every claim interval (a third of the lease, give or take a tenth): one search, and what is known of the group.
    for name in ["XAUTOCLAIM", "XINFO GROUPS", "XPENDING", "XINFO STREAM"] {
        let count = commands.remove(name).unwrap_or(0);
        assert!((5..=7).contains(&count), "{name}: {count}");
    }
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(consumer.events.count("Reconnecting"), 0);
    consumer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_do_not_come_cost_no_work() {
    let server = MemoryServer::new();
    server.set_response_timeout(Some(Duration::from_secs(10)));
    let journal = Journal::default();
    let seen = journal.clone();
    // Ends at another time for each entry, so that acknowledgements come together in many commands.
    let consumer = start(builder(&server), move |Data(data): Data, cx: Context| {
        let run = seen.begin(&cx);
        let number: u64 = String::from_utf8_lossy(&data).parse().unwrap();
        async move {
            work_for(Duration::from_millis(30 * number)).await;
            run.end();
        }
    });
    until("a read to wait", || server.blocked_readers() == 1).await;
    // Time is paused and goes on only when every task waits: a loop that spins would hang here.
    server.fail_always("XACK", Fault::Delay(Duration::from_secs(2)));
    publish(&server, "s", 60);
    until("all to be handled", || journal.finished() == 60).await;
    server.clear_faults();
    until("all to be acknowledged", || server.pending("s", "g").is_empty()).await;
    consumer.stop().await;
    assert_eq!(journal.starts(), 60);
}

#[tokio::test(start_paused = true)]
async fn b48_a_server_that_is_busy_with_itself_or_not_the_one_any_more_is_waited_for() {
    for line in [
        "LOADING Redis is loading the dataset in memory",
        "LOADING Valkey is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "READONLY You can't write against a read only replica.",
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "ERR max number of clients reached",
    ] {
        let server = MemoryServer::new();
        let journal = Journal::default();
        let consumer = start(builder(&server), taking(&journal, Duration::from_secs(1)));
        until("a read to wait", || server.blocked_readers() == 1).await;
        publish(&server, "s", 10);
        until("handlers to run", || journal.starts() > 0).await;
        // Whatever is asked from now on is answered so, for a quarter of an hour, and asked seldom.
        server.fail_always("*", Fault::error(line));
        work_for(Duration::from_secs(300)).await;
        let before = server.commands().values().sum::<u64>();
        work_for(Duration::from_secs(600)).await;
        let asked = server.commands().values().sum::<u64>() - before;
        assert!(asked < 2_400, "{line}: {asked} commands in ten minutes");
        assert!(!consumer.is_over(), "{line}");
        server.clear_faults();
        until("all to be handled", || journal.finished() == 10 && server.pending("s", "g").is_empty()).await;
        publish(&server, "s", 10);
        until("new ones to be handled", || journal.finished() == 20 && server.pending("s", "g").is_empty()).await;
        consumer.stop().await;
    }
}
