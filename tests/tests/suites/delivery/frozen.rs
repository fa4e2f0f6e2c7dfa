//! An owner that is frozen past its lease and comes back: the other runs its entry, and it is told and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use stream_testkit::RealServer;
use streamkeeper::{Consumer, Context};
use streamkeeper_tests::{Ask, Journal, Worker, on_each, start};
use tokio::sync::Semaphore;

async fn frozen(server: &RealServer, ears: &str) {
    let context = format!("{}, {ears}", server.name());
    let key = server.fresh_key("frozen");
    let folder = tempfile::tempdir().unwrap();
    let (journal, finish) = (folder.path().join("journal"), folder.path().join("finish"));
    let ids = server.publish(&key, 1).await;
    // Deaf, it is at the end of its work when it is resumed, and acknowledges before it is told anything.
    let work = if ears == "deaf" { finish.to_str().unwrap() } else { "600000" };
    let args = [&server.url(), &key, "g", "first", journal.to_str().unwrap(), "3000", ears, work];
    let first = Worker::start(env!("CARGO_BIN_EXE_test-worker"), &args);
    first.wrote("start ").await;
    first.freeze();

    let (runs, gate) = (Journal::default(), Arc::new(Semaphore::new(0)));
    let second = start(
        Consumer::durable(&server.client())
            .stream(&key)
            .group("g")
            .consumer("second")
            .lease(Duration::from_secs(3))
            .block(Duration::from_secs(1)),
        {
            let (runs, gate) = (runs.clone(), Arc::clone(&gate));
            move |cx: Context| {
                let run = runs.begin(&cx);
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    run.end();
                }
            }
        },
    );
    server.until("the second to run it", || async { runs.starts() == 1 }).await;
    assert_eq!(runs.attempts_of(ids[0]), [2], "{context}");

    std::fs::write(&finish, "").unwrap();
    first.resume();
    first.wrote("done ").await;
    first.wrote("LeaseLost").await;
    if ears == "listening" {
        first.wrote("cancelled ").await;
    }
    // Its last words are said when it has ended: whatever it wanted to acknowledge.
    assert!(first.stop().await, "{context}");
    let pending = server.pending_entries(&key, "g").await;
    assert_eq!(pending, [(ids[0], "second".to_owned(), 2)], "{context}");

    gate.add_permits(1);
    server.until("the second to acknowledge", || async { server.pending(&key, "g").await == 0 }).await;
    let report = second.stop().await;
    assert_eq!((report.stats.acknowledged, report.stats.leases_lost), (1, 0), "{context}");
    assert_eq!(runs.starts(), 1, "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_owner_is_told_by_its_token_and_its_acknowledgement_changes_nothing() {
    on_each(|server| async move {
        tokio::join!(frozen(&server, "listening"), frozen(&server, "deaf"));
    })
    .await;
}
