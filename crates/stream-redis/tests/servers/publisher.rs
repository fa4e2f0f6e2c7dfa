//! Publishing to real servers, also while they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use stream_core::{BackoffPolicy, EntryId, StreamKey};
use stream_redis::command::{Precision, XLen, XRange, run};
use stream_redis::{
    Client, Connection, Connector, Error, ErrorKind, PublishError, Publisher, PublisherBuilder, Reader, Request,
    ServerError, Value,
};

use crate::support::{Server, servers};

fn key() -> StreamKey {
    StreamKey::new("s").unwrap()
}

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

/// Loses the reply to the first batch of entries, after the server has written it.
#[derive(Debug, Clone)]
struct Lossy {
    inner: Client,
    lost: Arc<AtomicBool>,
}

struct LossyConnection(Arc<dyn Connection>, Arc<AtomicBool>);

#[async_trait]
impl Connector for Lossy {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let connection = self.inner.connector().connect(key).await?;
        Ok(Arc::new(LossyConnection(connection, self.lost.clone())))
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        self.inner.connector().open_reader(key, name).await
    }
}

#[async_trait]
impl Connection for LossyConnection {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let replies = self.0.send(requests).await?;
        if requests.len() > 1 && !self.1.swap(true, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "the reply was lost"));
        }
        Ok(replies)
    }
}

#[tokio::test]
async fn what_was_written_before_the_reply_was_lost_is_there_once_where_the_server_can_tell() {
    for folder in servers() {
        let server = Server::start(&folder, &[]);
        let inner = Client::open(&server.url()).unwrap();
        let client = Client::from_connector(Lossy { inner, lost: Arc::default() });
        let publisher = builder(&client).build().unwrap();
        publish(&publisher, 50).await;
        let expected = if server.name == "redis-8.6" { 50 } else { 100 };
        assert_eq!(length(&client).await, expected, "{}", server.name);
    }
}

#[tokio::test]
async fn publishing_goes_on_after_a_restart() {
    for folder in servers() {
        let mut server = Server::start(&folder, &["--appendonly", "yes", "--appendfsync", "always"]);
        for protocol in ["resp2", "resp3"] {
            let client = Client::open(&format!("{}?protocol={protocol}", server.url())).unwrap();
            let before = length(&client).await;
            let publisher = builder(&client).build().unwrap();
            publish(&publisher, 10).await;
            server.kill();
            let receipts = join_all((0..10).map(|_| publisher.enqueue([("n", "x")]))).await;
            server.restart();
            for receipt in receipts {
                receipt.unwrap().confirmed().await.unwrap();
            }
            assert!(publisher.close(Duration::from_secs(5)).await.is_empty());
            assert_eq!(length(&client).await, before + 20, "{}: {protocol}", server.name);
        }
    }
}

#[tokio::test]
async fn a_full_server_is_waited_for_and_a_wrong_key_is_not() {
    for folder in servers() {
        let server = Server::start(&folder, &[]);
        let client = Client::open(&server.url()).unwrap();
        let admin = client.connector().connect(&key()).await.unwrap();
        let limit = |bytes: &'static str| Request::new("CONFIG SET").arg("maxmemory").arg(bytes);
        admin.call(&limit("1")).await.unwrap();
        let publisher = builder(&client).build().unwrap();
        let receipt = publisher.enqueue([("n", "0")]).await.unwrap();
        // Refused at least once: the server counts that.
        let refusals = async || {
            let stats = admin.call(&Request::new("INFO").arg("errorstats")).await.unwrap();
            String::from_utf8_lossy(stats.as_bytes().unwrap()).contains("errorstat_OOM")
        };
        while !refusals().await {
            tokio::task::yield_now().await;
        }
        assert_eq!(publisher.unconfirmed(), 1);
        admin.call(&limit("0")).await.unwrap();
        receipt.confirmed().await.unwrap();

        admin.call(&Request::new("SET").arg("s").arg("x")).await.unwrap();
        let Err(PublishError::Failed(error)) = publisher.publish([("n", "1")]).await else { panic!("published") };
        assert_eq!(error.kind(), ErrorKind::WrongType, "{}", server.name);
    }
}

#[tokio::test]
async fn entries_keep_their_order_and_the_stream_its_bound() {
    for folder in servers() {
        let server = Server::start(&folder, &[]);
        let client = Client::open(&server.url()).unwrap();
        let publisher = builder(&client).batch(7).max_len(30, Precision::Exact).build().unwrap();
        publish(&publisher, 100).await;
        let connection = client.connector().connect(&key()).await.unwrap();
        let entries = run(&*connection, &XRange { key: key(), from: EntryId::ZERO, to: EntryId::MAX, count: 1000 })
            .await
            .unwrap();
        let numbers: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(entry.get("n").unwrap())).collect();
        let expected: Vec<_> = (70..100).map(|number| number.to_string()).collect();
        assert_eq!(numbers, expected, "{}", server.name);
    }
}
