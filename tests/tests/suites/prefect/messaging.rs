//! What Prefect's own tests of its messaging assert, said of ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use streamkeeper::maint::{Trimmed, Trimmer};
use streamkeeper::{
    Attempt, Client, Consumer, DeadLetter, Outcome, PrefectMessage, PrefectPublisher, RetryPolicy, Shutdown,
};
use streamkeeper_tests::{Ask, on_each, start};

use super::{Seen, builder, publish, publisher, run_to_stop};

#[tokio::test(flavor = "multi_thread")]
async fn publishing_and_consuming_a_single_message() {
    on_each(|server| async move {
        let topic = server.fresh_key("single");
        let attributes = [("howdy", json!("partner")), ("n", json!(1))];
        publisher(&server, &topic).publish("hello, world", attributes.clone()).await.unwrap();
        let seen = Seen::default();
        let noted = seen.clone();
        let report = run_to_stop(builder(&server, &topic), move |message: PrefectMessage| {
            noted.add(message);
            async { Outcome::stop() }
        });
        let report = report.await;
        assert_eq!(report.stats.acknowledged, 1);
        let expected: BTreeMap<_, _> = attributes.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!((seen.texts(), &seen.all()[0].attributes), (vec!["hello, world".to_owned()], &expected));
        assert_eq!(server.pending(&topic, "g").await, 0);
        assert!(server.consumers(&topic, "g").await <= usize::from(!report.consumer_removed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_without_acknowledging_leaves_the_message_to_the_next() {
    on_each(|server| async move {
        let topic = server.fresh_key("stop");
        publish(&server, &topic, ["hello"]).await;
        let seen = Seen::default();
        for acknowledge in [false, true] {
            let noted = seen.clone();
            let run =
                run_to_stop(builder(&server, &topic), move |message: PrefectMessage, Attempt(attempt): Attempt| {
                    noted.add(message);
                    async move {
                        // What was given back comes at once, and the attempt has counted.
                        assert_eq!(attempt, if acknowledge { 2 } else { 1 });
                        Outcome::Stop { acknowledge }
                    }
                });
            let report = run.await;
            assert_eq!(report.stats.acknowledged, u64::from(acknowledge), "{}", server.name());
            assert_eq!(server.pending(&topic, "g").await, i64::from(!acknowledge), "{}", server.name());
        }
        let seen = seen.all();
        assert_eq!((seen.len(), &seen[0]), (2, &seen[1]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_does_not_acknowledge() {
    on_each(|server| async move {
        let topic = server.fresh_key("failing");
        publish(&server, &topic, ["hello"]).await;
        let seen = Seen::default();
        let noted = seen.clone();
        let consumer = start(builder(&server, &topic), move |message: PrefectMessage| {
            let before = noted.add(message);
            async move { if before == 0 { Err("the first attempt") } else { Ok(()) } }
        });
        server.until("two attempts", || async { seen.len() == 2 && server.pending(&topic, "g").await == 0 }).await;
        assert_eq!(seen.texts(), ["hello", "hello"]);
        assert_eq!(consumer.stop().await.stats.acknowledged, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fails_again_and_again_is_called_four_times_and_then_a_dead_letter() {
    on_each(|server| async move {
        let topic = server.fresh_key("dead");
        publish(&server, &topic, ["cannot be handled"]).await;
        let seen = Seen::default();
        let noted = seen.clone();
        let consumer = start(builder(&server, &topic), move |message: PrefectMessage| {
            noted.add(message);
            async { Err::<(), _>("no") }
        });
        let dead = format!("{topic}:dead");
        server.until("the dead letter", || async { server.len(&dead).await == 1 }).await;
        // Not delivered again: what comes later is handled without it.
        publish(&server, &topic, ["another"]).await;
        server.until("the second dead letter", || async { server.len(&dead).await == 2 }).await;
        assert_eq!(seen.texts(), [["cannot be handled"; 4], ["another"; 4]].concat());
        let letter = DeadLetter::from_entry(&server.entries(&dead).await[0]).unwrap();
        assert_eq!((letter.attempts, letter.reason.detail()), (4, Some("no")));
        assert_eq!(letter.entry.get("data"), Some(&b"cannot be handled"[..]));
        assert_eq!(letter.entry.get("attributes"), Some(&br#"{"n":0}"#[..]));
        consumer.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_subscription_receives_what_is_published_after_it_and_leaves_no_group() {
    on_each(|server| async move {
        let topic = server.fresh_key("ephemeral");
        // On a topic that does not exist, and on one that has a past.
        for round in ["first", "second"] {
            let subscription = Consumer::ephemeral_subscription(&server.client(), &topic).await.unwrap();
            publish(&server, &topic, ["new"]).await;
            let (seen, client, key) = (Seen::default(), server.client(), topic.clone());
            let noted = seen.clone();
            let consumer = subscription.block(Duration::from_secs(1)).build().unwrap();
            let shutdown = Shutdown::new();
            let run = consumer.run_with(&shutdown, move |message: PrefectMessage| {
                let before = noted.add(message);
                let (client, key) = (client.clone(), key.clone());
                async move {
                    if before == 1 {
                        return Outcome::stop();
                    }
                    // What is published while a handler runs is not skipped.
                    let publisher = PrefectPublisher::builder(&client).topic(key).build().unwrap();
                    publisher.publish("meanwhile", [("n", 0)]).await.unwrap();
                    Outcome::Done
                }
            });
            tokio::time::timeout(Duration::from_secs(20), run).await.unwrap().unwrap();
            assert_eq!(seen.texts(), ["new", "meanwhile"], "{round} on {}", server.name());
            let groups = server.ask(&format!("XINFO GROUPS {topic}")).await;
            assert!(matches!(groups, stream_redis::Value::Array(groups) if groups.is_empty()), "{}", server.name());
        }
        // An observer trims nothing: Prefect's would have cut what nobody else has read.
        assert_eq!(server.len(&topic).await, 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_keeps_the_order_whatever_its_batch_size() {
    on_each(|server| async move {
        for batch in [1, 5] {
            let topic = server.fresh_key("batch");
            let builder = PrefectPublisher::builder(&server.client()).topic(&topic).batch_size(batch);
            let publisher = builder.publish_every(Duration::from_secs(10)).build().unwrap();
            for n in 0..10 {
                drop(publisher.enqueue(n.to_string(), [("n", n)]).await.unwrap());
            }
            assert!(publisher.publisher().close(Duration::from_secs(20)).await.is_empty());
            let entries = server.entries(&topic).await;
            let texts: Vec<_> = entries.iter().map(|entry| entry.get("data").unwrap().to_vec()).collect();
            assert_eq!(texts, (0..10).map(|n| n.to_string().into_bytes()).collect::<Vec<_>>(), "{}", server.name());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_of_one_group_share_the_work_and_what_they_have_finished_is_trimmed() {
    on_each(|server| async move {
        let topic = server.fresh_key("trimming");
        let seen = [Seen::default(), Seen::default()];
        let run = |seen: &Seen| {
            let seen = seen.clone();
            start(builder(&server, &topic).prefetch(1), move |message: PrefectMessage| {
                seen.add(message);
                stream_testkit::work_for(Duration::from_millis(2))
            })
        };
        let consumers = [run(&seen[0]), run(&seen[1])];
        let (events, more) = (&consumers[0].events, &consumers[1].events);
        server.until("both consumers", || async { events.count("Ready") + more.count("Ready") == 2 }).await;
        publish(&server, &topic, (0..113).map(|n| n.to_string())).await;
        let all = || async { seen[0].len() + seen[1].len() == 113 && server.pending(&topic, "g").await == 0 };
        server.until("113 messages to be handled", all).await;
        assert!(seen.iter().all(|seen| seen.len() > 0), "{}", server.name());
        for consumer in consumers {
            consumer.stop().await;
        }
        let mut trimmer = Trimmer::builder(&server.client()).stream(&topic).build().unwrap();
        let Trimmed::Stream(report) = trimmer.run().await.unwrap() else { panic!("{}", server.name()) };
        assert!(report.removed > 100 && server.len(&topic).await < 113, "{}: {report:?}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_comes_back_as_it_was_published() {
    on_each(|server| async move {
        let topic = server.fresh_key("event");
        let event =
            json!({"occurred": "2026-08-21T00:00:00Z", "event": "a.b", "resource": {"prefect.resource.id": "x.y"}});
        let id = json!("d2f4");
        publisher(&server, &topic)
            .publish(event.to_string(), [("id", id.clone()), ("event", json!("a.b"))])
            .await
            .unwrap();
        let run = run_to_stop(builder(&server, &topic), move |message: PrefectMessage| {
            let found: serde_json::Value = message.json().unwrap();
            let same = found == event && message.attributes["id"] == id && message.attribute("event") == Some("a.b");
            async move { if same { Outcome::stop() } else { Outcome::reject("another event") } }
        });
        let report = run.await;
        assert_eq!((report.stats.acknowledged, report.stats.dead_lettered), (1, 0), "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_batch_only_the_message_that_failed_stays_pending() {
    on_each(|server| async move {
        let topic = server.fresh_key("batch-ack");
        publish(&server, &topic, (0..10).map(|n| if n == 4 { "fail-me".to_owned() } else { n.to_string() })).await;
        let shutdown = Shutdown::new();
        let (stop, client) = (shutdown.clone(), Client::open(&server.url()).unwrap());
        let consumer = Consumer::durable(&client)
            .stream(&topic)
            .group("g")
            .block(Duration::from_secs(1))
            .retry(RetryPolicy::fixed(Duration::from_mins(10)))
            .build()
            .unwrap();
        let run = tokio::spawn(async move {
            consumer
                .run_batches(&shutdown, 10, |messages: Vec<PrefectMessage>| async move {
                    let outcome = |message: &PrefectMessage| match message.text() {
                        Ok("fail-me") => Outcome::retry(),
                        _ => Outcome::Done,
                    };
                    messages.iter().map(outcome).collect::<Vec<_>>()
                })
                .await
        });
        server.until("all but one to be acknowledged", || async { server.pending(&topic, "g").await == 1 }).await;
        let pending = server.pending_entries(&topic, "g").await;
        let entries = server.entries(&topic).await;
        let failed = entries.iter().find(|entry| entry.get("data") == Some(&b"fail-me"[..])).unwrap();
        assert_eq!(pending[0].0, failed.id(), "{}", server.name());
        stop.stop();
        assert_eq!(run.await.unwrap().unwrap().stats.acknowledged, 9, "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_fails_once_costs_no_message() {
    on_each(|server| async move {
        let topic = server.fresh_key("recovers");
        let seen = Seen::default();
        let noted = seen.clone();
        let cut = Arc::new(AtomicBool::new(false));
        let backoff = Duration::from_millis(20);
        let consumer = start(builder(&server, &topic).backoff(backoff, 4 * backoff), move |message: PrefectMessage| {
            noted.add(message);
            async {}
        });
        server.until("the consumer", || async { consumer.events.count("Ready") == 1 }).await;
        for text in ["first", "second"] {
            publish(&server, &topic, [text]).await;
            server.until("the message", || async { seen.texts().last().is_some_and(|last| last == text) }).await;
            if !cut.swap(true, Ordering::Relaxed) {
                server.ask("CLIENT KILL TYPE normal SKIPME yes").await;
            }
        }
        assert_eq!(seen.texts(), ["first", "second"], "{}", server.name());
        consumer.stop().await;
    })
    .await;
}
