//! Suspects whose handlers do not end: they keep others waiting for a lease, and no longer.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, RetryPolicy, Shutdown};
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, eventually};
use tokio::time::Instant;

use super::support::{Journal, abandoned};

/// Runs with a handler that never ends for payload "0", until `others` more were started. Returns how long that took from
/// when the first of them was there.
async fn beside_one_that_hangs(server: &MemoryServer, others: usize, retry: RetryPolicy) -> Duration {
    let (journal, shutdown) = (Journal::default(), Shutdown::new());
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(4)
        .retry(retry)
        .grace(Duration::from_secs(1))
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |Data(data): Data, cx: Context| {
                let noted = journal.done(cx);
                async move {
                    noted.await;
                    if data == "0" {
                        std::future::pending::<()>().await;
                    }
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    let started = |number: usize| {
        let journal = &journal;
        async move {
            eventually(Duration::from_mins(30), format!("{number} entries to be started"), || {
                std::future::ready((journal.attempts().len() >= number).then_some(()))
            })
            .await;
        }
    };
    started(1).await;
    let since = Instant::now();
    if others > 1 {
        for n in 1..=others {
            server.add("s", [("data", n.to_string())]);
        }
    }
    started(1 + others).await;
    let took = since.elapsed();
    shutdown.stop();
    run.await.unwrap().unwrap();
    took
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_alone_lets_others_in_once_its_count_says_so() {
    for refused in [0, 5] {
        let server = MemoryServer::new();
        abandoned(&server, "s", 1, 2);
        let hanging = server.entries("s")[0].id();
        let busy = server.clone();
        let faults = tokio::spawn(async move {
            eventually(Duration::from_mins(30), "the suspect to be alone", || {
                std::future::ready(busy.pending("s", "g").iter().any(|(.., count)| *count == 4).then_some(()))
            })
            .await;
            for _ in 0..refused {
                busy.fail_next("EVALSHA TAKE", Fault::error("BUSY Redis is busy running a script."));
            }
        });
        let took = beside_one_that_hangs(&server, 50, RetryPolicy::immediate().max_attempts(3)).await;
        faults.await.unwrap();
        let least = Duration::from_secs(if refused == 0 { 30 } else { 60 });
        assert!(took >= least && took < least + Duration::from_mins(1), "refused {refused} times: {took:?}");
        // Cut short by the stop, it is started once more, and nobody's death is blamed on it.
        let pending = server.pending("s", "g");
        assert_eq!(pending.iter().map(|(id, _, _, count)| (*id, *count)).collect::<Vec<_>>(), [(hanging, 3)]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_keeps_the_other_suspects_waiting_for_a_lease() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 2, 3);
    let took = beside_one_that_hangs(&server, 1, RetryPolicy::immediate().max_attempts(10)).await;
    assert!(took >= Duration::from_secs(25) && took < Duration::from_mins(1), "{took:?}");
}
