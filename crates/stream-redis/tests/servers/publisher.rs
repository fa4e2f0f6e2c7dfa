//! Publishing to real servers, also while they fail.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use stream_core::{BackoffPolicy, EntryId};
use stream_redis::command::{Precision, XLen, XRange, run};
use stream_redis::{Capability, Client, ErrorKind, PublishError, Publisher, PublisherBuilder};
use stream_testkit::proxy::{Mode, Proxy};
use stream_testkit::{AppendFsync, RealServer, ServerOptions, eventually};

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

/// The numbers of the entries, in the order of the stream.
async fn numbers(server: &RealServer) -> Vec<u32> {
    let connection = connect(&server.url()).await;
    let range = XRange { key: key(), from: EntryId::ZERO, to: EntryId::MAX, count: 100_000 };
    let entries = run(&*connection, &range).await.unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(entry.get("n").unwrap()).parse().unwrap()).collect()
}

/// All of `entries` numbers are there, each for the first time after those before it, and once where the server can tell.
fn assert_complete(server: &RealServer, numbers: &[u32], entries: u32) {
    let mut seen = BTreeSet::new();
    let firsts: Vec<u32> = numbers.iter().copied().filter(|number| seen.insert(*number)).collect();
    assert!(firsts.iter().copied().eq(0..entries), "{}: {firsts:?}", server.name());
    if expected(server).has(Capability::Idempotent) {
        assert_eq!(numbers.len(), entries as usize, "{}", server.name());
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
async fn several_batches_whose_replies_were_lost_are_written_again_in_order() {
    on_every_server(ServerOptions::new(), async |server| {
        let proxy = Proxy::start(server.address()).await.unwrap();
        let client = Client::open(&proxy.url()).unwrap();
        let publisher = builder(&client).batch(50).build().unwrap();
        publish(&publisher, 1).await;
        // All that is under way at a time reaches the server, and no answer comes back.
        proxy.set(Mode::StallReplies);
        let mut receipts = Vec::new();
        for number in 1..1_000 {
            receipts.push(publisher.enqueue([("n", number.to_string())]).await.unwrap());
        }
        let direct = Client::open(&server.url()).unwrap();
        eventually(Duration::from_secs(30), "several batches at the server", async || {
            // The first batch may be a small one.
            (length(&direct).await > 1 + 3 * 50).then_some(())
        })
        .await;
        assert_eq!(publisher.unconfirmed(), 999);
        proxy.cut();
        proxy.set(Mode::Forward);
        for receipt in receipts {
            receipt.confirmed().await.unwrap();
        }
        assert_complete(&server, &numbers(&server).await, 1_000);
        let left = publisher.close(Duration::from_secs(5)).await;
        assert!(left.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_the_order_holds_wherever_the_connection_is_cut() {
    on_every_server(ServerOptions::new(), async |server| {
        const ENTRIES: u32 = 10_000;
        let proxy = Proxy::start(server.address()).await.unwrap();
        // So that there is always something under way.
        proxy.set(Mode::Delay(Duration::from_millis(1)));
        let client = Client::open(&proxy.url()).unwrap();
        let publisher = builder(&client).batch(60).build().unwrap();
        let direct = connect(&server.url()).await;
        let cutting = async {
            let mut before = 0;
            for _ in 0..20 {
                // Between two cuts some entries get through, so that it comes to an end.
                before = eventually(Duration::from_secs(60), "more entries over a new connection", async || {
                    let now = run(&*direct, &XLen { key: key() }).await.unwrap();
                    (now >= u64::from(ENTRIES) || (proxy.open() > 0 && now > before)).then_some(now)
                })
                .await;
                let connections = proxy.accepted();
                proxy.cut();
                let gone = async || (proxy.open() == 0 || proxy.accepted() > connections).then_some(());
                eventually(Duration::from_secs(60), "the cut", gone).await;
            }
        };
        let publishing = async {
            let mut receipts = Vec::new();
            for number in 0..ENTRIES {
                receipts.push(publisher.enqueue([("n", number.to_string())]).await.unwrap());
            }
            for receipt in receipts {
                receipt.confirmed().await.unwrap();
            }
        };
        tokio::join!(cutting, publishing);
        assert!(proxy.accepted() > 3, "{}: it was cut on the way", server.name());
        assert_complete(&server, &numbers(&server).await, ENTRIES);
    })
    .await;
}

#[tokio::test]
async fn a_close_with_several_batches_under_way_hands_back_what_may_be_written() {
    on_every_server(ServerOptions::new(), async |server| {
        let proxy = Proxy::start(server.address()).await.unwrap();
        let publisher = builder(&Client::open(&proxy.url()).unwrap()).batch(10).build().unwrap();
        publish(&publisher, 1).await;
        proxy.set(Mode::StallReplies);
        for number in 1..101 {
            drop(publisher.enqueue([("n", number.to_string())]).await.unwrap());
        }
        let direct = Client::open(&server.url()).unwrap();
        eventually(Duration::from_secs(30), "several batches at the server", async || {
            (length(&direct).await > 1 + 3 * 10).then_some(())
        })
        .await;
        let left = publisher.close(Duration::ZERO).await;
        assert_eq!(left.len(), 100);
        let maybe = left.iter().take_while(|left| left.maybe_written).count();
        assert!(left[maybe..].iter().all(|left| !left.maybe_written), "{maybe}");
        eventually(Duration::from_secs(30), "all of them, and no more", async || {
            (length(&direct).await == 1 + maybe as u64).then_some(())
        })
        .await;
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
