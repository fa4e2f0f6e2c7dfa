//! Greeting, authentication and what a failure says.

use std::time::Duration;

use stream_redis::{Client, Error, ErrorKind, Recovery, Request, Value};
use stream_testkit::{ServerOptions, eventually};

use crate::every_server::{key, ok, on_every_server};

async fn call(url: &str, request: Request) -> Result<Value, Error> {
    Client::open(url)?.connector().connect(&key()).await?.call(&request).await
}

/// A connection to `url` fails with `kind` at `command` (empty: not a command's fault), saying `words`.
async fn check_refused(url: &str, kind: ErrorKind, command: &str, words: &str) {
    let error = call(url, Request::new("XLEN").arg("s")).await.expect_err(url);
    let text = format!("{error} | {error:?}");
    assert_eq!(error.kind(), kind, "{url}: {text}");
    assert_eq!(error.command().unwrap_or_default(), command, "{url}: {text}");
    assert!(text.contains(words), "{url}: {text}");
    assert!(!text.contains("hunter2"), "{url}: {text}");
}

#[tokio::test]
async fn every_server_is_greeted_over_both_protocols() {
    on_every_server(ServerOptions::new().unix_socket(), async |server| {
        let socket = server.unix_socket().unwrap();
        for address in [server.url(), format!("redis+unix://{}", socket.display())] {
            for protocol in ["", "&protocol=resp2", "&protocol=resp3"] {
                let url = format!("{address}?db=3&client_name=greeter{protocol}");
                let listed = call(&url, Request::new("CLIENT LIST")).await.unwrap();
                let listed = String::from_utf8_lossy(listed.as_bytes().unwrap()).into_owned();
                let line = listed.lines().find(|line| line.contains("name=greeter")).unwrap_or_default();
                assert!(line.contains("db=3"), "{url}: {listed}");
                // Redis 6.2 does not list the protocol; the shape of a map tells it.
                let config = call(&url, Request::new("CONFIG GET").arg("port")).await.unwrap();
                let map = protocol != "&protocol=resp2";
                assert_eq!(matches!(config, Value::Map(_)), map, "{url}: {config:?}");
            }
        }
        check_refused(&format!("{}99", server.url()), ErrorKind::Refused, "SELECT", "cluster has only 0").await;
        let resp2 = format!("{}99?protocol=resp2", server.url());
        check_refused(&resp2, ErrorKind::Refused, "SELECT", "DB index is out of range").await;
    })
    .await;
}

#[tokio::test]
async fn users_and_passwords() {
    on_every_server(ServerOptions::new(), async |server| {
        for user in ["free on nopass ~* +@all", "app on >hunter2:@ ~* +xlen", "default on >hunter2"] {
            ok(&server, &format!("ACL SETUSER {user}")).await;
        }
        let at = |user: &str, rest: &str| format!("redis://{user}{}/{rest}", server.address());
        for protocol in ["", "?protocol=resp2"] {
            for user in [":hunter2@", "default:hunter2@", "app:hunter2%3A%40@", "free@", "free:anything@"] {
                let length = call(&at(user, protocol), Request::new("XLEN").arg("s")).await;
                assert_eq!(length.unwrap(), Value::Int(0), "{user} {protocol}");
            }
            let command = if protocol.is_empty() { "HELLO" } else { "AUTH" };
            let ping = if protocol.is_empty() { "HELLO" } else { "PING" };
            let auth = ErrorKind::Authentication;
            check_refused(&at("", protocol), auth, ping, "asks for a password and none is given").await;
            check_refused(&at("app:x@", protocol), auth, command, "WRONGPASS").await;
            check_refused(&at("x@", protocol), auth, command, "redis://:password@host").await;
            check_refused(&at(":x@", protocol), auth, command, "tried for `default`").await;
        }
        let db = at("app:hunter2%3A%40@", "1");
        check_refused(&db, ErrorKind::NoPermission, "SELECT", "allow the user SELECT").await;
        check_refused(&format!("{db}?protocol=resp2"), ErrorKind::NoPermission, "SELECT", "allow the user SELECT")
            .await;
    })
    .await;
}

#[tokio::test]
async fn a_password_for_a_server_without_one() {
    on_every_server(ServerOptions::new(), async |server| {
        let url = format!("redis://:hunter2@{}/", server.address());
        // Over HELLO the password is for the user `default`, who takes any; AUTH alone is refused by the server.
        assert_eq!(call(&url, Request::new("XLEN").arg("s")).await.unwrap(), Value::Int(0));
        let url = format!("{url}?protocol=resp2");
        check_refused(&url, ErrorKind::Authentication, "AUTH", "leave the password out").await;
    })
    .await;
}

#[tokio::test]
async fn a_server_without_hello_is_greeted_in_resp2() {
    on_every_server(
        ServerOptions::new().requirepass("hunter2").args(["--rename-command", "HELLO", ""]),
        async |server| {
            let url = format!("{}2?client_name=old", server.url());
            let named = call(&url, Request::new("CLIENT GETNAME")).await.unwrap();
            assert_eq!(named, Value::bulk("old"));
            check_refused(&format!("{url}&protocol=resp3"), ErrorKind::Unsupported, "HELLO", "leave the protocol out")
                .await;
            // Whether the missing command or the missing password comes first differs; the error does not.
            let error = call(&format!("redis://{}/", server.address()), Request::new("PING")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Authentication, "{error:?}");
            assert!(error.to_string().contains("none is given"), "{error:?}");
        },
    )
    .await;
}

#[tokio::test]
async fn a_full_server_says_so() {
    on_every_server(ServerOptions::new(), async |server| {
        let client = Client::open(&server.url()).unwrap();
        ok(&server, "CONFIG SET maxclients 1").await;
        // The server may not have noticed yet that whoever set that is gone.
        let holder = eventually(Duration::from_secs(30), "room for one client", async || {
            match client.connector().connect(&key()).await {
                Ok(holder) => Some(holder),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TooManyClients, "{error:?}");
                    None
                }
            }
        })
        .await;
        let Err(error) = client.connector().connect(&key()).await else { panic!("let in") };
        assert_eq!(error.kind(), ErrorKind::TooManyClients, "{error:?}");
        assert_eq!(error.recovery(), Recovery::Reconnect);
        assert_eq!(holder.call(&Request::new("PING")).await.unwrap(), Value::bulk("PONG"));
    })
    .await;
}

#[tokio::test]
async fn an_address_where_nobody_listens() {
    check_refused("redis://127.0.0.1:1/", ErrorKind::Io, "", "cannot connect to 127.0.0.1:1").await;
    let error = call("redis://no-such-host.invalid/", Request::new("XLEN").arg("s")).await.unwrap_err();
    // Where the name server does not answer, the connection's time is over first.
    let words = if error.kind() == ErrorKind::Timeout { "took longer than" } else { "cannot resolve the host" };
    assert!([ErrorKind::Io, ErrorKind::Timeout].contains(&error.kind()), "{error:?}");
    assert!(error.to_string().contains(words), "{error:?}");
    check_refused("redis+unix:///no/such.sock", ErrorKind::Io, "", "cannot connect to the socket /no/such.sock").await;
}
