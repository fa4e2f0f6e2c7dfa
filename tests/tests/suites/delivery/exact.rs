//! Exact counts, on the in-memory server with paused time.

use std::time::Duration;

use stream_testkit::{MemoryServer, work_for};
use streamkeeper::{Context, Data, RetryPolicy};
use streamkeeper_tests::{Journal, start};
use tokio::sync::mpsc;

use crate::memory::{builder, publish, until};

#[tokio::test(start_paused = true)]
async fn the_duplicate_storm_is_exactly_one_start_for_each_message() {
    let server = MemoryServer::new();
    publish(&server, "s", 120);
    let journal = Journal::default();
    let run = |name: &str| {
        let journal = journal.clone();
        let builder = builder(&server).consumer(name).concurrency(1).prefetch(63);
        start(builder, move |cx: Context| {
            let run = journal.begin(&cx);
            async move {
                work_for(Duration::from_millis(200)).await;
                run.end();
            }
        })
    };
    let consumers = [run("a"), run("b")];
    until("all to be handled", || journal.finished() == 120 && server.pending("s", "g").is_empty()).await;
    for consumer in consumers {
        consumer.stop().await;
    }
    assert_eq!(journal.starts(), 120);
}

/// A fleet of one process that is restarted under a new name whenever its handler takes it down.
async fn supervise(server: &MemoryServer, journal: &Journal, killers: &'static [usize], count: usize) -> usize {
    publish(server, "s", count);
    let (killed, mut deaths) = mpsc::unbounded_channel();
    let run = |n: usize| {
        let (journal, killed) = (journal.clone(), killed.clone());
        let builder = builder(server)
            .consumer(format!("worker-{n}"))
            .concurrency(64)
            .retry(RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(3));
        start(builder, move |Data(data): Data, cx: Context| {
            let run = journal.begin(&cx);
            let killed = killed.clone();
            let number: usize = std::str::from_utf8(&data).unwrap().parse().unwrap();
            async move {
                work_for(Duration::from_millis(5 + (number as u64 * 7) % 20)).await;
                if killers.contains(&number) {
                    killed.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                run.end();
            }
        })
    };
    let mut consumer = run(0);
    let mut restarts = 0;
    let settled = || server.len("s:dead") >= killers.len() && server.pending("s", "g").is_empty();
    loop {
        tokio::select! {
            biased;
            Some(()) = deaths.recv() => {
                consumer.crash().await;
                while deaths.try_recv().is_ok() {}
                restarts += 1;
                consumer = run(restarts);
            }
            () = until("the killers to be buried and the rest to be handled", settled) => break,
        }
    }
    consumer.stop().await;
    restarts
}

#[tokio::test(start_paused = true)]
async fn suspects_only_the_killer_is_dead_lettered_and_after_exactly_three_starts() {
    for killer in [&[0_usize][..], &[1], &[31], &[62], &[63], &[64], &[100], &[199]] {
        let server = MemoryServer::new();
        let journal = Journal::default();
        let begin = tokio::time::Instant::now();
        let restarts = supervise(&server, &journal, killer, 200).await;
        let took = begin.elapsed();
        assert_eq!(restarts, 3, "killer {killer:?}");
        assert_eq!(server.len("s:dead"), 1, "killer {killer:?}");
        let id = server.entries("s")[killer[0]].id();
        assert_eq!(journal.attempts_of(id), [1, 2, 3], "killer {killer:?}");
        assert_eq!(journal.finished(), 199, "killer {killer:?}");
        assert!(took < Duration::from_mins(1), "killer {killer:?} took {took:?}");
    }
}
