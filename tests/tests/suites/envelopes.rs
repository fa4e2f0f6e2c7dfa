//! Damaged envelopes of `FastStream` among good ones: each is a dead letter with its raw bytes, and holds up nobody.

use std::time::Duration;

use streamkeeper::{Consumer, DeadLetter, FastStream, FastStreamMessage, FastStreamPublisher, Json, Publisher};
use streamkeeper_tests::{Ask, on_each, start};

/// Begins like an envelope, and is none.
const DAMAGED: [(&str, &[u8]); 8] = [
    ("the magic mangled by a transfer as text", b"\x89BIN\n\x1a\n\0\x01\0\0\0\x12\0\0\0\x14\0\0{}"),
    ("cut off in the offsets", b"\x89BIN\r\n\x1a\n\0\x01\0\0"),
    ("cut off in the header table", b"\x89BIN\r\n\x1a\n\0\x01\0\0\0\x12\0\0\0\x20\0\x01\0\x03ab"),
    ("a version of the future", b"\x89BIN\r\n\x1a\n\0\x02\0\0\0\x12\0\0\0\x14\0\0{}"),
    ("a body past the end", b"\x89BIN\r\n\x1a\n\0\x01\0\0\0\x12\xff\xff\xff\xff\0\0{}"),
    ("a length past the end", b"\x89BIN\r\n\x1a\n\0\x01\0\0\0\x12\0\0\0\x18\0\x01\xff\xff\0\0{}"),
    ("more headers than bytes", b"\x89BIN\r\n\x1a\n\0\x01\0\0\0\x12\0\0\0\x14\xff\xff{}"),
    ("a header that is not UTF-8", b"\x89BIN\r\n\x1a\n\0\x01\0\0\0\x12\0\0\0\x1a\0\x01\0\x02\xff\xfe\0\0{}"),
];

#[tokio::test(flavor = "multi_thread")]
async fn damaged_envelopes_are_dead_letters_with_their_raw_bytes() {
    on_each(|server| async move {
        let key = server.fresh_key("envelopes");
        let publisher = FastStreamPublisher::new(Publisher::builder(&server.client()).stream(&key).build().unwrap());
        publisher.publish(FastStreamMessage::json(&1).unwrap()).await.unwrap();
        for (_, bytes) in DAMAGED {
            server.cli(&[b"XADD".as_slice(), key.as_bytes(), b"*", b"__data__", bytes]).await.unwrap();
        }
        // No envelope at all, and no JSON either.
        server.cli(&[b"XADD".as_slice(), key.as_bytes(), b"*", b"__data__", b"\xff{}"]).await.unwrap();
        publisher.publish(FastStreamMessage::json(&2).unwrap()).await.unwrap();

        let (handled, mut numbers) = tokio::sync::mpsc::unbounded_channel();
        let builder = Consumer::durable(&server.client()).stream(&key).group("g").concurrency(1);
        let consumer = start(builder.block(Duration::from_secs(1)), move |message: FastStream<Json<u32>>| {
            handled.send(message.body.0).unwrap();
            async {}
        });
        let settled = || async { server.pending(&key, "g").await == 0 && consumer.stats.get().received == 11 };
        server.until("all to be settled", settled).await;
        assert_eq!((numbers.recv().await, numbers.recv().await), (Some(1), Some(2)), "{}", server.name());
        let report = consumer.stop().await;
        assert_eq!((report.stats.acknowledged, report.stats.dead_lettered), (2, 9), "{}", server.name());

        let letters = server.entries(&format!("{key}:dead")).await;
        let raw = DAMAGED.iter().map(|(what, bytes)| (*what, *bytes)).chain([("no envelope", &b"\xff{}"[..])]);
        for (letter, (what, bytes)) in letters.iter().zip(raw) {
            let letter = DeadLetter::from_entry(letter).unwrap();
            assert_eq!(letter.reason.as_str(), "undecodable", "{what} on {}", server.name());
            assert_eq!(letter.entry.get("__data__"), Some(bytes), "{what} on {}", server.name());
        }
    })
    .await;
}
