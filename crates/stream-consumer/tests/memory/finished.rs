//! What is finished and comes back: recognised where it was handled, given up again where its letter may be gone.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Outcome, RetryPolicy, Shutdown};
use stream_testkit::MemoryServer;
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
