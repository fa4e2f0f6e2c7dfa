//! Publishing once on real servers: the marker and the entry are one step, whatever happens around it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use stream_core::{BackoffPolicy, Entry, EntryId};
use stream_redis::command::{Script, XRange, run};
use stream_redis::{Client, ErrorKind, PrefectPublisher, PrefectPublisherBuilder, PublishError, Value};
use stream_testkit::{AppendFsync, RealServer, ServerOptions, eventually};

use crate::every_server::{connect, key, ok, on_every_server};
use crate::lossy::Lossy;

fn builder(client: &Client) -> PrefectPublisherBuilder {
    let backoff = BackoffPolicy::new(Duration::from_millis(1), Duration::from_millis(50)).unwrap();
    PrefectPublisher::builder(client).topic("s").deduplicate_by("id").backoff(backoff)
}

async fn entries(server: &RealServer) -> Vec<Entry> {
    let connection = connect(&server.url()).await;
    let range = XRange { key: key(), from: EntryId::ZERO, to: EntryId::MAX, count: 10_000 };
    run(&*connection, &range).await.unwrap()
}

async fn payloads(server: &RealServer) -> Vec<String> {
    let text = |entry: &Entry| String::from_utf8(entry.get("data").unwrap().to_vec()).unwrap();
    entries(server).await.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_messages_of_one_publisher_and_of_eight_tasks_are_all_there_once() {
    on_every_server(ServerOptions::new(), async |server| {
        // Prefect's publisher with these settings loses some: it clears what was appended while it asked for duplicates.
        let client = Client::open(&server.url()).unwrap();
        let publisher = Arc::new(builder(&client).publish_every(Duration::from_millis(1)).build().unwrap());
        let task = |task: usize| {
            let publisher = Arc::clone(&publisher);
            async move {
                for number in (task..2_000).step_by(8) {
                    let id = publisher.publish(number.to_string(), [("id", number.to_string())]).await.unwrap();
                    assert!(id.is_some());
                }
            }
        };
        join_all((0..8).map(task)).await;
        let numbers: BTreeSet<usize> = payloads(&server).await.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!((numbers.len(), entries(&server).await.len()), (2_000, 2_000), "{}", server.name());

        // Again, at the same time, by a publisher that knows nothing of the first.
        let other = builder(&client).build().unwrap();
        let again = join_all((0..2_000).map(|n: usize| other.publish("again", [("id", n.to_string())]))).await;
        assert!(again.iter().all(|published| matches!(published, Ok(None))), "{}", server.name());
        assert_eq!(entries(&server).await.len(), 2_000, "{}", server.name());
    })
    .await;
}

#[tokio::test]
async fn of_two_messages_of_one_value_the_first_is_published_and_order_is_kept() {
    on_every_server(ServerOptions::new(), async |server| {
        let client = Client::open(&server.url()).unwrap();
        let publisher = builder(&client).publish_every(Duration::from_secs(10)).build().unwrap();
        let receipts = [("a", "1"), ("b", "2"), ("other", "3"), ("c", "1"), ("d", "4")].map(|(data, id)| {
            let name = if data == "other" { "no-id" } else { "id" };
            publisher.enqueue(data, [(name, id)])
        });
        let mut told = Vec::new();
        for receipt in join_all(receipts).await {
            told.push(receipt.unwrap().confirmed().await);
        }
        assert!(matches!(told[3], Err(PublishError::Duplicate)), "{told:?}");
        assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 4);
        assert_eq!(payloads(&server).await, ["a", "b", "other", "d"], "{}", server.name());
        let left = ok(&server, "PTTL message:messaging-cache:1").await.as_int().unwrap();
        assert!((200_000..=300_000).contains(&left), "{}: {left}", server.name());

        // Prefect's own marker counts, and when a marker is gone the value may come again.
        ok(&server, "SET message:messaging-cache:prefect 1 NX EX 300").await;
        assert_eq!(publisher.publish("x", [("id", "prefect")]).await.unwrap(), None);
        ok(&server, "DEL message:messaging-cache:1").await;
        assert!(publisher.publish("e", [("id", "1")]).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_key_of_another_type_and_a_forgotten_script_cost_nothing() {
    on_every_server(ServerOptions::new(), async |server| {
        let client = Client::open(&server.url()).unwrap();
        let publisher = builder(&client).build().unwrap();
        publisher.publish("0", [("id", "0")]).await.unwrap();
        ok(&server, "SCRIPT FLUSH").await;
        assert!(publisher.publish("1", [("id", "1")]).await.unwrap().is_some());

        // An append that fails in the middle of a batch: the error is told, its marker is taken back.
        ok(&server, "RENAME s kept").await;
        ok(&server, "SET s x").await;
        let Err(PublishError::Failed(error)) = publisher.publish("2", [("id", "2")]).await else { panic!("published") };
        assert_eq!(error.kind(), ErrorKind::WrongType, "{}", server.name());
        assert_eq!(ok(&server, "EXISTS message:messaging-cache:2").await.as_int(), Some(0));
        ok(&server, "RENAME kept s").await;
        assert!(publisher.publish("2", [("id", "2")]).await.unwrap().is_some());
        assert_eq!(payloads(&server).await, ["0", "1", "2"], "{}", server.name());
    })
    .await;
}

#[tokio::test]
async fn a_message_that_fails_in_the_middle_of_a_batch_is_told_and_the_others_are_there_once() {
    on_every_server(ServerOptions::new(), async |server| {
        let client = Client::open(&server.url()).unwrap();
        let publisher = builder(&client).batch_size(5).publish_every(Duration::from_secs(10)).build().unwrap();
        // Where the third one's marker belongs is something else.
        ok(&server, "LPUSH message:messaging-cache:2 x").await;
        let receipts = join_all((0..5).map(|n| publisher.enqueue(n.to_string(), [("id", n.to_string())]))).await;
        let mut told = Vec::new();
        for receipt in receipts {
            told.push(receipt.unwrap().confirmed().await);
        }
        let Err(PublishError::Failed(error)) = &told[2] else { panic!("{}: {told:?}", server.name()) };
        assert_eq!(error.kind(), ErrorKind::WrongType, "{}", server.name());
        assert_eq!(told.iter().filter(|told| told.is_ok()).count(), 4, "{}: {told:?}", server.name());
        assert_eq!(payloads(&server).await, ["0", "1", "3", "4"], "{}", server.name());

        // All of them again, as whoever sees an error does: what was written is not written twice.
        ok(&server, "DEL message:messaging-cache:2").await;
        let again = join_all((0..5).map(|n| publisher.publish(n.to_string(), [("id", n.to_string())]))).await;
        let published: Vec<_> = again.iter().map(|again| again.as_ref().unwrap().is_some()).collect();
        assert_eq!(published, [false, false, true, false, false], "{}", server.name());
        assert_eq!(payloads(&server).await, ["0", "1", "3", "4", "2"], "{}", server.name());
    })
    .await;
}

#[tokio::test]
async fn a_server_without_memory_and_one_that_dies_lose_and_double_nothing() {
    on_every_server(ServerOptions::new().aof(AppendFsync::Always), async |mut server| {
        let client = Client::open(&server.url()).unwrap();
        let publisher = builder(&client).batch_size(10).build().unwrap();
        publisher.publish("0", [("id", "0")]).await.unwrap();
        ok(&server, "CONFIG SET maxmemory 1").await;
        let receipts = join_all((1..20).map(|n| publisher.enqueue(n.to_string(), [("id", n.to_string())]))).await;
        // Refused and tried again: 6.2 does not count refusals inside of scripts, but it counts calls.
        eventually(Duration::from_secs(30), "refusals", async || {
            let stats = ok(&server, "INFO commandstats").await;
            let stats = String::from_utf8_lossy(stats.as_bytes().unwrap()).into_owned();
            let calls = stats.split("cmdstat_evalsha:calls=").nth(1)?.split(',').next()?.parse::<u32>().ok()?;
            (calls > 25).then_some(())
        })
        .await;
        assert_eq!(publisher.publisher().unconfirmed(), 19);
        server.kill9().await.unwrap();
        // The restarted server has memory again.
        server.restart().await.unwrap();
        for receipt in receipts {
            receipt.unwrap().confirmed().await.unwrap();
        }
        let mut numbers: Vec<u32> = payloads(&server).await.iter().map(|text| text.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "{}", server.name());
    })
    .await;
}

#[tokio::test]
async fn what_was_written_before_the_reply_was_lost_is_there_once_and_told_as_published() {
    on_every_server(ServerOptions::new(), async |server| {
        let inner = Client::open(&server.url()).unwrap();
        let lossy = Lossy::new(inner, |requests| requests.iter().any(|request| request.command() == "EVALSHA"), 3);
        let client = Client::from_connector(lossy.clone());
        let publisher = builder(&client).build().unwrap();
        let published =
            join_all((0..200).map(|n: u32| publisher.publish(n.to_string(), [("id", n.to_string())]))).await;
        let ids: BTreeSet<EntryId> = published.into_iter().map(|id| id.unwrap().expect("it is no duplicate")).collect();
        let written: BTreeSet<EntryId> = entries(&server).await.iter().map(Entry::id).collect();
        assert_eq!((ids.len(), written.len()), (200, 200), "{}", server.name());
        assert_eq!(ids, written, "{}", server.name());
        assert!(lossy.lost() > 10, "{}", lossy.lost());
    })
    .await;
}

#[tokio::test]
async fn without_the_permission_for_scripts_the_reason_is_told() {
    on_every_server(ServerOptions::new(), async |server| {
        ok(&server, "ACL SETUSER limited on >pw ~* +@all -@scripting").await;
        let client = Client::open(&format!("redis://limited:pw@{}", server.address())).unwrap();
        let publisher = builder(&client).build().unwrap();
        let Err(PublishError::Failed(error)) = publisher.publish("0", [("id", "0")]).await else { panic!("published") };
        assert_eq!(error.kind(), ErrorKind::NoPermission, "{}: {error}", server.name());
        assert!(publisher.publish("0", [("none", "0")]).await.unwrap().is_some(), "{}", server.name());
    })
    .await;
}

#[tokio::test]
async fn the_in_memory_server_does_what_the_script_does() {
    let sha = Script::publish_once().sha();
    let call = |asker: &str, seconds: &str| format!("EVALSHA {sha} 2 s m {seconds} {asker} * a 1");
    let steps = [
        format!("EVALSHA {sha} 2 s m 300 me 5-0 a 1"),
        call("me", "300"),
        call("you", "300"),
        "SET m 1 EX 300".to_owned(),
        call("me", "300"),
        "DEL m".to_owned(),
        call("me", "x"),
        "DEL s".to_owned(),
        "SET s x".to_owned(),
        call("me", "300"),
        "GET m".to_owned(),
    ];
    let shown = |reply: Result<Value, String>| match reply {
        Ok(value) => format!("{value:?}"),
        // Where in the script it happened is the server's own way of saying it.
        Err(error) => error.split("script: ").next().unwrap_or_default().split(' ').take(1).collect(),
    };
    let memory = stream_testkit::MemoryServer::new();
    memory.command(["SCRIPT", "LOAD", Script::publish_once().source()]).unwrap();
    let words = |step: &str| step.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let modelled: Vec<String> =
        steps.iter().map(|step| shown(memory.command(words(step)).map_err(|error| error.to_string()))).collect();
    on_every_server(ServerOptions::new(), async |server| {
        server.cli(&["SCRIPT", "LOAD", Script::publish_once().source()]).await.unwrap();
        for (step, modelled) in steps.iter().zip(&modelled) {
            let parts = words(step);
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            let real = server
                .cli(&parts)
                .await
                .map_err(|error| error.reply().map_or_else(|| error.to_string(), ToString::to_string));
            assert_eq!(&shown(real), modelled, "{}: {step}", server.name());
        }
    })
    .await;
}
