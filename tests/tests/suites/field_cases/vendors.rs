//! Servers that lack something, and streams of several that cannot be read.

use std::time::Duration;

use stream_testkit::ServerOptions;
use streamkeeper::{Client, Consumer, Context, DeadLetter, RetryPolicy, StreamKey};
use streamkeeper_tests::{Ask, Journal, on_each, on_each_own, start};

use super::{builder, settled, taking};

#[tokio::test(flavor = "multi_thread")]
async fn b68_a_server_without_xautoclaim_is_consumed_from_and_what_that_costs_is_said_once() {
    let without = ServerOptions::new().args(["--rename-command", "XAUTOCLAIM", "XAUTOCLAIM-IS-NOT-THERE"]);
    on_each_own(without, |server| async move {
        let name = server.name().to_owned();
        let journal = Journal::default();
        let running = taking(builder(&server, "s").claim_every(Duration::from_millis(100)), &journal, Duration::ZERO);
        server.publish("s", 50).await;
        settled(&server, "s", &journal, 50).await;
        server.until("it to be said", || async { running.events.count("Degraded") >= 1 }).await;
        server.publish("s", 50).await;
        settled(&server, "s", &journal, 100).await;
        let told = running.events.named("Degraded");
        assert!(told.len() == 1 && told[0].text.contains("are not taken over"), "{name}: {told:?}");
        assert_eq!(running.events.count("Reconnecting"), 0, "{name}");
        running.stop().await;
        assert_eq!(journal.starts(), 100, "{name}");
    })
    .await;
}

/// What the server has counted is 0 whenever somebody looks: each start sets it back.
#[tokio::test(flavor = "multi_thread")]
async fn b68_attempts_are_counted_although_the_servers_count_stays_at_zero() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b68"), server.name().to_owned());
        let (dead, ids) = (format!("{key}:dead"), server.publish(&key, 5).await);
        let (journal, own) = (Journal::default(), server.client());
        let (seen, set_back) = (journal.clone(), key.clone());
        let retry = RetryPolicy::fixed(Duration::from_millis(50)).max_attempts(4);
        let failing = builder(&server, &key).consumer("c").retry(retry).dead_letter(&dead);
        let running = start(failing, move |cx: Context| {
            seen.begin(&cx).end();
            let (client, key) = (own.clone(), StreamKey::new(&set_back).unwrap());
            async move {
                let connection = client.connector().connect(&key).await.unwrap();
                let id = cx.id().to_string();
                let zero = ["g", "c", "0", &id, "RETRYCOUNT", "0", "JUSTID"];
                let zero = zero.iter().fold(stream_redis::Request::new("XCLAIM").key(&key), stream_redis::Request::arg);
                connection.send(&[zero]).await.unwrap().pop().unwrap().unwrap();
                Err::<(), _>("always")
            }
        });
        server
            .until("all to be buried", || async {
                server.len(&dead).await == 5 && server.pending(&key, "g").await == 0
            })
            .await;
        running.stop().await;
        assert!(
            journal.attempts().values().all(|attempts| *attempts == [1, 2, 3, 4]),
            "{name}: {:?}",
            journal.attempts()
        );
        let letters = server.entries(&dead).await;
        let letters: Vec<_> = letters.iter().map(|letter| DeadLetter::from_entry(letter).unwrap()).collect();
        let mut buried: Vec<_> = letters.iter().map(|letter| (letter.entry.id(), letter.attempts)).collect();
        buried.sort_unstable();
        assert_eq!(buried, ids.iter().map(|id| (*id, 4)).collect::<Vec<_>>(), "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b52_one_bad_stream_of_a_group_is_named_and_does_not_stop_the_others() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("SET bad x").await;
        server.ask("ACL SETUSER some on >word +@all ~s ~bad ~missing").await;
        let journal = Journal::default();
        let client = Client::open(&server.url().replace("redis://", "redis://some:word@")).unwrap();
        let several = Consumer::durable(&client).stream("s").group("g").block(Duration::from_secs(1));
        let several = several
            .stream("bad")
            .stream("missing")
            .stream("hidden")
            .backoff(Duration::from_millis(50), Duration::from_millis(500));
        let running = taking(several, &journal, Duration::ZERO);
        server.publish("s", 50).await;
        settled(&server, "s", &journal, 50).await;
        // A group is made where there is no stream.
        server.publish("missing", 50).await;
        settled(&server, "missing", &journal, 100).await;
        for (stream, code) in [("bad", "WRONGTYPE"), ("hidden", "NOPERM")] {
            server
                .until(&format!("{stream} to be told"), || async {
                    let told = running.events.named("StreamFailed");
                    told.iter().any(|told| told.text.contains(code) && told.text.contains(&format!("{stream:?}")))
                })
                .await;
        }
        server.ask("DEL bad").await;
        server.publish("bad", 5).await;
        settled(&server, "bad", &journal, 105).await;
        server.ask("ACL SETUSER some ~hidden").await;
        server.publish("hidden", 5).await;
        settled(&server, "hidden", &journal, 110).await;
        running.stop().await;
        assert_eq!(journal.starts(), 110, "{name}");
    })
    .await;
}
