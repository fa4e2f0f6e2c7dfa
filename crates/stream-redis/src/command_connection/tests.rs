//! Over a socket pair whose other end is played by the test.

use std::sync::LazyLock;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;

async fn pair() -> (CommandConnection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let options = ConnectOptions::tcp("h", 1).build().unwrap();
    (CommandConnection::new(Stream::Unix(ours), &options).await.unwrap(), theirs)
}

/// Takes `expected` off the wire, then writes `answer`.
async fn serve(peer: &mut UnixStream, expected: &str, answer: &str) {
    let mut seen = vec![0; expected.len()];
    peer.read_exact(&mut seen).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&seen), expected);
    peer.write_all(answer.as_bytes()).await.unwrap();
}

const PING: &str = "*1\r\n$4\r\nPING\r\n";

static REQUEST: LazyLock<Request> = LazyLock::new(|| Request::new("PING"));

fn ping() -> Request {
    REQUEST.clone()
}

#[tokio::test]
async fn nothing_is_said_before_the_first_command() {
    let (connection, mut peer) = pair().await;
    let (reply, ()) = tokio::join!(connection.call(&REQUEST), async {
        serve(&mut peer, PING, "+PONG\r\n").await;
    });
    assert_eq!(reply.unwrap(), Value::bulk("PONG"));
    assert_eq!(connection.send(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn several_requests_go_in_one_write_and_errors_keep_their_place() {
    let (connection, mut peer) = pair().await;
    let requests = [ping(), Request::new("XLEN").arg("a\r\nb"), ping()];
    let (replies, ()) = tokio::join!(connection.send(&requests), async {
        let wire = format!("{PING}*2\r\n$4\r\nXLEN\r\n$4\r\na\r\nb\r\n{PING}");
        serve(&mut peer, &wire, "*-1\r\n-NOGROUP No such key\r\n:7\r\n").await;
    });
    let error = ServerError { code: "NOGROUP".into(), detail: "No such key".into() };
    assert_eq!(replies.unwrap(), [Ok(Value::Nil), Err(error), Ok(Value::Int(7))]);
}

#[tokio::test]
async fn every_type_of_reply_becomes_ours() {
    let (connection, mut peer) = pair().await;
    let wire = "*10\r\n+OK\r\n+text\r\n$3\r\n\x00a\x01\r\n_\r\n#t\r\n,1.5\r\n=7\r\ntxt:abc\r\n~1\r\n:1\r\n\
                %1\r\n+k\r\n*1\r\n-ERR in\r\n|1\r\n+a\r\n+b\r\n:2\r\n";
    let (reply, ()) = tokio::join!(connection.call(&REQUEST), serve(&mut peer, PING, wire));
    let inner = Value::Error(ServerError { code: "ERR".into(), detail: "in".into() });
    assert_eq!(
        reply.unwrap(),
        Value::Array(vec![
            Value::bulk("OK"),
            Value::bulk("text"),
            Value::bulk("\x00a\x01"),
            Value::Nil,
            Value::Bool(true),
            Value::Double(1.5),
            Value::bulk("abc"),
            Value::Array(vec![Value::Int(1)]),
            Value::Map(vec![(Value::bulk("k"), Value::Array(vec![inner]))]),
            Value::Int(2),
        ])
    );
}

#[tokio::test]
async fn bytes_are_moved_and_not_copied() {
    let bytes = vec![7_u8; 100];
    let place = bytes.as_ptr();
    let Value::Bulk(moved) = convert(redis::Value::BulkString(bytes)).unwrap() else { panic!("not a string") };
    assert_eq!(moved.as_ptr(), place);
}

#[tokio::test]
async fn pushes_between_replies_are_passed_over() {
    let (connection, mut peer) = pair().await;
    let wire = ">2\r\n$10\r\ninvalidate\r\n_\r\n>2\r\n+whatever\r\n:1\r\n:5\r\n>1\r\n+late\r\n";
    let (reply, ()) = tokio::join!(connection.call(&REQUEST), serve(&mut peer, PING, wire));
    assert_eq!(reply.unwrap(), Value::Int(5));
    let (reply, ()) = tokio::join!(connection.call(&REQUEST), serve(&mut peer, PING, ":6\r\n"));
    assert_eq!(reply.unwrap(), Value::Int(6));
}

#[tokio::test]
async fn a_dropped_request_does_not_shift_the_replies() {
    let (connection, mut peer) = pair().await;
    {
        let first = connection.call(&REQUEST);
        tokio::select! {
            biased;
            _ = first => panic!("nobody answered"),
            () = async {
                let mut seen = vec![0; PING.len()];
                peer.read_exact(&mut seen).await.unwrap();
            } => {}
        }
    }
    let xlen = Request::new("XLEN").arg("k");
    let (reply, ()) = tokio::join!(connection.call(&xlen), async {
        serve(&mut peer, "*2\r\n$4\r\nXLEN\r\n$1\r\nk\r\n", "+for the first\r\n:2\r\n").await;
    });
    assert_eq!(reply.unwrap(), Value::Int(2));
}

#[tokio::test(start_paused = true)]
async fn after_a_timeout_the_connection_is_closed() {
    let (connection, mut peer) = pair().await;
    let error = connection.call(&Request::new("XLEN").arg("k")).await.unwrap_err();
    assert_eq!((error.kind(), error.command()), (ErrorKind::Timeout, Some("XLEN")), "{error:?}");
    assert_eq!(error.to_string(), "XLEN: no answer within 5s");
    let error = connection.call(&REQUEST).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&rest), "*2\r\n$4\r\nXLEN\r\n$1\r\nk\r\n");
}

#[tokio::test]
async fn a_closed_connection_fails_what_is_in_flight_and_what_follows() {
    for requests in [vec![ping()], vec![ping(), ping()]] {
        let (connection, mut peer) = pair().await;
        let (reply, ()) = tokio::join!(connection.send(&requests), async {
            serve(&mut peer, &PING.repeat(requests.len()), "").await;
            drop(peer);
        });
        assert_eq!(reply.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(connection.call(&REQUEST).await.unwrap_err().kind(), ErrorKind::Io);
    }
}

#[tokio::test]
async fn what_is_not_resp_is_an_error_that_quotes_nothing() {
    let (connection, mut peer) = pair().await;
    let (reply, ()) = tokio::join!(connection.call(&REQUEST), serve(&mut peer, PING, "hunter2\r\n"));
    let error = reply.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn dropping_the_connection_closes_the_socket() {
    let (connection, mut peer) = pair().await;
    drop(connection);
    assert_eq!(peer.read(&mut [0]).await.unwrap(), 0);
}
