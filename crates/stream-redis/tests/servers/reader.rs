//! The reading socket on real servers, over both protocols; and connections that the server ends.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use stream_core::{ConsumerName, Entry, EntryId, GroupName};
use stream_redis::{
    Client, Error, ErrorKind, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Request, SocketReader,
};
use stream_testkit::{Flavor, RealServer, ServerOptions, ServerVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::every_server::{connect, key, ok, on_every_server};

/// Short, so that a read that finds nothing ends soon.
const BLOCK: Duration = Duration::from_millis(50);

/// Longer than any test, so that a read ends by what the test does.
const LONG: Duration = Duration::from_mins(1);

async fn both_protocols(test: impl AsyncFn(&RealServer, &mut dyn Reader)) {
    on_every_server(ServerOptions::new(), async |server| {
        for protocol in ["resp2", "resp3"] {
            ok(&server, "FLUSHALL").await;
            let mut reader = open(&format!("{}?protocol={protocol}", server.url()), "test").await;
            test(&server, reader.as_mut()).await;
        }
    })
    .await;
}

async fn open(url: &str, name: &str) -> Box<dyn Reader> {
    Client::open(url).unwrap().connector().open_reader(&key(), name).await.unwrap()
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

/// Whether the oldest read in flight has been sent and has no answer yet.
async fn is_waiting(reader: &mut dyn Reader) -> bool {
    let mut batch = ReadBatch::default();
    poll_fn(|cx| Poll::Ready(reader.poll_next(cx, &mut batch).is_pending())).await
}

/// Adds entries as [`entry`] makes them.
async fn add(server: &RealServer, entries: impl IntoIterator<Item = (u64, &str)>) {
    let mut cli = server.connect().await.unwrap();
    for (ms, value) in entries {
        cli.command(&["XADD", "s", &format!("{ms}-0"), "f", value, "f", ""]).await.unwrap();
    }
}

#[tokio::test]
async fn groups_are_read_in_order_with_several_reads_in_flight() {
    both_protocols(async |server, reader| {
        ok(server, "XGROUP CREATE s g 0 MKSTREAM").await;
        add(server, [(1, "v"), (2, "v"), (3, "v"), (4, "v"), (5, "v")]).await;
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
    both_protocols(async |server, reader| {
        ok(server, "XGROUP CREATE s g 0 MKSTREAM").await;
        reader.submit(&read(2, Some(BLOCK)));
        assert_eq!(complete(reader).await.unwrap(), []);
        reader.submit(&read(2, Some(LONG)));
        assert!(is_waiting(reader).await);
        add(server, [(1, "v")]).await;
        assert_eq!(complete(reader).await.unwrap(), [entry(1, "v")]);
    })
    .await;
}

#[tokio::test]
async fn following_needs_no_group_and_survives_a_missing_stream() {
    both_protocols(async |server, reader| {
        reader.submit(&follow(EntryId::ZERO, 10));
        assert_eq!(complete(reader).await.unwrap(), []);
        add(server, [(1, "v"), (2, "v"), (3, "v")]).await;
        reader.submit(&follow(EntryId::new(1, 0), 10));
        reader.submit(&follow(EntryId::new(3, 0), 10));
        assert_eq!(complete(reader).await.unwrap(), [entry(2, "v"), entry(3, "v")]);
        assert_eq!(complete(reader).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_missing_group_and_a_wrong_type_end_their_read_alone() {
    both_protocols(async |server, reader| {
        reader.submit(&read(1, Some(BLOCK)));
        let error = complete(reader).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.command(), error.key()),
            (ErrorKind::Missing, Some("XREADGROUP"), Some(&key()))
        );
        ok(server, "SET s x").await;
        reader.submit(&read(1, Some(BLOCK)));
        reader.submit(&follow(EntryId::ZERO, 1));
        for _ in 0..2 {
            assert_eq!(complete(reader).await.unwrap_err().kind(), ErrorKind::WrongType);
        }
        ok(server, "DEL s").await;
        ok(server, "XGROUP CREATE s g 0 MKSTREAM").await;
        add(server, [(1, "v")]).await;
        reader.submit(&read(1, Some(BLOCK)));
        assert_eq!(complete(reader).await.unwrap(), [entry(1, "v")]);
    })
    .await;
}

#[tokio::test]
async fn small_and_large_entries_in_one_reply() {
    both_protocols(async |server, reader| {
        ok(server, "XGROUP CREATE s g 0 MKSTREAM").await;
        let large = "v\r\n".repeat(2 << 20);
        let values: Vec<&str> = (0..500).map(|ms| if ms == 250 { large.as_str() } else { "v" }).collect();
        add(server, (1..).zip(values.iter().copied())).await;
        reader.submit(&read(1000, Some(BLOCK)));
        let got = complete(reader).await.unwrap();
        assert!(got.into_iter().eq((1..).zip(values).map(|(ms, value)| entry(ms, value))));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_the_server_is_the_end_of_the_reader() {
    both_protocols(async |server, reader| {
        ok(server, "XGROUP CREATE s g 0 MKSTREAM").await;
        reader.submit(&read(1, Some(LONG)));
        assert!(is_waiting(reader).await);
        ok(server, "CLIENT KILL TYPE normal SKIPME yes").await;
        for _ in 0..2 {
            let error = complete(reader).await.unwrap_err();
            assert_eq!((error.kind(), error.command()), (ErrorKind::Io, Some("XREADGROUP")), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn readers_and_commands_over_the_same_options() {
    on_every_server(ServerOptions::new().unix_socket().requirepass("p"), async |server| {
        let socket = server.unix_socket().unwrap();
        for url in [
            format!("{}1", server.url()),
            format!("{}1?protocol=resp2", server.url()),
            format!("redis+unix://{}?db=1&pass=p", socket.display()),
        ] {
            let connection = connect(&url).await;
            let mut reader = open(&url, "a reader").await;
            reader.submit(&ReadRequest { block: Some(LONG), ..follow(EntryId::ZERO, 10) });
            let add = Request::new("XADD").key(&key()).arg("*").arg("a").arg("1");
            let (added, entries) = tokio::join!(connection.call(&add), complete(&mut *reader));
            added.unwrap();
            let entries = entries.unwrap();
            assert_eq!((entries.len(), entries[0].get("a")), (1, Some(&b"1"[..])), "{url}");
            let listed = connection.call(&Request::new("CLIENT LIST")).await.unwrap();
            let listed = String::from_utf8_lossy(listed.as_bytes().unwrap()).into_owned();
            assert!(listed.contains("name=a-reader"), "{listed}");
            ok(&server, "FLUSHALL").await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_death_of_the_server_is_told_to_readers_and_commands() {
    on_every_server(ServerOptions::new(), async |mut server| {
        let client = Client::open(&server.url()).unwrap();
        let connection = connect(&server.url()).await;
        let mut reader = open(&server.url(), "r").await;
        reader.submit(&ReadRequest { block: Some(LONG), ..follow(EntryId::ZERO, 10) });
        assert!(is_waiting(&mut *reader).await);
        // Proof that the connection works, and then that its end is told.
        connection.call(&Request::new("PING")).await.unwrap();
        server.kill9().await.unwrap();
        assert_eq!(complete(&mut *reader).await.unwrap_err().kind(), ErrorKind::Io);
        let error = connection.call(&Request::new("PING")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        let Err(error) = client.connector().connect(&key()).await else { panic!("connected") };
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
    })
    .await;
}

/// `XREADGROUP … CLAIM` of Redis 8.4 and later, which the library does not ask for: entries carry how long they were idle
/// and how often they were delivered, after their fields.
#[tokio::test]
async fn b57_entries_that_carry_idle_time_and_deliveries_are_read_as_others_are() {
    on_every_server(ServerOptions::new(), async |server| {
        for greeting in ["", "HELLO 3\r\n"] {
            ok(&server, "FLUSHALL").await;
            ok(&server, "XGROUP CREATE s g 0 MKSTREAM").await;
            ok(&server, "XADD s 1-0 f first f ").await;
            ok(&server, "XREADGROUP GROUP g dead STREAMS s >").await;
            ok(&server, "XADD s 2-0 f second f ").await;
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(format!("{greeting}PING\r\n").as_bytes()).await.unwrap();
            let mut said = Vec::new();
            while !said.ends_with(b"+PONG\r\n") {
                assert_ne!(stream.read_buf(&mut said).await.unwrap(), 0, "{said:?}");
            }
            stream.write_all(b"XREADGROUP GROUP g c CLAIM 0 STREAMS s >\r\n").await.unwrap();
            // What it reads first is the answer to the line above.
            let mut reader = SocketReader::new(stream, Duration::from_secs(10));
            reader.submit(&read(10, None));
            let answer = complete(&mut reader).await;
            if server.flavor() == Flavor::Redis && server.version() >= ServerVersion::new(8, 4, 0) {
                assert_eq!(answer.unwrap(), [entry(1, "first"), entry(2, "second")], "{}", server.name());
            } else {
                let error = answer.unwrap_err();
                assert!(error.to_string().contains("syntax error"), "{}: {error}", server.name());
            }
        }
    })
    .await;
}
