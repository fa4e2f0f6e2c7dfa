//! Replies in all pieces, noise, deadlines and broken streams.

use std::future::poll_fn;
use std::task::Waker;

use stream_core::{Entry, EntryId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};

mod properties;
mod rest;

use super::*;
use crate::ReadFrom;
use crate::command::tests::{consumer, group, id, key};

const MARGIN: Duration = Duration::from_secs(2);
const BLOCK: Duration = Duration::from_secs(5);

/// A stream that yields its pieces one a read, with a pause after each where asked, and then nothing more.
struct Pieces {
    queue: VecDeque<Vec<u8>>,
    pauses: bool,
    paused: bool,
}

impl Pieces {
    fn new(bytes: &[u8], splits: &[usize], pauses: bool) -> Self {
        let mut queue = VecDeque::new();
        let mut start = 0;
        for &split in splits.iter().chain([&bytes.len()]) {
            if split > start {
                queue.push_back(bytes[start..split].to_vec());
                start = split;
            }
        }
        Self { queue, pauses, paused: false }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.paused = self.pauses && !self.paused;
        if self.paused && !self.queue.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(mut piece) = self.queue.pop_front() else { return Poll::Pending };
        let rest = piece.split_off(piece.len().min(buf.remaining()));
        buf.put_slice(&piece);
        if !rest.is_empty() {
            self.queue.push_front(rest);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// How one read ended, with what it brought.
#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    Entries(Vec<Entry>, Vec<EntryId>),
    Refused(String),
}

fn read() -> ReadRequest {
    let from = ReadFrom::Group { group: group("g"), consumer: consumer("c"), no_ack: false };
    ReadRequest { key: key("s"), from, count: 10, block: Some(BLOCK) }
}

async fn next<S: AsyncRead + AsyncWrite + Unpin + Send>(
    reader: &mut SocketReader<S>,
    batch: &mut ReadBatch,
) -> Result<ReadProgress, Error> {
    poll_fn(|cx| reader.poll_next(cx, batch)).await
}

/// The outcome of the oldest read, or the error that ends the reader.
async fn outcome<S: AsyncRead + AsyncWrite + Unpin + Send>(reader: &mut SocketReader<S>) -> Result<Outcome, Error> {
    let mut batch = ReadBatch::default();
    loop {
        match next(reader, &mut batch).await {
            Ok(ReadProgress::Complete { total }) => {
                assert_eq!(total, batch.entries.len() + batch.deleted.len());
                return Ok(Outcome::Entries(batch.entries, batch.deleted));
            }
            Ok(ReadProgress::Partial) => assert!(!batch.entries.is_empty() || !batch.deleted.is_empty()),
            Err(error) if error.server().is_some() => return Ok(Outcome::Refused(error.to_string())),
            Err(error) => return Err(error),
        }
    }
}

/// Reads as many replies as `expected` says from `bytes` cut at `splits`.
async fn outcomes(bytes: &[u8], splits: &[usize], pauses: bool, replies: usize) -> Result<Vec<Outcome>, Error> {
    let mut reader = SocketReader::new(Pieces::new(bytes, splits, pauses), MARGIN);
    let mut all = Vec::new();
    (0..replies).for_each(|_| reader.submit(&read()));
    for _ in 0..replies {
        all.push(outcome(&mut reader).await?);
    }
    assert_eq!(reader.in_flight(), 0);
    Ok(all)
}

/// The same in pieces of each size, and cut in two at each place.
async fn check(bytes: &str, expected: &[Outcome]) {
    let bytes = bytes.as_bytes();
    for size in 1..=bytes.len() {
        let splits: Vec<_> = (size..bytes.len()).step_by(size).collect();
        assert_eq!(outcomes(bytes, &splits, size % 2 == 0, expected.len()).await.unwrap(), expected, "size {size}");
        assert_eq!(outcomes(bytes, &[size], true, expected.len()).await.unwrap(), expected, "cut at {size}");
    }
}

/// Every way to cut it ends in a protocol error with this text.
async fn check_malformed(bytes: &str, expected: &str) {
    let bytes = bytes.as_bytes();
    for size in 1..=bytes.len() {
        let splits: Vec<_> = (size..bytes.len()).step_by(size).collect();
        let error = outcomes(bytes, &splits, false, 1).await.unwrap_err();
        assert_eq!((error.kind(), error.command()), (ErrorKind::Protocol, Some("XREADGROUP")));
        assert_eq!(error.to_string(), format!("XREADGROUP s: not the reply to a read: {expected}"), "size {size}");
    }
}

fn entry(ms: u64, fields: &[(&str, &str)]) -> Entry {
    Entry::new(id(ms, 0), fields.iter().copied()).unwrap()
}

fn entries(entries: impl IntoIterator<Item = Entry>) -> Outcome {
    Outcome::Entries(entries.into_iter().collect(), vec![])
}

const TWO: &str = "*2\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\na\r\n$3\r\nx\r\n\r\n*2\r\n$3\r\n2-0\r\n*4\r\n$0\r\n\r\n$0\r\n\r\n$1\r\na\r\n$1\r\n2\r\n";

#[tokio::test(start_paused = true)]
async fn entries_of_both_protocols() {
    let expected = [entries([entry(1, &[("a", "x\r\n")]), entry(2, &[("", ""), ("a", "2")])])];
    check(&format!("*1\r\n*2\r\n$1\r\ns\r\n{TWO}"), &expected).await;
    check(&format!("%1\r\n$1\r\ns\r\n{TWO}"), &expected).await;
}

#[tokio::test(start_paused = true)]
async fn replies_without_entries() {
    let nothing = [entries([])];
    for reply in
        ["*-1\r\n", "$-1\r\n", "_\r\n", "*0\r\n", "%0\r\n", "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n", "%1\r\n$1\r\ns\r\n_\r\n"]
    {
        check(reply, &nothing).await;
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_and_claimed_entries_simple_strings_and_maps() {
    let body = "*4\r\n*2\r\n$3\r\n1-0\r\n*-1\r\n*2\r\n$3\r\n2-0\r\n_\r\n\
                *4\r\n$3\r\n3-0\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n:360\r\n:2\r\n\
                *4\r\n+4-0\r\n%1\r\n+name\r\n+value\r\n$1\r\n0\r\n+0\r\n";
    let found = vec![entry(3, &[("a", "1")]), entry(4, &[("name", "value")])];
    let expected = [Outcome::Entries(found, vec![id(1, 0), id(2, 0)])];
    check(&format!("*1\r\n*2\r\n$1\r\ns\r\n{body}"), &expected).await;
    check(&format!("%1\r\n+s\r\n{body}"), &expected).await;
}

#[tokio::test(start_paused = true)]
async fn errors_end_one_read_and_the_next_goes_on() {
    let nogroup = "NOGROUP No such key 's' or consumer group 'g'";
    let expected = [
        Outcome::Refused(format!("XREADGROUP s: {nogroup}")),
        entries([]),
        Outcome::Refused("XREADGROUP s: ERR x".to_owned()),
    ];
    check(&format!("-{nogroup}\r\n*-1\r\n!5\r\nERR x\r\n"), &expected).await;
}

#[tokio::test(start_paused = true)]
async fn pushes_between_replies_are_skipped() {
    let push = ">3\r\n$7\r\nmessage\r\n|1\r\n+k\r\n:1\r\n*2\r\n%1\r\n$-1\r\n#t\r\n~1\r\n,1.5\r\n+text\r\n>0\r\n";
    let expected = [entries([]), entries([entry(1, &[])])];
    check(&format!("{push}_\r\n{push}%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*0\r\n"), &expected).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_reply_is_refused_without_its_bytes() {
    let start = "*1\r\n*2\r\n$1\r\ns\r\n*3\r\n";
    let cases = [
        ("secret\r\n", "a byte that begins no element"),
        ("+secret\r\n", "expected the reply to a read, got a simple type after 0 entries"),
        ("$6\r\nsecret\r\n", "expected the reply to a read, got text(6) after 0 entries"),
        (":4111\r\n", "expected the reply to a read, got int after 0 entries"),
        ("*2\r\n", "expected the reply to a read, got array(2) after 0 entries"),
        ("*1\r\n*3\r\n", "expected a key and its entries, got array(3) after 0 entries"),
        ("*1\r\n*2\r\n:1\r\n", "expected a string, got int after 0 entries"),
        ("*1\r\n*2\r\n$1\r\nss\r\n", "a string of 1 bytes does not end where it says"),
        ("*1\r\n*2\r\n$-2\r\n", "a length of -2 is out of range"),
        ("*1\r\n*2\r\n$536870913\r\n", "a length of 536870913 is out of range"),
        ("*1\r\n*2\r\n$99999999999999999999\r\n", "a length of 9223372036854775807 is out of range"),
        ("*4294967297\r\n", "a length of 4294967297 is out of range"),
        ("*1a\r\n", "a length that is no number"),
        ("*\r\n", "a length that is no number"),
        ("*--1\r\n", "a length that is no number"),
        ("*1\n", "a length that is no number"),
        ("_1\r\n", "a length that is no number"),
        ("-ERR\rx\r\n", "a line does not end with CRLF"),
        ("-ERR\n", "a line does not end with CRLF"),
    ];
    for (bytes, expected) in cases {
        check_malformed(bytes, expected).await;
    }
    let cases = [
        ("*1\r\n", "expected an entry, got array(1) after 0 entries"),
        ("*2\r\n$4\r\n4111\r\n$4\r\n4111\r\n", "expected the fields of an entry, got text(4) after 0 entries"),
        ("*2\r\n$4\r\ncard\r\n", "expected an entry id, got text(4)"),
        ("*2\r\n$3\r\n1-0\r\n*1\r\n", "expected the fields of an entry, got array(1) after 0 entries"),
        (
            "*2\r\n$3\r\n1-0\r\n*0\r\n*2\r\n$3\r\n2-0\r\n*2\r\n$1\r\na\r\n*0\r\n",
            "expected a string, got array(0) after 1 entries",
        ),
    ];
    for (bytes, expected) in cases {
        check_malformed(&format!("{start}{bytes}"), expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_reader_stays_broken() {
    let mut reader = SocketReader::new(Pieces::new(b"*-1\r\nnoise", &[], false), MARGIN);
    (0..3).for_each(|_| reader.submit(&read()));
    assert_eq!(outcome(&mut reader).await.unwrap(), entries([]));
    for _ in 0..3 {
        assert_eq!(outcome(&mut reader).await.unwrap_err().kind(), ErrorKind::Protocol);
    }
    assert_eq!(reader.in_flight(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_nobody_asked_for_is_refused() {
    let mut reader = SocketReader::new(Pieces::new(b"*-1\r\n", &[], false), MARGIN);
    let error = outcome(&mut reader).await.unwrap_err();
    assert_eq!((error.kind(), error.command()), (ErrorKind::Protocol, None));
}

#[tokio::test(start_paused = true)]
async fn a_length_allocates_nothing() {
    let mut reader = SocketReader::new(
        Pieces::new(
            b"*1\r\n*2\r\n$1\r\ns\r\n*4294967296\r\n*4294967296\r\n$3\r\n1-0\r\n*4294967296\r\n$536870912\r\nx",
            &[],
            false,
        ),
        MARGIN,
    );
    reader.submit(&read());
    let mut batch = ReadBatch::default();
    assert!(reader.poll_next(&mut Context::from_waker(Waker::noop()), &mut batch).is_pending());
    assert!(reader.buffer.capacity() <= 64 << 10, "{}", reader.buffer.capacity());
    assert_eq!(batch.entries.capacity(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_entry_grows_the_buffer_with_what_arrives_and_gives_it_back() {
    let value = vec![b'v'; 8 << 20];
    let mut bytes =
        format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\na\r\n${}\r\n", value.len()).into_bytes();
    let arrived_first = bytes.len();
    bytes.extend_from_slice(&value);
    bytes.extend_from_slice(b"\r\n*-1\r\n");
    let (mut server, stream) = duplex(16 << 20);
    let mut reader = SocketReader::new(stream, MARGIN);
    (0..2).for_each(|_| reader.submit(&read()));
    let mut batch = ReadBatch::default();
    let mut arrived = 0;
    for piece in std::iter::once(&bytes[..arrived_first]).chain(bytes[arrived_first..].chunks(100_000)) {
        server.write_all(piece).await.unwrap();
        arrived += piece.len();
        let progress = reader.poll_next(&mut Context::from_waker(Waker::noop()), &mut batch);
        assert_eq!(progress.is_ready(), arrived == bytes.len());
        assert!(reader.buffer.capacity() <= 2 * arrived + LARGEST, "{arrived}: {}", reader.buffer.capacity());
    }
    assert_eq!(batch.entries[0].get("a"), Some(&value[..]));
    drop(batch);
    assert_eq!(outcome(&mut reader).await.unwrap(), entries([]));
    reader.submit(&read());
    server.write_all(b"*-1\r\n").await.unwrap();
    assert_eq!(outcome(&mut reader).await.unwrap(), entries([]));
    assert!(reader.buffer.capacity() <= LARGEST, "{}", reader.buffer.capacity());
}

/// A consumer of a thousand streams would hold a piece for each.
#[tokio::test(start_paused = true)]
async fn readers_that_wait_hold_what_cannot_be_decoded_yet_and_nothing_else() {
    let cut = b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$3\r\n2-0\r\n*2\r\n$1\r\na\r\n$1";
    let rest = b"\r\nb\r\n";
    let mut readers = Vec::new();
    for _ in 0..20 {
        let (mut server, stream) = duplex(1 << 16);
        let mut reader = SocketReader::new(stream, MARGIN);
        reader.submit(&read());
        server.write_all(cut).await.unwrap();
        let mut batch = ReadBatch::default();
        while reader.poll_next(&mut Context::from_waker(Waker::noop()), &mut batch).is_ready() {}
        assert_eq!(batch.entries.len(), 1);
        assert!(reader.buffer.capacity() <= cut.len(), "{}", reader.buffer.capacity());
        readers.push((server, reader, batch));
    }
    for (server, reader, batch) in &mut readers {
        server.write_all(rest).await.unwrap();
        let done = reader.poll_next(&mut Context::from_waker(Waker::noop()), batch);
        assert!(matches!(done, Poll::Ready(Ok(ReadProgress::Complete { total: 2 }))), "{done:?}");
        assert_eq!(batch.entries.iter().map(|entry| entry.get("a")).collect::<Vec<_>>(), [Some(&b"b"[..]); 2]);
    }
}

/// The largest read, in bytes.
const LARGEST: usize = 256 << 10;

/// A reader and the server's end of its stream, with this many reads in flight.
fn pair(reads: usize) -> (SocketReader<DuplexStream>, DuplexStream) {
    let (server, stream) = duplex(1 << 16);
    let mut reader = SocketReader::new(stream, MARGIN);
    (0..reads).for_each(|_| reader.submit(&read()));
    (reader, server)
}

#[tokio::test(start_paused = true)]
async fn silence_ends_at_block_and_margin() {
    let (mut reader, _server) = pair(2);
    let start = Instant::now();
    let error = outcome(&mut reader).await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key("s"))));
    assert_eq!(start.elapsed(), BLOCK + MARGIN);
    assert_eq!(outcome(&mut reader).await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn each_read_has_its_own_deadline_from_when_it_is_the_oldest() {
    let (mut reader, mut server) = pair(3);
    for _ in 0..2 {
        tokio::time::sleep(BLOCK).await;
        server.write_all(b"*-1\r\n").await.unwrap();
        assert_eq!(outcome(&mut reader).await.unwrap(), entries([]));
    }
    let start = Instant::now();
    assert_eq!(outcome(&mut reader).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), BLOCK + MARGIN);
}

#[tokio::test(start_paused = true)]
async fn a_read_with_a_shorter_block_is_not_held_to_the_longer_one_before_it() {
    let (mut reader, mut server) = pair(1);
    reader.submit(&ReadRequest { block: None, ..read() });
    let start = Instant::now();
    let mut batch = ReadBatch::default();
    assert!(reader.poll_next(&mut Context::from_waker(Waker::noop()), &mut batch).is_pending());
    server.write_all(b"*-1\r\n").await.unwrap();
    assert_eq!(outcome(&mut reader).await.unwrap(), entries([]));
    assert_eq!(outcome(&mut reader).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), MARGIN);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_lives_as_long_as_bytes_come() {
    let (mut reader, mut server) = pair(2);
    let reply = format!("*1\r\n*2\r\n$1\r\ns\r\n{TWO}");
    let start = Instant::now();
    let sending = async {
        for byte in reply.as_bytes() {
            tokio::time::sleep(MARGIN / 2).await;
            server.write_all(&[*byte]).await.unwrap();
        }
    };
    let (got, ()) = tokio::join!(outcome(&mut reader), sending);
    assert!(matches!(got, Ok(Outcome::Entries(entries, _)) if entries.len() == 2));
    assert!(start.elapsed() > BLOCK + MARGIN);
    // In mid-reply silence ends it after the margin, not after BLOCK once more.
    tokio::time::sleep(BLOCK).await;
    server.write_all(b"*1\r\n").await.unwrap();
    let start = Instant::now();
    assert_eq!(outcome(&mut reader).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(start.elapsed() >= MARGIN);
}

#[tokio::test(start_paused = true)]
async fn what_has_arrived_is_handed_out_before_the_stream_breaks_off() {
    let (mut reader, mut server) = pair(1);
    let reply = format!("*1\r\n*2\r\n$1\r\ns\r\n{TWO}");
    server.write_all(&reply.as_bytes()[..reply.len() - 4]).await.unwrap();
    let mut batch = ReadBatch::default();
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Partial);
    assert_eq!(batch.entries, [entry(1, &[("a", "x\r\n")])]);
    drop(server);
    let error = next(&mut reader, &mut batch).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Io, "XREADGROUP s: the server closed the connection")
    );
    assert_eq!(batch.entries.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_are_written_piece_by_piece_when_the_stream_is_narrow() {
    let (mut server, stream) = duplex(7);
    let mut reader = SocketReader::new(stream, MARGIN);
    let mut expected = Vec::new();
    for _ in 0..3 {
        reader.submit(&read());
        encode::encode(&read(), &mut expected);
    }
    assert_eq!(reader.in_flight(), 3);
    let serving = async {
        let mut got = vec![0; expected.len()];
        server.read_exact(&mut got).await.unwrap();
        server.write_all(b"*-1\r\n*-1\r\n*-1\r\n").await.unwrap();
        got
    };
    let reading = async {
        for _ in 0..3 {
            assert_eq!(outcome(&mut reader).await.unwrap(), entries([]));
        }
    };
    let (got, ()) = tokio::join!(serving, reading);
    assert_eq!(got, expected);
}

#[tokio::test(start_paused = true)]
async fn a_poll_returns_after_its_share_of_a_long_reply() {
    let value = "v".repeat(1000);
    let one = format!("*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\na\r\n$1000\r\n{value}\r\n");
    let reply = format!("*1\r\n*2\r\n$1\r\ns\r\n*2000\r\n{}", one.repeat(2000));
    let mut reader = SocketReader::new(Pieces::new(reply.as_bytes(), &[], false), MARGIN);
    reader.submit(&read());
    let mut batch = ReadBatch::default();
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Partial);
    let share = batch.entries.len() * one.len();
    assert!((POLL_BYTES - one.len()..3 * POLL_BYTES).contains(&share), "{share}");
    while next(&mut reader, &mut batch).await.unwrap() == ReadProgress::Partial {}
    assert_eq!(batch.entries.len(), 2000);
}
