//! Publishing to real servers, also while they fail.

use std::time::Duration;

use futures_util::future::join_all;
use stream_core::{BackoffPolicy, EntryId};
use stream_redis::command::{Precision, XLen, XRange, run};
use stream_redis::{Capability, Client, ErrorKind, PublishError, Publisher, PublisherBuilder};
use stream_testkit::{AppendFsync, ServerOptions, eventually};

use crate::capability::expected;
use crate::every_server::{connect, key, ok, on_every_server};
use crate::lossy::Lossy;

fn builder(client: &Client) -> PublisherBuilder {
    let backoff = BackoffPolicy::new(Duration::from_millis(1), Duration::from_millis(50)).unwrap();
    Publisher::builder(client).stream("s").backoff(backoff)
}

async fn publish(publisher: &Publisher, entries: u32) {
    for published in join_all((0..entries).map(|number| publisher.publish([("n", number.to_string())]))).await {
        published.unwrap();
    }
}

async fn length(client: &Client) -> u64 {
    let connection = client.connector().connect(&key()).await.unwrap();
    run(&*connection, &XLen { key: key() }).await.unwrap()
}

#[tokio::test]
async fn what_was_written_before_the_reply_was_lost_is_there_once_where_the_server_can_tell() {
    on_every_server(ServerOptions::new(), async |server| {
        let inner = Client::open(&server.url()).unwrap();
        let client = Client::from_connector(Lossy::new(inner, |requests| requests.len() > 1, u32::MAX));
        // One batch, so that what is lost is the reply to all of them.
        let publisher = builder(&client).batch(50).linger(Duration::from_secs(10)).build().unwrap();
        publish(&publisher, 50).await;
        let expected = if expected(&server).has(Capability::Idempotent) { 50 } else { 100 };
        assert_eq!(length(&client).await, expected);
    })
    .await;
}

#[tokio::test]
async fn publishing_goes_on_after_a_restart() {
    on_every_server(ServerOptions::new().aof(AppendFsync::Always), async |mut server| {
        for protocol in ["resp2", "resp3"] {
            let client = Client::open(&format!("{}?protocol={protocol}", server.url())).unwrap();
            let before = length(&client).await;
            let publisher = builder(&client).build().unwrap();
            publish(&publisher, 10).await;
            server.kill9().await.unwrap();
            let receipts = join_all((0..10).map(|_| publisher.enqueue([("n", "x")]))).await;
            server.restart().await.unwrap();
            for receipt in receipts {
                receipt.unwrap().confirmed().await.unwrap();
            }
            assert!(publisher.close(Duration::from_secs(5)).await.is_empty());
            assert_eq!(length(&client).await, before + 20, "{protocol}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_full_server_is_waited_for_and_a_wrong_key_is_not() {
    on_every_server(ServerOptions::new(), async |server| {
        let client = Client::open(&server.url()).unwrap();
        ok(&server, "CONFIG SET maxmemory 1").await;
        let publisher = builder(&client).build().unwrap();
        let receipt = publisher.enqueue([("n", "0")]).await.unwrap();
        // Refused at least once: the server counts that.
        eventually(Duration::from_secs(30), "a refusal", async || {
            let stats = ok(&server, "INFO errorstats").await;
            String::from_utf8_lossy(stats.as_bytes().unwrap()).contains("errorstat_OOM").then_some(())
        })
        .await;
        assert_eq!(publisher.unconfirmed(), 1);
        ok(&server, "CONFIG SET maxmemory 0").await;
        receipt.confirmed().await.unwrap();

        ok(&server, "SET s x").await;
        let Err(PublishError::Failed(error)) = publisher.publish([("n", "1")]).await else { panic!("published") };
        assert_eq!(error.kind(), ErrorKind::WrongType);
    })
    .await;
}

#[tokio::test]
async fn entries_keep_their_order_and_the_stream_its_bound() {
    on_every_server(ServerOptions::new(), async |server| {
        let client = Client::open(&server.url()).unwrap();
        let publisher = builder(&client).batch(7).max_len(30, Precision::Exact).build().unwrap();
        let mut receipts = Vec::new();
        for number in 0..100 {
            receipts.push(publisher.enqueue([("n", number.to_string())]).await.unwrap());
        }
        for receipt in receipts {
            receipt.confirmed().await.unwrap();
        }
        let connection = connect(&server.url()).await;
        let entries = run(&*connection, &XRange { key: key(), from: EntryId::ZERO, to: EntryId::MAX, count: 1000 })
            .await
            .unwrap();
        let numbers: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(entry.get("n").unwrap())).collect();
        let expected: Vec<_> = (70..100).map(|number| number.to_string()).collect();
        assert_eq!(numbers, expected);
    })
    .await;
}
