//! What a spawned server does, on the newest server of this machine and, where versions differ, on each.

use std::net::TcpStream;
use std::time::Duration;

use stream_redis::Value;

use super::*;
use crate::matrix;

async fn start(options: &ServerOptions) -> RealServer {
    RealServer::start(&matrix::one(), options).await.unwrap()
}

#[tokio::test]
async fn every_server_of_the_matrix_starts_and_answers() {
    for binary in matrix::all() {
        let server = RealServer::start(&binary, &ServerOptions::new()).await.unwrap();
        let key = server.fresh_key("s");
        server.cli(&["XADD", &key, "1-0", "a", "", "b\r\n", "2"]).await.unwrap();
        server.cli(&["XGROUP", "CREATE", &key, "g", "0"]).await.unwrap();
        let reply = server.cli(&["XREADGROUP", "GROUP", "g", "c", "STREAMS", &key, ">"]).await.unwrap();
        let fields = ["a", "", "b\r\n", "2"].map(Value::bulk).to_vec();
        let entries = Value::Array(vec![Value::Array(vec![Value::bulk("1-0"), Value::Array(fields)])]);
        assert_eq!(reply, Value::Array(vec![Value::Array(vec![Value::bulk(&key), entries])]), "{}", server.name());
        assert_eq!(server.version().major, binary.version().major, "{}", server.name());
        let error = server.cli(&["XACK"]).await.unwrap_err();
        assert_eq!(error.reply().unwrap().code, "ERR");
    }
}

#[tokio::test]
async fn the_append_only_file_survives_a_kill_and_nothing_else_does() {
    if matrix::one().is_external() {
        return check_external_refuses().await;
    }
    for (options, survives) in [(ServerOptions::new().aof(AppendFsync::Always), true), (ServerOptions::new(), false)] {
        let mut server = start(&options).await;
        server.cli(&["SET", "k", "v"]).await.unwrap();
        let (port, url) = (server.port(), server.url());
        server.kill9().await.unwrap();
        server.kill9().await.unwrap();
        assert!(TcpStream::connect(server.address()).is_err(), "a killed server accepts no connection");
        server.restart().await.unwrap();
        assert_eq!((server.port(), server.url()), (port, url));
        let value = server.cli(&["GET", "k"]).await.unwrap();
        assert_eq!(value, if survives { Value::bulk("v") } else { Value::Nil });
    }
}

async fn check_external_refuses() {
    let mut server = start(&ServerOptions::new()).await;
    assert!(matches!(server.kill9().await, Err(SpawnError::External { .. })));
    let aof = ServerOptions::new().aof(AppendFsync::Always);
    assert!(matches!(RealServer::start(&matrix::one(), &aof).await, Err(SpawnError::External { .. })));
}

#[tokio::test]
async fn a_paused_server_answers_when_it_is_resumed() {
    if matrix::one().is_external() {
        return check_external_refuses().await;
    }
    let server = start(&ServerOptions::new()).await;
    let mut cli = server.connect().await.unwrap();
    server.pause().await.unwrap();
    let mut command = Box::pin(cli.command(&["PING"]));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut command).await;
    assert!(early.is_err(), "a paused server answers nothing");
    server.resume().await.unwrap();
    assert_eq!(command.await.unwrap(), Value::bulk("PONG"));
}

#[tokio::test]
async fn a_server_ends_with_its_value() {
    if matrix::one().is_external() {
        return check_external_refuses().await;
    }
    let server = start(&ServerOptions::new()).await;
    server.pause().await.unwrap();
    let (address, folder) = (server.address(), server.folder().map(Path::to_owned));
    drop(server);
    crate::eventually(Duration::from_secs(10), "the server's end", || async {
        TcpStream::connect(&address).is_err().then_some(())
    })
    .await;
    assert!(folder.is_none_or(|folder| !folder.exists()));
}

#[tokio::test]
async fn password_and_unix_socket_are_as_asked() {
    let options = ServerOptions::new().requirepass("hunter2").unix_socket();
    if matrix::one().path().is_none() {
        assert!(RealServer::start(&matrix::one(), &options).await.is_err(), "only a process has a unix socket");
        return;
    }
    let server = start(&options).await;
    assert_eq!(server.url(), format!("redis://:hunter2@127.0.0.1:{}/", server.port()));
    assert_eq!(server.cli(&["PING"]).await.unwrap(), Value::bulk("PONG"));
    let error = Cli::connect(&server.address(), None).await.unwrap().command(&["PING"]).await.unwrap_err();
    assert_eq!(error.reply().unwrap().code, "NOAUTH");
    assert!(std::os::unix::net::UnixStream::connect(server.unix_socket().unwrap()).is_ok());
    assert!(!format!("{server:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_ends_at_once_is_quoted() {
    let options = ServerOptions::new().args(["--no-such-option", "1"]).ready_within(Duration::from_secs(10));
    let text = RealServer::start(&matrix::one(), &options).await.unwrap_err().to_string();
    if matrix::one().path().is_some() {
        assert!(text.contains("ended at once") && text.contains("no-such-option"), "{text}");
    }
}

#[tokio::test]
async fn many_servers_at_once_have_ports_of_their_own() {
    if matrix::one().is_external() {
        return check_external_refuses().await;
    }
    let starts = (0..6).map(|_| tokio::spawn(async { start(&ServerOptions::new()).await }));
    let mut ports = Vec::new();
    let mut servers = Vec::new();
    for starting in starts.collect::<Vec<_>>() {
        let server = starting.await.unwrap();
        ports.push(server.port());
        servers.push(server);
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), servers.len());
}
