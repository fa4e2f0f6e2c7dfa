//! Stopping, on the in-memory server with paused time.

use std::time::Duration;

use stream_testkit::{MemoryServer, work_for};
use streamkeeper::{Context, Outcome};
use streamkeeper_tests::{Journal, start};
use tokio::time::Instant;

use crate::memory::{builder, publish, until};

/// What a second consumer is given: every entry at this attempt.
async fn next_sees(server: &MemoryServer, count: usize, attempt: u32) {
    let journal = Journal::default();
    let seen = journal.clone();
    let begin = Instant::now();
    let consumer = start(builder(server).consumer("next"), move |cx: Context| {
        seen.begin(&cx).end();
        async {}
    });
    until("the next consumer to get everything", || journal.finished() == count).await;
    assert!(begin.elapsed() <= Duration::from_secs(2), "others take over at once: {:?}", begin.elapsed());
    until("all to be acknowledged", || server.pending("s", "g").is_empty()).await;
    assert!(journal.attempts().values().all(|attempts| *attempts == [attempt]), "{:?}", journal.attempts());
    consumer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b55_a_stop_while_idle_is_immediate_and_removes_the_consumer() {
    let server = MemoryServer::new();
    let consumer = start(builder(&server).consumer("c"), |_: Context| async {});
    until("a read to wait", || server.blocked_readers() == 1).await;
    let begin = Instant::now();
    let report = consumer.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(report.consumer_removed);
    assert_eq!((report.handed_back, report.aborted, report.unconfirmed, report.left_pending), (0, 0, 0, 0));
    assert_eq!(server.consumers("s", "g"), Vec::<String>::new());
    assert_eq!(server.open_connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn b55_a_stop_with_fifty_prefetched_hands_them_back_unburned() {
    let server = MemoryServer::new();
    publish(&server, "s", 51);
    let journal = Journal::default();
    let seen = journal.clone();
    // The handler is so quick at first that it is read ahead for, and then slow.
    let consumer = start(builder(&server).concurrency(51), move |cx: Context| {
        let run = seen.begin(&cx);
        async move {
            work_for(Duration::from_millis(100)).await;
            run.end();
        }
    });
    until("all to be handled", || journal.finished() == 51).await;
    consumer.stop().await;

    let ids = publish(&server, "s", 51);
    let slow = Journal::default();
    let seen = slow.clone();
    let one = builder(&server).concurrency(1).prefetch(50).order_by_entry(|_| Some(1));
    let consumer = start(one, move |cx: Context| {
        let run = seen.begin(&cx);
        async move {
            work_for(Duration::from_millis(700)).await;
            run.end();
        }
    });
    until("the first to run", || slow.starts() == 1).await;
    let begin = Instant::now();
    let report = consumer.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let held = server.pending("s", "g");
    assert_eq!(report.handed_back, held.len() as u64);
    assert_eq!((report.aborted, report.unconfirmed, report.left_pending), (0, 0, 0));
    assert_eq!(report.consumer_removed, held.is_empty());
    assert!(held.iter().all(|(_, _, _, deliveries)| *deliveries == 0), "{held:?}");
    assert_eq!(slow.attempts_of(ids[0]), [1]);
    next_sees(&server, 50, 1).await;
}

#[tokio::test(start_paused = true)]
async fn b55_a_running_handler_has_the_grace_period_to_finish() {
    let server = MemoryServer::new();
    publish(&server, "s", 1);
    let journal = Journal::default();
    let seen = journal.clone();
    let consumer = start(builder(&server).grace(Duration::from_secs(30)), move |cx: Context| {
        let run = seen.begin(&cx);
        async move {
            work_for(Duration::from_secs(20)).await;
            run.end();
        }
    });
    until("the handler to run", || journal.starts() == 1).await;
    let begin = Instant::now();
    let report = consumer.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(21), "{:?}", begin.elapsed());
    assert_eq!((report.stats.acknowledged, report.aborted, report.unconfirmed), (1, 0, 0));
    assert!(report.consumer_removed && server.pending("s", "g").is_empty());
}

#[tokio::test(start_paused = true)]
async fn b55_a_handler_that_outlives_the_grace_period_is_aborted_and_its_start_counts() {
    for second in [false, true] {
        let server = MemoryServer::new();
        publish(&server, "s", 3);
        let journal = Journal::default();
        let seen = journal.clone();
        let grace = Duration::from_secs(if second { 600 } else { 5 });
        let consumer = start(builder(&server).grace(grace), move |cx: Context| {
            let run = seen.begin(&cx);
            async move {
                std::future::pending::<()>().await;
                run.end();
            }
        });
        until("the handlers to run", || journal.starts() == 3).await;
        let begin = Instant::now();
        consumer.shutdown.stop();
        if second {
            work_for(Duration::from_secs(1)).await;
            consumer.shutdown.stop();
        }
        let report = consumer.ended().await.unwrap();
        let limit = if second { Duration::from_secs(2) } else { grace + Duration::from_secs(1) };
        assert!(begin.elapsed() <= limit, "{:?}", begin.elapsed());
        assert_eq!((report.aborted, report.handed_back, report.left_pending, report.unconfirmed), (3, 3, 0, 0));
        assert!(!report.consumer_removed, "it holds entries until another takes them over");
        next_sees(&server, 3, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b55_a_stop_while_the_server_is_down_is_not_held_up_by_the_backoff() {
    for held in [0, 10] {
        let server = MemoryServer::new();
        let journal = Journal::default();
        let seen = journal.clone();
        let consumer = start(builder(&server).grace(Duration::from_secs(2)), move |cx: Context| {
            let run = seen.begin(&cx);
            async move {
                work_for(Duration::from_secs(1)).await;
                run.end();
            }
        });
        until("a read to wait", || server.blocked_readers() == 1).await;
        publish(&server, "s", held);
        until("the handlers to run", || journal.starts() == held).await;
        server.kill_connections();
        server.set_down(true);
        work_for(Duration::from_mins(15)).await;
        let begin = Instant::now();
        let report = consumer.stop().await;
        let limit = Duration::from_secs(if held == 0 { 1 } else { 3 });
        assert!(begin.elapsed() <= limit, "{held} held: {:?}", begin.elapsed());
        assert_eq!((report.unconfirmed, report.consumer_removed), (held as u64, false));
        server.set_down(false);
        if held > 0 {
            // Handled, but nobody knows: at least once.
            work_for(Duration::from_secs(3)).await;
            next_sees(&server, held, 2).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn entries_that_wait_for_their_retry_are_handed_back_with_their_starts() {
    let server = MemoryServer::new();
    publish(&server, "s", 20);
    let journal = Journal::default();
    let seen = journal.clone();
    let retry = streamkeeper::RetryPolicy::fixed(Duration::from_mins(10));
    let consumer = start(builder(&server).retry(retry), move |cx: Context| {
        seen.begin(&cx).end();
        async { Outcome::failed("not now") }
    });
    until("all to have failed", || journal.finished() == 20).await;
    work_for(Duration::from_secs(30)).await;
    let report = consumer.stop().await;
    assert_eq!((report.handed_back, report.left_pending), (20, 0));
    next_sees(&server, 20, 2).await;
}
