//! Dead letters: first written, then acknowledged, whatever is cut or refused between the two.

use std::time::Duration;

use stream_testkit::proxy::{Moment, Proxy};
use stream_testkit::{RealServer, ServerOptions};
use streamkeeper::{Client, Consumer, Context, Data, DeadLetter, Fields, Json, Outcome, RetryPolicy};
use streamkeeper_tests::{Ask, Journal, Running, on_each, on_each_own, start};

use super::{builder, settled};

/// A consumer that rejects the entry with the payload `3`.
fn rejecting(builder: streamkeeper::DurableBuilder, journal: &Journal) -> Running {
    let seen = journal.clone();
    let builder = builder.backoff(Duration::from_millis(20), Duration::from_millis(200));
    start(builder, move |Data(data): Data, cx: Context| {
        seen.begin(&cx).end();
        async move { if data == "3" { Outcome::reject("three") } else { Outcome::Done } }
    })
}

/// The letters of a stream.
async fn letters(server: &RealServer, key: &str) -> Vec<DeadLetter> {
    server.entries(key).await.iter().map(|entry| DeadLetter::from_entry(entry).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_a_connection_cut_around_a_dead_letter_leaves_exactly_one_in_one_step() {
    on_each(|server| async move {
        let name = server.name().to_owned();
        for moment in [Moment::BeforeRequest, Moment::BeforeReply] {
            let key = server.fresh_key("b24");
            let dead = format!("{key}:dead");
            let ids = server.publish(&key, 10).await;
            let proxy = Proxy::start(server.address()).await.unwrap();
            // The name of their stream is in the one request that writes dead letters.
            proxy.cut_at(dead.as_str(), moment);
            let journal = Journal::default();
            let client = Client::open(&proxy.url()).unwrap();
            let running = rejecting(Consumer::durable(&client).stream(&key).group("g"), &journal);
            server
                .until("the dead letter", || async {
                    server.len(&dead).await >= 1 && server.pending(&key, "g").await == 0
                })
                .await;
            settled(&server, &key, &journal, 10).await;
            running.stop().await;
            assert_eq!(proxy.cuts(), 1, "{name}");
            let letters = letters(&server, &dead).await;
            assert_eq!(letters.len(), 1, "{name}: {moment:?}");
            assert_eq!((letters[0].entry.id(), letters[0].attempts), (ids[3], 1), "{name}: {moment:?}");
            assert_eq!(letters[0].stream.as_bytes(), key.as_bytes(), "{name}");
            assert_eq!((letters[0].group.as_bytes(), letters[0].reason.detail()), (&b"g"[..], Some("three")), "{name}");
            assert_eq!(journal.starts(), 10, "{name}: {moment:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_without_scripts_a_cut_between_the_two_steps_leaves_a_duplicate_and_never_a_loss() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("ACL SETUSER plain on >word ~* +@all -eval -evalsha").await;
        for (word, moment, most) in [("XADD", Moment::BeforeRequest, 1), ("XADD", Moment::BeforeReply, 2)] {
            let key = server.fresh_key("b24");
            let dead = format!("{key}:dead");
            let ids = server.publish(&key, 10).await;
            let proxy = Proxy::start(server.address()).await.unwrap();
            proxy.cut_at(word, moment);
            let journal = Journal::default();
            let client = Client::open(&proxy.url().replace("redis://", "redis://plain:word@")).unwrap();
            let running = rejecting(Consumer::durable(&client).stream(&key).group("g"), &journal);
            server
                .until("the dead letter", || async {
                    server.len(&dead).await >= 1 && server.pending(&key, "g").await == 0
                })
                .await;
            running.stop().await;
            assert_eq!(proxy.cuts(), 1, "{name}");
            let letters = letters(&server, &dead).await;
            assert!((1..=most).contains(&letters.len()), "{name}: {moment:?}: {}", letters.len());
            assert!(letters.iter().all(|letter| letter.entry.id() == ids[3]), "{name}: a replay can tell duplicates");
            assert_eq!(journal.finished(), 10, "{name}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_dead_letter_that_cannot_be_written_leaves_its_entry_pending_and_the_others_flow() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b25"), server.name().to_owned());
        let dead = format!("{key}:dead");
        server.ask(&format!("SET {dead} text")).await;
        let ids = server.publish(&key, 100).await;
        let journal = Journal::default();
        let running = rejecting(builder(&server, &key), &journal);
        server.until("the others to be done", || async { server.pending(&key, "g").await == 1 }).await;
        server.until("it to be tried again", || async { running.events.count("DeadLetterFailed") >= 3 }).await;
        assert_eq!(server.pending_entries(&key, "g").await[0].0, ids[3], "{name}");
        assert_eq!(journal.finished(), 100, "{name}");
        server.ask(&format!("DEL {dead}")).await;
        server.until("the dead letter", || async { server.pending(&key, "g").await == 0 }).await;
        running.stop().await;
        assert_eq!(letters(&server, &dead).await[0].entry.id(), ids[3], "{name}");
        assert_eq!(journal.starts(), 100, "{name}: the handler has nothing to do with it");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_server_without_memory_is_read_and_acknowledged_and_gets_its_dead_letters_later() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("XGROUP CREATE orders g 0 MKSTREAM").await;
        server.publish("orders", 10).await;
        server.ask("CONFIG SET maxmemory 1").await;
        // Also one that starts now: the group is there, and reading is what makes room.
        let journal = Journal::default();
        let running = rejecting(builder(&server, "orders"), &journal);
        server.until("the others to be done", || async { server.pending("orders", "g").await == 1 }).await;
        server.until("it to be tried again", || async { running.events.count("DeadLetterFailed") >= 2 }).await;
        assert_eq!(journal.finished(), 10, "{name}");
        server.ask("CONFIG SET maxmemory 0").await;
        server.until("the dead letter", || async { server.pending("orders", "g").await == 0 }).await;
        assert_eq!(server.len("orders:dead").await, 1, "{name}");
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b31_what_cannot_be_decoded_is_a_dead_letter_with_its_raw_bytes_and_the_next_goes_on() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b31"), server.name().to_owned());
        let dead = format!("{key}:dead");
        let mut cli = server.connect().await.unwrap();
        let add = |fields: &[&[u8]]| {
            let mut command: Vec<Vec<u8>> = vec![b"XADD".to_vec(), key.clone().into_bytes(), b"*".to_vec()];
            command.extend(fields.iter().map(|field| field.to_vec()));
            command
        };
        let invalid: &[u8] = b"\"\xff\xfe\x00\r\n\"";
        for entry in [
            add(&[b"data", b"1"]),
            add(&[b"data", invalid]),
            add(&[b"a", b"1", b"b", b"2"]),
            add(&[b"data", b"{"]),
            add(&[b"data", b"2"]),
        ] {
            cli.command(&entry).await.unwrap();
        }
        let journal = Journal::default();
        let seen = journal.clone();
        let one = builder(&server, &key).concurrency(1).retry(RetryPolicy::immediate());
        let running = start(one, move |Json(_): Json<u32>, cx: Context| {
            seen.begin(&cx).end();
            async {}
        });
        settled(&server, &key, &journal, 2).await;
        let report = running.stop().await;
        assert_eq!((report.stats.dead_lettered, report.stats.retried), (3, 0), "{name}");
        let letters = letters(&server, &dead).await;
        assert_eq!(letters.len(), 3, "{name}");
        assert!(letters.iter().all(|letter| letter.reason.as_str() == "undecodable"), "{name}");
        assert_eq!(letters[0].entry.get("data"), Some(invalid), "{name}");
        let names: Vec<&[u8]> = letters[1].entry.fields().map(|(field, _)| field).collect();
        assert_eq!(names, [b"a", b"b"], "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b58_fields_keep_their_order_their_duplicates_and_their_emptiness_to_the_dead_letter() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b58"), server.name().to_owned());
        let dead = format!("{key}:dead");
        let fields: [(&[u8], &[u8]); 7] = [
            (b"z", b"1"),
            (b"a", b"2"),
            (b"a", b"3"),
            (b"", b""),
            (b"streamkeeper", b"9"),
            (b"reason", b"mine"),
            (b"\xff\x00", b"\r\n"),
        ];
        let mut command: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), b"*"];
        command.extend(fields.iter().flat_map(|(field, value)| [*field, *value]));
        server.cli(&command).await.unwrap();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let running = start(builder(&server, &key), move |Fields(fields): Fields| {
            tell.send(fields).unwrap();
            async { Outcome::reject("seen") }
        });
        let given = told.recv().await.unwrap();
        let given: Vec<(&[u8], &[u8])> = given.iter().map(|(field, value)| (&field[..], &value[..])).collect();
        assert_eq!(given, fields, "{name}");
        server.until("the dead letter", || async { server.len(&dead).await == 1 }).await;
        running.stop().await;
        let letter = &letters(&server, &dead).await[0];
        assert_eq!(letter.entry.fields().collect::<Vec<_>>(), fields, "{name}");
    })
    .await;
}
