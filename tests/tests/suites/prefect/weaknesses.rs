//! Weaknesses that were reproduced with Prefect's consumer and publisher: here the right thing happens. Those that are
//! field cases as well are in `field_cases` and are not repeated.

use std::time::Duration;

use streamkeeper::maint::{Trimmed, Trimmer};
use streamkeeper::{DeadLetter, Outcome, PrefectMessage, RetryPolicy};
use streamkeeper_tests::{Ask, on_each, start};

use super::{Seen, builder, publish, run_to_stop};

#[tokio::test(flavor = "multi_thread")]
async fn trimming_compares_ids_as_numbers_and_minds_groups_that_are_behind_dead_or_new() {
    on_each(|server| async move {
        let key = server.fresh_key("floor");
        for n in 1..=12 {
            server.ask(&format!("XADD {key} 100-{n} data x")).await;
        }
        let mut trimmer = Trimmer::builder(&server.client()).stream(&key).build().unwrap();
        let mut removed = async || match trimmer.run().await.unwrap() {
            Trimmed::Stream(report) => report.removed,
            other => panic!("{other:?}"),
        };
        // As text, 100-10 is less than 100-2.
        server.ask(&format!("XGROUP CREATE {key} slow 100-2")).await;
        server.ask(&format!("XGROUP CREATE {key} fast 100-10")).await;
        assert_eq!(removed().await, 2, "{}", server.name());
        assert_eq!(server.len(&key).await, 10, "{}", server.name());
        // A group that has read nothing needs everything, and no consumer of `slow` has been there for long.
        server.ask(&format!("XGROUP CREATE {key} new 0")).await;
        server.ask(&format!("XGROUP SETID {key} slow 100-12")).await;
        assert_eq!(removed().await, 0, "{}", server.name());
        server.ask(&format!("XGROUP SETID {key} new 100-12")).await;
        // Delivered to an owner that is dead, and not finished.
        server.ask(&format!("XREADGROUP GROUP fast dead COUNT 2 STREAMS {key} >")).await;
        assert_eq!(removed().await, 8, "{}", server.name());
        let claimed = server.ask(&format!("XCLAIM {key} fast other 0 100-11 100-12")).await;
        assert!(matches!(claimed, stream_redis::Value::Array(entries) if entries.len() == 2), "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_message_among_abandoned_ones_holds_up_none_of_them() {
    on_each(|server| async move {
        let topic = server.fresh_key("malformed");
        server.ask(&format!("XGROUP CREATE {topic} g 0 MKSTREAM")).await;
        publish(&server, &topic, ["good"]).await;
        server.ask(&format!("XADD {topic} * data x attributes {{broken")).await;
        server
            .cli(&[b"XADD".as_slice(), topic.as_bytes(), b"*", b"data", b"\xff\xfe", b"attributes", b"{}"])
            .await
            .unwrap();
        publish(&server, &topic, ["better"]).await;
        server.ask(&format!("XREADGROUP GROUP g dead COUNT 10 STREAMS {topic} >")).await;
        let seen = Seen::default();
        let noted = seen.clone();
        let lease = Duration::from_millis(300);
        let consumer = start(builder(&server, &topic).lease(lease), move |message: PrefectMessage| {
            noted.add(message);
            async {}
        });
        server.until("all to be settled", || async { server.pending(&topic, "g").await == 0 }).await;
        // Bytes that are no text are bytes all the same.
        let datas: Vec<_> = seen.all().into_iter().map(|message| message.data).collect();
        assert_eq!(datas, [&b"good"[..], b"\xff\xfe", b"better"], "{}", server.name());
        let letters = server.entries(&format!("{topic}:dead")).await;
        let letter = DeadLetter::from_entry(&letters[0]).unwrap();
        assert_eq!((letters.len(), letter.reason.as_str()), (1, "undecodable"), "{}", server.name());
        assert_eq!(letter.entry.get("attributes"), Some(&b"{broken"[..]), "{}", server.name());
        assert_eq!(consumer.stop().await.stats.acknowledged, 3, "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_handler_is_not_run_beside_itself_and_a_failing_one_not_more_often_than_allowed() {
    on_each(|server| async move {
        let topic = server.fresh_key("slow");
        publish(&server, &topic, ["slow", "failing"]).await;
        let seen = Seen::default();
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                let noted = seen.clone();
                // A handler takes more than three leases.
                let builder = builder(&server, &topic).concurrency(2).lease(Duration::from_secs(2));
                start(builder, move |message: PrefectMessage| {
                    let failing = message.text().unwrap() == "failing";
                    noted.add(message);
                    async move {
                        if failing {
                            return Err("no");
                        }
                        stream_testkit::work_for(Duration::from_millis(6_500)).await;
                        Ok(())
                    }
                })
            })
            .collect();
        let settled = || async { seen.len() >= 5 && server.pending(&topic, "g").await == 0 };
        server.until("both to be settled", settled).await;
        let mut reports = Vec::new();
        for consumer in consumers {
            reports.push(consumer.stop().await);
        }
        let texts = seen.texts();
        assert_eq!(texts.iter().filter(|text| *text == "slow").count(), 1, "{}", server.name());
        assert_eq!(texts.iter().filter(|text| *text == "failing").count(), 4, "{}", server.name());
        assert_eq!(reports.iter().map(|report| report.stats.dead_lettered).sum::<u64>(), 1, "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fails_for_ever_does_not_keep_new_ones_from_being_read() {
    on_each(|server| async move {
        let topic = server.fresh_key("storm");
        publish(&server, &topic, ["failing"]).await;
        let seen = Seen::default();
        let noted = seen.clone();
        let retry = RetryPolicy::fixed(Duration::from_millis(10)).unlimited();
        let consumer = start(builder(&server, &topic).retry(retry), move |message: PrefectMessage| {
            let failing = message.text().unwrap() == "failing";
            if !failing {
                noted.add(message);
            }
            async move { if failing { Err("no") } else { Ok(()) } }
        });
        publish(&server, &topic, (0..50).map(|n| n.to_string())).await;
        server.until("the others to be handled", || async { seen.len() == 50 }).await;
        let report = consumer.stop().await;
        assert_eq!((report.stats.acknowledged, server.pending(&topic, "g").await), (50, 1), "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_at_the_first_of_five_hands_the_others_back() {
    on_each(|server| async move {
        let topic = server.fresh_key("handed-back");
        publish(&server, &topic, ["0", "1", "2", "3", "4"]).await;
        let seen = Seen::default();
        let noted = seen.clone();
        let five_minutes = builder(&server, &topic).prefetch(10).lease(Duration::from_mins(5));
        let run = run_to_stop(five_minutes, move |message: PrefectMessage| {
            noted.add(message);
            async { Outcome::stop() }
        });
        let report = run.await;
        assert_eq!((seen.texts(), report.left_pending), (vec!["0".to_owned()], 0), "{}: {report:?}", server.name());
        // The lease of those is five minutes, and nobody has to wait for it.
        let noted = seen.clone();
        let next = start(builder(&server, &topic).lease(Duration::from_mins(5)), move |message: PrefectMessage| {
            noted.add(message);
            async {}
        });
        server
            .until("the others to be handled", || async { server.pending(&topic, "g").await == 0 && seen.len() == 5 })
            .await;
        next.stop().await;
        assert_eq!(seen.texts(), ["0", "1", "2", "3", "4"], "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_messages_cost_a_fraction_of_as_many_commands() {
    streamkeeper_tests::on_each_own(stream_testkit::ServerOptions::new(), |server| async move {
        let topic = server.fresh_key("cost");
        publish(&server, &topic, (0..200).map(|n| n.to_string())).await;
        server.ask("CONFIG RESETSTAT").await;
        let seen = Seen::default();
        let noted = seen.clone();
        let consumer = start(builder(&server, &topic), move |message: PrefectMessage| {
            noted.add(message);
            async {}
        });
        let handled = || async { seen.len() == 200 && server.pending(&topic, "g").await == 0 };
        server.until("200 messages to be handled", handled).await;
        let calls = server.calls().await;
        let called = |name: &str| calls.get(name).copied().unwrap_or(0);
        let commands = called("xreadgroup") + called("xack") + called("xautoclaim");
        // Prefect takes 600: one of each for every message.
        assert!(commands <= 100, "{}: {calls:?}", server.name());
        consumer.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_restarts_leave_no_consumer_behind() {
    on_each(|server| async move {
        let topic = server.fresh_key("restarts");
        let mut left = 0;
        for n in 0..30 {
            publish(&server, &topic, [n.to_string()]).await;
            let run = run_to_stop(builder(&server, &topic), |_: PrefectMessage| async { Outcome::stop() });
            left += usize::from(!run.await.consumer_removed);
        }
        // A stop waits half a second for the removal, and a busy machine may take longer once in a while.
        let consumers = server.consumers(&topic, "g").await;
        assert!(left <= 3 && consumers <= left, "{}: {left} not removed, {consumers} there", server.name());
    })
    .await;
}
