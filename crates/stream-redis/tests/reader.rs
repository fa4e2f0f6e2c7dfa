//! The reading socket on real servers, over both protocols.

mod support;

use std::future::poll_fn;
use std::time::Duration;

use stream_core::{ConsumerName, Entry, EntryId, GroupName, StreamKey};
use stream_redis::{Client, Error, ErrorKind, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader};
use support::{Wire, on_every_server};

/// Short, so that a read that finds nothing ends soon.
const BLOCK: Duration = Duration::from_millis(50);

async fn both_protocols(test: impl AsyncFn(&Wire, &mut dyn Reader)) {
    on_every_server(&[], async |server, wire| {
        for protocol in ["resp2", "resp3"] {
            wire.ok("FLUSHALL");
            let client = Client::open(&format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port)).unwrap();
            let mut reader = client.connector().open_reader(&key(), "test").await.unwrap();
            test(&wire, reader.as_mut()).await;
        }
    })
    .await;
}

fn key() -> StreamKey {
    StreamKey::new("s").unwrap()
}

fn read(count: usize, block: Option<Duration>) -> ReadRequest {
    let from = ReadFrom::Group {
        group: GroupName::new("g").unwrap(),
        consumer: ConsumerName::new("c").unwrap(),
        no_ack: false,
    };
    ReadRequest { key: key(), from, count, block }
}

fn follow(after: EntryId, count: usize) -> ReadRequest {
    ReadRequest { from: ReadFrom::After(after), ..read(count, Some(BLOCK)) }
}

/// Reads to the end of the oldest read in flight.
async fn complete(reader: &mut dyn Reader) -> Result<Vec<Entry>, Error> {
    let mut batch = ReadBatch::default();
    loop {
        if let ReadProgress::Complete { total } = poll_fn(|cx| reader.poll_next(cx, &mut batch)).await? {
            assert_eq!(total, batch.entries.len());
            return Ok(batch.entries);
        }
    }
}

fn entry(ms: u64, value: &str) -> Entry {
    Entry::new(EntryId::new(ms, 0), [("f", value), ("f", "")]).unwrap()
}

fn add(wire: &Wire, ms: u64, value: &str) {
    let id = format!("{ms}-0");
    wire.raw_parts(&[b"XADD", b"s", id.as_bytes(), b"f", value.as_bytes(), b"f", b""]).unwrap();
}

#[tokio::test]
async fn groups_are_read_in_order_with_several_reads_in_flight() {
    both_protocols(async |wire, reader| {
        wire.ok("XGROUP CREATE s g 0 MKSTREAM");
        (1..=5).for_each(|ms| add(wire, ms, "v"));
        for _ in 0..3 {
            reader.submit(&read(2, Some(BLOCK)));
        }
        reader.submit(&read(2, None));
        assert_eq!(reader.in_flight(), 4);
        assert_eq!(complete(reader).await.unwrap(), [entry(1, "v"), entry(2, "v")]);
        assert_eq!(complete(reader).await.unwrap(), [entry(3, "v"), entry(4, "v")]);
        assert_eq!(complete(reader).await.unwrap(), [entry(5, "v")]);
        assert_eq!(complete(reader).await.unwrap(), []);
        assert_eq!(reader.in_flight(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_blocked_read_is_woken_by_an_entry_and_ends_with_its_block() {
    both_protocols(async |wire, reader| {
        wire.ok("XGROUP CREATE s g 0 MKSTREAM");
        reader.submit(&read(2, Some(BLOCK)));
        assert_eq!(complete(reader).await.unwrap(), []);
        reader.submit(&read(2, Some(Duration::from_secs(5))));
        let mut batch = ReadBatch::default();
        let pending = poll_fn(|cx| std::task::Poll::Ready(reader.poll_next(cx, &mut batch).is_pending()));
        assert!(pending.await);
        add(wire, 1, "v");
        assert_eq!(complete(reader).await.unwrap(), [entry(1, "v")]);
    })
    .await;
}

#[tokio::test]
async fn following_needs_no_group_and_survives_a_missing_stream() {
    both_protocols(async |wire, reader| {
        reader.submit(&follow(EntryId::ZERO, 10));
        assert_eq!(complete(reader).await.unwrap(), []);
        (1..=3).for_each(|ms| add(wire, ms, "v"));
        reader.submit(&follow(EntryId::new(1, 0), 10));
        reader.submit(&follow(EntryId::new(3, 0), 10));
        assert_eq!(complete(reader).await.unwrap(), [entry(2, "v"), entry(3, "v")]);
        assert_eq!(complete(reader).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_missing_group_and_a_wrong_type_end_their_read_alone() {
    both_protocols(async |wire, reader| {
        reader.submit(&read(1, Some(BLOCK)));
        let error = complete(reader).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.command(), error.key()),
            (ErrorKind::Missing, Some("XREADGROUP"), Some(&key()))
        );
        wire.ok("SET s x");
        reader.submit(&read(1, Some(BLOCK)));
        reader.submit(&follow(EntryId::ZERO, 1));
        for _ in 0..2 {
            assert_eq!(complete(reader).await.unwrap_err().kind(), ErrorKind::WrongType);
        }
        wire.ok("DEL s");
        wire.ok("XGROUP CREATE s g 0 MKSTREAM");
        add(wire, 1, "v");
        reader.submit(&read(1, Some(BLOCK)));
        assert_eq!(complete(reader).await.unwrap(), [entry(1, "v")]);
    })
    .await;
}

#[tokio::test]
async fn small_and_large_entries_in_one_reply() {
    both_protocols(async |wire, reader| {
        wire.ok("XGROUP CREATE s g 0 MKSTREAM");
        let large = "v\r\n".repeat(2 << 20);
        let values: Vec<&str> = (0..500).map(|ms| if ms == 250 { large.as_str() } else { "v" }).collect();
        for (ms, value) in (1..).zip(&values) {
            add(wire, ms, value);
        }
        reader.submit(&read(1000, Some(BLOCK)));
        let got = complete(reader).await.unwrap();
        assert!(got.into_iter().eq((1..).zip(values).map(|(ms, value)| entry(ms, value))));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_the_server_is_the_end_of_the_reader() {
    both_protocols(async |wire, reader| {
        wire.ok("XGROUP CREATE s g 0 MKSTREAM");
        reader.submit(&read(1, Some(Duration::from_secs(5))));
        let mut batch = ReadBatch::default();
        let pending = poll_fn(|cx| std::task::Poll::Ready(reader.poll_next(cx, &mut batch).is_pending()));
        assert!(pending.await);
        wire.ok("CLIENT KILL TYPE normal SKIPME yes");
        for _ in 0..2 {
            let error = complete(reader).await.unwrap_err();
            assert_eq!((error.kind(), error.command()), (ErrorKind::Io, Some("XREADGROUP")), "{error}");
        }
    })
    .await;
}
