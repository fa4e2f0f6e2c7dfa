//! `FastStream` on the other side.

use std::time::Duration;

use stream_testkit::{RealServer, work_for};
use streamkeeper::{
    Client, DurableBuilder, FastStream, FastStreamFormat, FastStreamMessage, FastStreamPublisher, Precision, Publisher,
};
use streamkeeper_tests::{Ask, Peer, Running, start};

use super::{Handled, Line, assert_same, builder, lines, numbers, server};

fn peer(server: &RealServer, args: &[&str]) -> Peer {
    Peer::start("faststream_peer.py", &server.url(), args)
}

/// Starts a consumer that writes down what it handles, each for `time`.
fn handling(builder: DurableBuilder, handled: &Handled, time: Duration) -> Running {
    let handled = handled.clone();
    start(builder, move |message: FastStream<streamkeeper::Data>| {
        let handled = handled.clone();
        async move {
            if !time.is_zero() {
                work_for(time).await;
            }
            assert_eq!(message.headers.get("correlation_id"), Some(&message.correlation_id));
            assert_eq!(message.headers.get("content-type"), message.content_type.as_ref());
            assert_eq!(message.headers.get("reply_to"), message.reply_to.as_ref());
            let headers = message.headers.into_iter().map(|(name, value)| (name, value.into()));
            handled.add(Line::new(&message.body.0, headers));
        }
    })
}

/// Publishes messages of every shape; returns them.
async fn publish(client: &Client, key: &str, count: u32, format: FastStreamFormat) -> Vec<Line> {
    let publisher = Publisher::builder(client).stream(key).build().unwrap();
    let publisher = FastStreamPublisher::new(publisher).format(format);
    let mut lines = Vec::new();
    for n in 0..count {
        let binary = format == FastStreamFormat::Binary;
        let all_bytes: Vec<u8> = (0..=255).chain(n.to_be_bytes()).collect();
        let (message, body, mime) = match n % 5 {
            _ if n == 7 => (FastStreamMessage::text("x".repeat(1 << 20)), vec![b'x'; 1 << 20], "text/plain"),
            0 => (FastStreamMessage::text(format!("text {n}")), format!("text {n}").into(), "text/plain"),
            1 => (FastStreamMessage::json(&[n]).unwrap(), format!("[{n}]").into(), "application/json"),
            2 => (FastStreamMessage::text("größe → 漢字 🦀"), "größe → 漢字 🦀".into(), "text/plain"),
            3 => (FastStreamMessage::text(""), Vec::new(), "text/plain"),
            _ if binary => (FastStreamMessage::bytes(all_bytes.clone()), all_bytes, ""),
            _ => (FastStreamMessage::bytes("no bytes"), "no bytes".into(), ""),
        };
        let message = message.correlation_id(format!("c-{n}")).header("n", n.to_string()).header("ünïcode", "größe →");
        let message = if n % 2 == 1 { message.reply_to("answers") } else { message };
        let headers = [
            Some(("correlation_id", format!("c-{n}"))),
            (!mime.is_empty()).then(|| ("content-type", mime.to_owned())),
            (n % 2 == 1).then(|| ("reply_to", "answers".to_owned())),
            Some(("n", n.to_string())),
            Some(("ünïcode", "größe →".to_owned())),
        ];
        let headers = headers.into_iter().flatten().map(|(name, value)| (name.to_owned(), value.into()));
        lines.push(Line::new(&body, headers));
        drop(publisher.enqueue(message).await.unwrap());
    }
    assert!(publisher.publisher().close(Duration::from_secs(30)).await.is_empty());
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn what_faststream_publishes_is_handled_byte_for_byte() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    for format in ["binary", "json"] {
        let key = server.fresh_key("faststream");
        let published = folder.path().join(format);
        let handled = Handled::default();
        let consumer = handling(builder(&server, &key).concurrency(1), &handled, Duration::ZERO);
        peer(&server, &["publish", &key, published.to_str().unwrap(), "1000", format]).done().await;
        server.until("1000 messages to be handled", || async { handled.len() >= 1000 }).await;
        assert_same(&handled.lines(), &lines(&published));
        assert_eq!(consumer.stop().await.stats.acknowledged, 1000, "{format}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_publish_is_handled_by_faststream() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    for format in [FastStreamFormat::Binary, FastStreamFormat::Json] {
        let key = server.fresh_key("faststream");
        let handled = folder.path().join(format!("{format:?}"));
        let published = publish(&server.client(), &key, 1000, format).await;
        peer(&server, &["consume", &key, "g", "theirs", handled.to_str().unwrap(), "1000"]).done().await;
        assert_same(&lines(&handled), &published);
        assert_eq!(server.pending(&key, "g").await, 0, "{format:?}");
    }
    let key = server.fresh_key("bounded");
    let publisher = Publisher::builder(&server.client()).stream(&key).max_len(10, Precision::Exact).build();
    let publisher = FastStreamPublisher::new(publisher.unwrap());
    for n in 0..30 {
        publisher.publish(FastStreamMessage::text(n.to_string())).await.unwrap();
    }
    assert_eq!(server.len(&key).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_ours_takes_over_what_a_killed_one_of_theirs_left() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    let key = server.fresh_key("faststream-shared");
    let path = folder.path().join("handled");
    server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
    let theirs = peer(&server, &["work", &key, "g", "theirs", path.to_str().unwrap()]);
    server.until("their worker to be there", || async { server.consumers(&key, "g").await > 0 }).await;
    let published = publish(&server.client(), &key, 2000, FastStreamFormat::Binary).await;
    // Ours is several times as quick and might leave nothing for theirs.
    server.until("their worker to have handled some", || async { lines(&path).len() >= 50 }).await;
    let handled = Handled::default();
    let ours = builder(&server, &key).consumer("ours").lease(Duration::from_secs(3)).concurrency(4).prefetch(10);
    let ours = handling(ours, &handled, Duration::from_millis(5));
    server.until("ours to have handled some", || async { handled.len() >= 100 }).await;
    theirs.kill();
    let all = || async { numbers(&[handled.lines(), lines(&path)].concat()).len() == published.len() };
    server.until("all messages to be handled", all).await;
    server.until("all messages to be settled", || async { server.pending(&key, "g").await == 0 }).await;
    ours.stop().await;
    assert_eq!(numbers(&[handled.lines(), lines(&path)].concat()), numbers(&published));
}
