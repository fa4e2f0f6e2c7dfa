//! Owners that died, and what became of their entries.

use std::sync::Arc;
use std::time::Duration;

use stream_testkit::proxy::{Moment, Proxy};
use stream_testkit::{eventually, work_for};
use streamkeeper::{Client, Consumer, Context};
use streamkeeper_tests::{Ask, Journal, on_each, start};
use tokio::sync::Semaphore;

use super::{builder, left_behind, settled, taking};

const LEASE: Duration = Duration::from_millis(600);

#[tokio::test(flavor = "multi_thread")]
async fn b01_a_consumer_that_owns_entries_is_never_removed() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b01"), server.name().to_owned());
        server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        server.publish(&key, 10).await;
        left_behind(&server, &key, "A", 10).await;
        // A process of the same name starts and stops before the lease of the dead one is over.
        let journal = Journal::default();
        let same = taking(builder(&server, &key).consumer("A"), &journal, Duration::ZERO);
        server.until("it to be ready", || async { same.events.count("Ready") == 1 }).await;
        let report = same.stop().await;
        assert!(!report.consumer_removed, "{name}: {report:?}");
        assert_eq!(server.pending(&key, "g").await, 10, "{name}");
        let other = taking(builder(&server, &key).consumer("B").lease(LEASE), &journal, Duration::ZERO);
        settled(&server, &key, &journal, 10).await;
        other.stop().await;
        assert_eq!(journal.starts(), 10, "{name}");
        assert!(journal.attempts().values().all(|attempts| *attempts == [2]), "{name}: {:?}", journal.attempts());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_entries_between_read_and_acknowledgement_are_handled_by_whoever_comes() {
    on_each(|server| async move {
        for consumer in ["dead", "another"] {
            let key = server.fresh_key("b14");
            server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
            server.publish(&key, 25).await;
            left_behind(&server, &key, "dead", 20).await;
            let journal = Journal::default();
            let running = taking(builder(&server, &key).consumer(consumer).lease(LEASE), &journal, Duration::ZERO);
            settled(&server, &key, &journal, 25).await;
            running.stop().await;
            assert_eq!(journal.starts(), 25, "{} as {consumer}", server.name());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b15_the_tail_of_a_long_pending_list_is_found_behind_a_fresh_head() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b15"), server.name().to_owned());
        server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        // More than one call looks at: ten times its count of a hundred.
        let ids = server.publish(&key, 1_300).await;
        left_behind(&server, &key, "alive", 1_200).await;
        left_behind(&server, &key, "dead", 100).await;
        let lease = Duration::from_secs(4);
        let journal = Journal::default();
        let mut renew: Vec<String> = format!("XCLAIM {key} g alive 0").split(' ').map(str::to_owned).collect();
        renew.extend(ids[..1_200].iter().map(ToString::to_string));
        renew.push("JUSTID".to_owned());
        let running = taking(
            builder(&server, &key).lease(lease).claim_every(Duration::from_millis(100)),
            &journal,
            Duration::ZERO,
        );
        eventually(Duration::from_secs(40), format!("the tail to be handled on {name}"), || async {
            server.cli(&renew).await.unwrap();
            (journal.finished() >= 100).then_some(())
        })
        .await;
        assert!(journal.attempts().keys().all(|id| *id >= ids[1_200]), "{name}: the head had a living owner");
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b16_entries_that_wait_in_a_queue_are_not_run_by_another_meanwhile() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b16"), server.name().to_owned());
        server.publish(&key, 20).await;
        let journal = Journal::default();
        // Eight are fetched and two run; the last of them wait for more than two leases.
        let run = || {
            let two_lanes = builder(&server, &key)
                .lease(Duration::from_secs(2))
                .claim_every(Duration::from_millis(50))
                .concurrency(8)
                .prefetch(0)
                .order_by_entry(|entry| Some(entry.get("data").map(|data| data.last().map(|digit| digit % 2))));
            taking(two_lanes, &journal, Duration::from_millis(1_500))
        };
        let (one, two) = (run(), run());
        settled(&server, &key, &journal, 20).await;
        let (one, two) = (one.stop().await, two.stop().await);
        assert_eq!((journal.starts(), journal.overlaps()), (20, Vec::new()), "{name}");
        assert_eq!(one.stats.taken_over + two.stats.taken_over, 0, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_twenty_consumers_that_claim_at_once_start_each_entry_once() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b20"), server.name().to_owned());
        server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        server.publish(&key, 100).await;
        left_behind(&server, &key, "dead", 100).await;
        let journal = Journal::default();
        let run = |_| {
            let hasty = builder(&server, &key).lease(Duration::from_secs(5)).claim_every(Duration::from_millis(100));
            taking(hasty.concurrency(4), &journal, Duration::from_millis(20))
        };
        let consumers: Vec<_> = (0..20).map(run).collect();
        settled(&server, &key, &journal, 100).await;
        for consumer in consumers {
            consumer.stop().await;
        }
        assert_eq!(journal.starts(), 100, "{name}");
        assert!(journal.attempts().values().all(|attempts| *attempts == [2]), "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_a_claim_whose_answer_is_lost_holds_up_nobody_for_longer_than_the_lease() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b20"), server.name().to_owned());
        server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        server.publish(&key, 10).await;
        left_behind(&server, &key, "dead", 10).await;
        let proxy = Proxy::start(server.address()).await.unwrap();
        // The first search finds nothing yet, its lease is not over. The second does, and dies with the answer.
        let journal = Journal::default();
        let client = Client::open(&proxy.url()).unwrap();
        let through = Consumer::durable(&client).stream(&key).group("g").lease(LEASE).block(Duration::from_secs(1));
        let one =
            taking(through.backoff(Duration::from_millis(20), Duration::from_millis(100)), &journal, Duration::ZERO);
        server.until("it to be ready", || async { one.events.count("Ready") == 1 }).await;
        work_for(LEASE.checked_sub(Duration::from_millis(150)).unwrap()).await;
        proxy.cut_at("XAUTOCLAIM", Moment::BeforeReply);
        settled(&server, &key, &journal, 10).await;
        one.stop().await;
        assert_eq!(journal.starts(), 10, "{name}");
        assert!(journal.attempts().values().all(|attempts| *attempts == [2]), "{name}: {:?}", journal.attempts());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b27_pending_entries_without_a_body_are_cleaned_up_and_told() {
    on_each(|server| async move {
        // By the claim of another, and on the way in which a consumer takes up what it held itself.
        for consumer in ["another", "dead"] {
            let (key, name) = (server.fresh_key("b27"), format!("{} as {consumer}", server.name()));
            server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
            let ids = server.publish(&key, 3).await;
            left_behind(&server, &key, "dead", 3).await;
            server.ask(&format!("XTRIM {key} MINID {}", ids[2])).await;
            let journal = Journal::default();
            let running = taking(builder(&server, &key).consumer(consumer).lease(LEASE), &journal, Duration::ZERO);
            settled(&server, &key, &journal, 1).await;
            server.until("both to be told", || async { running.stats.get().deleted_while_pending == 2 }).await;
            let told = running.events.named("DeletedWhilePending");
            for id in &ids[..2] {
                let times = told.iter().filter(|told| told.text.contains(&format!("{id:?}"))).count();
                assert_eq!(times, 1, "{name}: {told:?}");
            }
            running.stop().await;
            assert_eq!(journal.attempts_of(ids[2]), [2], "{name}");
            assert_eq!(journal.starts(), 1, "{name}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b27_an_entry_deleted_while_it_waits_for_its_retry_is_told_and_forgotten() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b27"), server.name().to_owned());
        let ids = server.publish(&key, 2).await;
        let journal = Journal::default();
        let seen = journal.clone();
        // Long enough for the deletion to come first.
        let retry = streamkeeper::RetryPolicy::fixed(Duration::from_secs(4));
        let running = start(builder(&server, &key).retry(retry), move |cx: Context| {
            seen.begin(&cx).end();
            let first = cx.attempt() == 1;
            async move { if first { Err("once more") } else { Ok(()) } }
        });
        server.until("both to fail", || async { journal.starts() == 2 }).await;
        server.ask(&format!("XDEL {key} {}", ids[0])).await;
        settled(&server, &key, &journal, 2).await;
        server.until("it to be told", || async { running.stats.get().deleted_while_pending == 1 }).await;
        running.stop().await;
        assert_eq!((journal.attempts_of(ids[0]), journal.attempts_of(ids[1])), (vec![1], vec![1, 2]), "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b29_an_acknowledgement_that_finds_nothing_is_a_counter_and_not_an_error() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b29"), server.name().to_owned());
        let ids = server.publish(&key, 3).await;
        let (journal, gate) = (Journal::default(), Arc::new(Semaphore::new(0)));
        let (seen, passed) = (journal.clone(), Arc::clone(&gate));
        let running = start(builder(&server, &key), move |cx: Context| {
            let (run, gate) = (seen.begin(&cx), Arc::clone(&passed));
            async move {
                gate.acquire().await.unwrap().forget();
                run.end();
            }
        });
        server.until("all to run", || async { journal.starts() == 3 }).await;
        server.ask(&format!("XACK {key} g {}", ids[0])).await;
        gate.add_permits(3);
        server
            .until("all to be settled", || async {
                let stats = running.stats.get();
                stats.acknowledged + stats.already_acknowledged == 3
            })
            .await;
        assert_eq!(running.stats.get().already_acknowledged, 1, "{name}");
        // The whole stream goes while handlers run: the acknowledgement is about nothing, and work goes on.
        server.publish(&key, 3).await;
        server.until("all to run", || async { journal.starts() == 6 }).await;
        server.ask(&format!("DEL {key}")).await;
        // Within the same millisecond the new stream could give the same ids once more.
        work_for(Duration::from_millis(3)).await;
        server.publish(&key, 3).await;
        gate.add_permits(6);
        server
            .until("all to be handled", || async { journal.ends() == 9 && server.pending(&key, "g").await == 0 })
            .await;
        assert!(!running.is_over() && running.events.count("Reconnecting") == 0, "{name}: {:?}", running.events.all());
        running.stop().await;
    })
    .await;
}
