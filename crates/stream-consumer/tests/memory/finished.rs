//! What is finished and comes back: recognised where it was handled, given up again where its letter may be gone.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, DrainReport, Outcome, RetryPolicy, Shutdown};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, abandoned, publish};

#[tokio::test(start_paused = true)]
async fn what_another_left_of_a_group_made_anew_is_recognised_as_well() {
    let server = MemoryServer::new();
    publish(&server, "s", 20);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(journal.attempts().len(), 20);
    server.destroy_group("s", "g");
    server.command(["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
    // Somebody else is quicker, and dies with them.
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", "20", "STREAMS", "s", ">"]).unwrap();
    sleep(Duration::from_mins(5)).await;
    assert!(server.pending("s", "g").is_empty());
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{:?}", journal.attempts());
    assert_eq!((report.stats.recognised, report.stats.taken_over), (20, 20));
}

/// Runs with a claim interval of a second; the handler of payload "0" takes five minutes.
async fn beside_a_server_that_forgets(forget: impl AsyncFnOnce(&MemoryServer)) -> (Journal, DrainReport) {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .claim_every(Duration::from_secs(1))
        .dead_letter("dead")
        .build()
        .unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move {
            let handler = move |Data(data): Data, cx: Context| {
                let token = cx.token().clone();
                let noted = journal.done(cx);
                async move {
                    noted.await;
                    if data == "0" {
                        sleep(Duration::from_mins(5)).await;
                    }
                    assert!(!token.is_cancelled(), "{data:?}");
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    forget(&server).await;
    sleep(Duration::from_mins(10)).await;
    assert!(server.pending("s", "g").is_empty());
    shutdown.stop();
    (journal, run.await.unwrap().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_runs_while_the_server_forgets_its_latest_entries_is_not_started_a_second_time() {
    let (journal, report) = beside_a_server_that_forgets(async |server| {
        publish(server, "s", 1);
        sleep(Duration::from_secs(5)).await;
        let before = server.snapshot();
        server.add("s", [("data", "1")]);
        sleep(Duration::from_secs(5)).await;
        server.restart_from(before);
    })
    .await;
    let attempts = journal.attempts();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts.values().all(|attempts| *attempts == [1]), "{attempts:?}");
    assert_eq!(report.stats.taken_over, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_finished_and_is_forgotten_by_the_server_is_recognised_where_others_of_it_are_held() {
    let (journal, report) = beside_a_server_that_forgets(async |server| {
        publish(server, "s", 1);
        sleep(Duration::from_secs(5)).await;
        publish(server, "s", 4);
        let before = server.snapshot();
        sleep(Duration::from_secs(5)).await;
        server.add("s", [("data", "1")]);
        sleep(Duration::from_secs(5)).await;
        server.restart_from(before);
    })
    .await;
    let attempts = journal.attempts();
    assert!(attempts.values().all(|attempts| *attempts == [1]), "{attempts:?}");
    assert_eq!(report.stats.recognised, 3, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_group_made_anew_had_delivered_to_a_cut_read_is_given_back_by_a_stop() {
    let server = MemoryServer::new();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").concurrency(4).build().unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            let handler = async |Data(data): Data| {
                if data == "0" {
                    std::future::pending::<()>().await;
                }
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    publish(&server, "s", 10);
    sleep(Duration::from_mins(1)).await;
    // It is made anew after nothing, and the replies to the reads that are delivered the first ones again do not come.
    server.fail_next("XREADGROUP", Fault::CutAfter);
    server.fail_next("XREADGROUP", Fault::CutAfter);
    server.destroy_group("s", "g");
    stream_testkit::eventually(Duration::from_mins(1), "the second cut read", || {
        std::future::ready((server.pending("s", "g").len() > 1).then_some(()))
    })
    .await;
    shutdown.stop();
    let report = run.await.unwrap().unwrap();
    assert_eq!(report.left_pending, 0, "{report:?}");
    // But for the one that was started.
    let starts: Vec<u64> = server.pending("s", "g").iter().map(|(.., deliveries)| *deliveries).collect();
    assert_eq!(starts.iter().sum::<u64>(), 1, "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_entry_whose_letter_the_server_has_lost_is_dead_lettered_again() {
    let server = MemoryServer::new();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .retry(RetryPolicy::immediate().max_attempts(1))
        .dead_letter("dead")
        .build()
        .unwrap();
    let run = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            let handler = async |_: Context| {
                sleep(Duration::from_secs(1)).await;
                Outcome::failed("always")
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    publish(&server, "s", 1);
    sleep(Duration::from_secs(5)).await;
    // From here on it recognises what it has finished.
    server.destroy_group("s", "g");
    sleep(Duration::from_secs(5)).await;
    publish(&server, "s", 1);
    let letters = server.entries("dead").len();
    sleep(Duration::from_millis(500)).await;
    let before = server.snapshot();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(server.entries("dead").len(), letters + 1);
    server.restart_from(before);
    assert_eq!((server.entries("dead").len(), server.pending("s", "g").len()), (letters, 1));
    sleep(Duration::from_mins(5)).await;
    assert_eq!((server.entries("dead").len(), server.pending("s", "g").len()), (letters + 1, 0));
    shutdown.stop();
    run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_last_start_that_a_stop_cuts_short_is_nobodys_death() {
    let server = MemoryServer::new();
    abandoned(&server, "s", 1, 2);
    let journal = Journal::default();
    for done in [false, false, true] {
        let shutdown = Shutdown::new();
        let consumer = Consumer::durable(&server.client())
            .stream("s")
            .group("g")
            .retry(RetryPolicy::immediate().max_attempts(2))
            .dead_letter("dead")
            .grace(Duration::ZERO)
            .build()
            .unwrap();
        let run = tokio::spawn({
            let (journal, shutdown) = (journal.clone(), shutdown.clone());
            async move {
                let handler = move |cx: Context| {
                    let noted = journal.done(cx);
                    async move {
                        noted.await;
                        if !done {
                            std::future::pending::<()>().await;
                        }
                    }
                };
                consumer.run_with(&shutdown, handler).await
            }
        });
        sleep(Duration::from_mins(5)).await;
        shutdown.stop();
        run.await.unwrap().unwrap();
    }
    assert_eq!(journal.attempts().into_values().collect::<Vec<_>>(), [[3, 3, 3]]);
    assert_eq!((server.entries("dead").len(), server.pending("s", "g").len()), (0, 0));
}
