//! Over a socket pair whose other end is played by the test.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

fn pair(room: usize) -> (Socket<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(room);
    (Socket::new(ours, &ConnectOptions::tcp("h", 1).build().unwrap()), theirs)
}

fn put(socket: &mut Socket<DuplexStream>, text: &str, commands: usize) {
    socket.out().extend_from_slice(text.as_bytes());
    socket.sent(commands);
}

/// Replies until there are so many or the connection fails.
async fn replies(socket: &mut Socket<DuplexStream>, count: usize) -> (Vec<Reply>, Option<Error>) {
    let mut replies = Vec::new();
    while replies.len() < count {
        if let Err(error) = poll_fn(|cx| socket.poll_replies(cx, &mut replies)).await {
            return (replies, Some(error));
        }
    }
    (replies, None)
}

fn id(ms: u64, seq: u64) -> Reply {
    Reply::Id(EntryId::new(ms, seq))
}

#[tokio::test]
async fn every_reply_is_understood_whatever_the_pieces() {
    let wire = "$15\r\n1700000000123-0\r\n$3\r\n1-7\r\n-OOM no memory\r\n$-1\r\n_\r\n+OK\r\n>2\r\n+whatever\r\n:1\r\n\
                |1\r\n+a\r\n+b\r\n$3\r\n2-0\r\n!11\r\nERR no word\r\n*1\r\n:1\r\n$3\r\nabc\r\n$3\r\n3-0\r\n";
    let error = |line| Reply::Error(ServerError::parse(line));
    let expected = [
        id(1_700_000_000_123, 0),
        id(1, 7),
        error("OOM no memory"),
        Reply::Nil,
        Reply::Nil,
        Reply::Other,
        id(2, 0),
        error("ERR no word"),
        Reply::Other,
        Reply::Other,
        id(3, 0),
    ];
    for piece in [1, 2, 3, 7, wire.len()] {
        let (mut socket, mut peer) = pair(piece);
        put(&mut socket, "x", expected.len());
        let (got, ()) = tokio::join!(replies(&mut socket, expected.len()), async {
            assert_eq!(peer.read_u8().await.unwrap(), b'x');
            peer.write_all(wire.as_bytes()).await.unwrap();
        });
        assert_eq!(got.0, expected, "{piece}");
        assert_eq!(socket.owed, 0);
    }
}

#[tokio::test]
async fn what_is_written_and_what_is_read_do_not_wait_for_each_other() {
    // The peer takes nothing more before it is rid of its replies, and neither fits.
    let (mut socket, mut peer) = pair(16);
    put(&mut socket, &"x".repeat(1_000), 100);
    let (got, ()) = tokio::join!(replies(&mut socket, 100), async {
        assert_eq!(peer.read_u8().await.unwrap(), b'x');
        peer.write_all("$3\r\n1-0\r\n".repeat(99).as_bytes()).await.unwrap();
        peer.read_exact(&mut [0; 999]).await.unwrap();
        peer.write_all(b"$3\r\n1-0\r\n").await.unwrap();
    });
    assert_eq!(got.0, vec![id(1, 0); 100]);
}

#[tokio::test]
async fn memory_does_not_grow_with_what_was_written_long_ago() {
    // There is always a batch that the peer has not taken yet.
    let (mut socket, mut peer) = pair(256);
    let batch = "x".repeat(1_000);
    put(&mut socket, &batch.repeat(3), 3);
    let mut largest = 0;
    let ((), ()) = tokio::join!(
        async {
            for _ in 0..500 {
                assert_eq!(replies(&mut socket, 1).await.0, [id(1, 0)]);
                put(&mut socket, &batch, 1);
                largest = largest.max(socket.out.len());
            }
        },
        async {
            for _ in 0..500 {
                peer.read_exact(&mut [0; 1_000]).await.unwrap();
                peer.write_all(b"$3\r\n1-0\r\n").await.unwrap();
            }
        }
    );
    assert!(largest <= 10 * batch.len(), "{largest} bytes");
}

#[tokio::test]
async fn a_peer_that_has_gone_while_nothing_was_asked_is_noticed_before_it_is() {
    let (mut socket, mut peer) = pair(1 << 10);
    assert!(!socket.is_over());
    peer.write_all(b">2\r\n+whatever\r\n:1\r\n").await.unwrap();
    assert!(!socket.is_over(), "a push is no end");
    put(&mut socket, "x", 1);
    peer.write_all(b"$3\r\n1-0\r\n").await.unwrap();
    assert_eq!(replies(&mut socket, 1).await.0, [id(1, 0)]);
    drop(peer);
    assert!(socket.is_over());
}

#[tokio::test]
async fn what_came_before_the_end_is_handed_out_before_the_error() {
    let (mut socket, mut peer) = pair(1 << 10);
    put(&mut socket, "xxx", 3);
    peer.write_all(b"$3\r\n1-0\r\n$3\r\n1-").await.unwrap();
    drop(peer);
    let (got, error) = replies(&mut socket, 3).await;
    assert_eq!((got, error.unwrap().kind()), (vec![id(1, 0)], ErrorKind::Io));
}

#[tokio::test]
async fn noise_and_replies_that_nobody_asked_for_end_the_connection() {
    for noise in ["hunter2\r\n", "$3\r\n1-0\r\n$3\r\n2-0\r\n"] {
        let (mut socket, mut peer) = pair(1 << 10);
        put(&mut socket, "x", 1);
        peer.write_all(noise.as_bytes()).await.unwrap();
        let (_, error) = replies(&mut socket, 2).await;
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    let (mut socket, mut peer) = pair(1 << 22);
    put(&mut socket, "x", 1);
    peer.write_all(&vec![b'-'; 2 * LARGEST_REPLY]).await.unwrap();
    assert_eq!(replies(&mut socket, 1).await.1.unwrap().kind(), ErrorKind::Protocol);
    assert!(socket.input.len() <= 4 * LARGEST_REPLY);
}

#[tokio::test(start_paused = true)]
async fn silence_is_counted_from_the_last_sign_of_life() {
    let (mut socket, mut peer) = pair(1 << 10);
    tokio::time::sleep(Duration::from_secs(60)).await;
    put(&mut socket, "xx", 2);
    let begun = Instant::now();
    let second = Duration::from_secs(1);
    let (got, ()) = tokio::join!(replies(&mut socket, 2), async {
        tokio::time::sleep(second * 4).await;
        peer.write_all(b"$3\r\n1-0\r\n").await.unwrap();
        tokio::time::sleep(second * 4).await;
        peer.write_all(b"$3\r\n2-").await.unwrap();
    });
    let (got, error) = got;
    assert_eq!((got, error.unwrap().to_string()), (vec![id(1, 0)], "no answer within 5s".to_owned()));
    assert_eq!(begun.elapsed().as_secs(), 13);
}
