//! What each server can do, and that asking it changes nothing.

use stream_core::StreamKey;
use stream_redis::{Capabilities, Capability, Client, Request};

use crate::support::{Server, servers};

/// What the versions of the matrix can do, lowest first.
fn expected(server: &str) -> Capabilities {
    use Capability::{AckDel, AckedTrim, AutoClaim, DeletedIds, Idempotent, ReadClaim, Scripts};
    let mut all = vec![AutoClaim, Scripts];
    if server != "redis-6.2" {
        all.push(DeletedIds);
    }
    if server == "redis-8.6" {
        all.extend([AckDel, AckedTrim, ReadClaim, Idempotent]);
    }
    all.into_iter().collect()
}

#[tokio::test]
async fn every_server_tells_what_it_can_do() {
    let key = StreamKey::new("s").unwrap();
    for folder in servers() {
        let server = Server::start(&folder, &[]);
        if !["redis-6.2", "redis-7.0", "redis-8.0", "redis-8.6", "valkey-8.1", "valkey-9.1"].contains(&&*server.name) {
            eprintln!("SKIPPED: nothing is known of {}", server.name);
            continue;
        }
        for protocol in ["resp2", "resp3"] {
            let client = Client::open(&format!("{}?protocol={protocol}", server.url())).unwrap();
            let connection = client.connector().connect(&key).await.unwrap();
            let dump = async || connection.call(&Request::new("DUMP").key(&key)).await.unwrap();
            for content in
                [&[][..], &["XADD", "s", "5-5", "a", "b"], &["XADD", "s", "6-6", "a", "b"], &["SET", "s", "x"]]
            {
                if let [command, words @ ..] = content {
                    let command = if *command == "SET" { "SET" } else { "XADD" };
                    let request = words.iter().fold(Request::new(command), Request::arg);
                    connection.call(&request).await.unwrap();
                }
                let before = dump().await;
                let found = Capabilities::probe(&*connection, &key).await.unwrap();
                assert_eq!(found, expected(&server.name), "{}: {protocol}: {content:?}", server.name);
                assert_eq!(dump().await, before, "{}: {content:?}", server.name);
            }
            connection.call(&Request::new("FLUSHALL")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_user_who_may_little_is_told_what_is_left() {
    let key = StreamKey::new("s").unwrap();
    for folder in servers() {
        let server = Server::start(&folder, &[]);
        let admin = Client::open(&server.url()).unwrap().connector().connect(&key).await.unwrap();
        let words = "reader on >p ~s +xreadgroup +xack +xautoclaim +command|docs"
            .replace("+command|docs", if server.name == "redis-6.2" { "+command" } else { "+command|docs" });
        admin.call(&words.split(' ').fold(Request::new("ACL SETUSER"), Request::arg)).await.unwrap();
        let url = format!("redis://reader:p@127.0.0.1:{}/", server.port);
        let connection = Client::open(&url).unwrap().connector().connect(&key).await.unwrap();
        let found = Capabilities::probe(&*connection, &key).await.unwrap();
        let left = [Capability::AutoClaim, Capability::DeletedIds, Capability::ReadClaim];
        let left: Capabilities = left.into_iter().filter(|left| expected(&server.name).has(*left)).collect();
        assert_eq!(found, left, "{}", server.name);
    }
}
