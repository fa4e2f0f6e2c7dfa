//! Handlers that fail, panic, hang and kill; order and groups meanwhile.

use std::time::Duration;

use stream_testkit::{eventually, work_for};
use streamkeeper::{Context, Data, EntryId, Outcome, RetryOrder, RetryPolicy};
use streamkeeper_tests::{Ask, Journal, on_each, start};

use super::{builder, settled, taking};

fn number(data: &Data) -> usize {
    std::str::from_utf8(&data.0).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_only_a_handler_that_succeeds_acknowledges() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b13"), server.name().to_owned());
        let ids = server.publish(&key, 10).await;
        let journal = Journal::default();
        let seen = journal.clone();
        let hour = RetryPolicy::fixed(Duration::from_hours(1));
        let careful = builder(&server, &key).retry(hour).timeout(Duration::from_millis(200));
        let running = start(careful, move |data: Data, cx: Context| {
            let run = seen.begin(&cx);
            async move {
                match number(&data) {
                    2 => return Err("refused"),
                    4 => panic!("on purpose"),
                    6 => std::future::pending().await,
                    _ => {}
                }
                run.end();
                Ok(())
            }
        });
        server.until("seven to be acknowledged", || async { running.stats.get().acknowledged == 7 }).await;
        server.until("three to wait", || async { running.stats.get().retried == 3 }).await;
        let pending: Vec<EntryId> = server.pending_entries(&key, "g").await.into_iter().map(|(id, ..)| id).collect();
        assert_eq!(pending, [ids[2], ids[4], ids[6]], "{name}");
        // An abort is no success either.
        let report = running.stop().await;
        assert_eq!(report.handed_back, 3, "{name}: {report:?}");
        assert_eq!(server.pending(&key, "g").await, 3, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_a_message_that_kills_its_process_is_buried_and_those_behind_it_are_handled() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b21"), server.name().to_owned());
        let dead = format!("{key}:dead");
        let ids = server.publish(&key, 10).await;
        let journal = Journal::default();
        let (killed, mut deaths) = tokio::sync::mpsc::unbounded_channel();
        let run = || {
            let (journal, killed) = (journal.clone(), killed.clone());
            // One after the other: the killer stands in front of those behind it.
            let builder = builder(&server, &key).lease(Duration::from_secs(2)).concurrency(1).prefetch(20);
            start(builder.retry(RetryPolicy::immediate().max_attempts(3)), move |data: Data, cx: Context| {
                let run = journal.begin(&cx);
                let killed = killed.clone();
                async move {
                    if number(&data) == 2 {
                        killed.send(()).unwrap();
                        std::future::pending::<()>().await;
                    }
                    run.end();
                }
            })
        };
        let mut running = run();
        for _ in 0..3 {
            deaths.recv().await.unwrap();
            running.crash().await;
            running = run();
        }
        server.until("the killer to be buried", || async { server.len(&dead).await == 1 }).await;
        settled(&server, &key, &journal, 9).await;
        running.stop().await;
        assert_eq!(journal.attempts_of(ids[2]), [1, 2, 3], "{name}");
        let letter = streamkeeper::DeadLetter::from_entry(&server.entries(&dead).await[0]).unwrap();
        assert_eq!((letter.entry.id(), letter.attempts, letter.reason.as_str()), (ids[2], 3, "owner-died"), "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b23_a_retry_in_one_group_is_unseen_in_another() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b23"), server.name().to_owned());
        let ids = server.publish(&key, 5).await;
        let (failing, calm) = (Journal::default(), Journal::default());
        let seen = failing.clone();
        let first = builder(&server, &key).retry(RetryPolicy::fixed(Duration::from_millis(50)));
        let first = start(first, move |data: Data, cx: Context| {
            seen.begin(&cx).end();
            async move { if number(&data) == 2 && cx.attempt() < 4 { Outcome::failed("not yet") } else { Outcome::Done } }
        });
        let second = taking(builder(&server, &key).group("g2"), &calm, Duration::ZERO);
        server.until("both to be done", || async {
            failing.starts() == 8 && calm.finished() == 5 && server.pending(&key, "g").await == 0
        })
        .await;
        first.stop().await;
        second.stop().await;
        assert_eq!(failing.attempts_of(ids[2]), [1, 2, 3, 4], "{name}");
        assert!(calm.attempts().values().all(|attempts| *attempts == [1]), "{name}");
        assert_eq!(server.len(&key).await, 5, "{name}: nothing was added");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b33_one_at_a_time_keeps_the_order_and_in_place_keeps_it_through_retries() {
    on_each(|server| async move {
        let name = server.name().to_owned();
        for order in [RetryOrder::Later, RetryOrder::InPlace] {
            let key = server.fresh_key("b33");
            let ids = server.publish(&key, 100).await;
            let journal = Journal::default();
            let seen = journal.clone();
            let retry = RetryPolicy::fixed(Duration::from_millis(30));
            let running = start(
                builder(&server, &key).concurrency(1).retry(retry).retry_order(order),
                move |data: Data, cx: Context| {
                    let run = seen.begin(&cx);
                    async move {
                        work_for(Duration::from_millis(1)).await;
                        run.end();
                        if number(&data) == 5 && cx.attempt() < 3 { Err("not yet") } else { Ok(()) }
                    }
                },
            );
            server
                .until("all to be handled", || async {
                    journal.starts() == 102 && server.pending(&key, "g").await == 0
                })
                .await;
            running.stop().await;
            let runs: Vec<(EntryId, u32)> = journal.runs().into_iter().map(|run| (run.id, run.attempt)).collect();
            let firsts: Vec<EntryId> = runs.iter().filter(|(_, attempt)| *attempt == 1).map(|(id, _)| *id).collect();
            assert_eq!(firsts, ids, "{name}: {order:?}");
            if order == RetryOrder::InPlace {
                assert_eq!(runs[5..9], [(ids[5], 1), (ids[5], 2), (ids[5], 3), (ids[6], 1)], "{name}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_a_handler_that_blocks_its_thread_for_several_leases_runs_once() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b17"), server.name().to_owned());
        server.publish(&key, 4).await;
        let journal = Journal::default();
        let run = || {
            let seen = journal.clone();
            start(builder(&server, &key).lease(Duration::from_secs(2)), move |cx: Context| {
                let run = seen.begin(&cx);
                async move {
                    // Computes without a pause, off the threads of the runtime that answer for everything else.
                    tokio::task::spawn_blocking(|| std::thread::park_timeout(Duration::from_secs(6))).await.unwrap();
                    run.end();
                }
            })
        };
        let (one, two) = (run(), run());
        settled(&server, &key, &journal, 4).await;
        one.stop().await;
        two.stop().await;
        assert_eq!(journal.starts(), 4, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_a_handler_over_its_time_limit_is_dropped_and_its_attempt_has_failed() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b17"), server.name().to_owned());
        let dead = format!("{key}:dead");
        let ids = server.publish(&key, 1).await;
        let journal = Journal::default();
        let limit = builder(&server, &key).timeout(Duration::from_millis(100));
        let limit = limit.retry(RetryPolicy::immediate().max_attempts(2));
        let running = taking(limit, &journal, Duration::from_hours(1));
        eventually(Duration::from_secs(10), format!("it to be buried on {name}"), || async {
            (server.len(&dead).await == 1).then_some(())
        })
        .await;
        running.stop().await;
        assert_eq!(journal.attempts_of(ids[0]), [1, 2], "{name}");
        let letter = streamkeeper::DeadLetter::from_entry(&server.entries(&dead).await[0]).unwrap();
        assert_eq!(letter.reason.detail(), Some("the handler took longer than 100ms"), "{name}");
    })
    .await;
}
