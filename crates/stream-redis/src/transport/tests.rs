//! Deadlines and addresses, against listeners of the test.

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn a_server_that_says_nothing_meets_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = ConnectOptions::tcp("127.0.0.1", port).connect_timeout(Duration::from_secs(1)).build().unwrap();
    let error = open(&options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let expected = format!(
        "greeting redis://127.0.0.1:{port}/0 took longer than 1s (does that port want TLS? then the scheme is rediss://)"
    );
    assert_eq!(error.to_string(), expected);
    // The socket is closed, not left behind.
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut seen = Vec::new();
    let end = peer.read_to_end(&mut seen).await;
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let good = listener.local_addr().unwrap();
    let refusing: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    connect_any("h", 1, &[refusing, good], deadline).await.unwrap();
    let error = connect_any("h", 7, &[refusing, refusing], deadline).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(error.to_string(), "cannot connect to h:7 at any of its 2 addresses, last 127.0.0.1:1");
    let error = connect_any("h", 7, &[], deadline).await.unwrap_err();
    assert_eq!(error.to_string(), "the host `h` has no address");
}

#[test]
fn every_address_gets_a_share_of_the_time() {
    let second = Duration::from_secs(1);
    assert_eq!(share(3 * second, 3), second);
    assert_eq!(share(2 * second, 1), 2 * second);
    assert_eq!(share(Duration::ZERO, 2), Duration::ZERO);
}

#[tokio::test]
async fn sockets_are_set_up_as_documented() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    set_up(&stream, &ConnectOptions::tcp("h", 1).build().unwrap()).unwrap();
    assert!(stream.nodelay().unwrap());
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    #[cfg(target_os = "linux")]
    {
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    set_up(&stream, &ConnectOptions::tcp("h", 1).keepalive(None).build().unwrap()).unwrap();
    assert!(!SockRef::from(&stream).keepalive().unwrap());
}
