//! Connections to real servers: greeting, authentication, commands.

use crate::support::{Server, servers};
use stream_core::StreamKey;
use stream_redis::{Client, Error, ErrorKind, Request, Value};

async fn call(url: &str, request: Request) -> Result<Value, Error> {
    let client = Client::open(url)?;
    let connection = client.connector().connect(&StreamKey::new("s").unwrap()).await?;
    connection.call(&request).await
}

#[tokio::test]
async fn every_server_is_greeted_over_both_protocols() {
    for folder in servers() {
        let server = Server::start(&folder, &["--unixsocket", "r.sock"]);
        let socket = server.socket();
        for address in [server.url(), format!("redis+unix://{}", socket.display())] {
            for protocol in ["", "&protocol=resp2", "&protocol=resp3"] {
                let url = format!("{address}?db=3&client_name=greeter{protocol}");
                let listed = call(&url, Request::new("CLIENT LIST")).await.unwrap();
                let listed = String::from_utf8_lossy(listed.as_bytes().unwrap()).into_owned();
                let line = listed.lines().find(|line| line.contains("name=greeter")).unwrap_or_default();
                assert!(line.contains("db=3"), "{}: {url}: {listed}", server.name);
                assert_eq!(
                    line.contains("resp=3"),
                    protocol != "&protocol=resp2" && !server.name.contains("6.2"),
                    "{}: {url}: {line}",
                    server.name
                );
            }
        }
        let error = call(&format!("{}99", server.url()), Request::new("PING")).await.unwrap_err();
        assert_eq!((error.kind(), error.command()), (ErrorKind::Refused, Some("SELECT")), "{}: {error}", server.name);
    }
}
