//! Sentinels and servers with passwords of their own, and sentinels that name a server which is no master.

use stream_testkit::{RealServer, SentinelSetup, ServerBinary, ServerOptions, eventually};
use streamkeeper::{Client, ErrorKind, Publisher, StreamKey};
use streamkeeper_tests::{Ask, Journal, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::load::Seen;
use super::{LIMIT, durable, noting, on_programs, on_some_programs, publish, replicated};

async fn with_passwords(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut setup = SentinelSetup::start(&binary, &ServerOptions::new().requirepass("hunter2")).await;
    let client = Client::open(&setup.url()).unwrap();
    let seen = Seen::default();
    let consumer = start(durable(&client).stream("orders"), seen.handler());
    let publisher = Publisher::builder(&client).stream("orders").build().unwrap();
    let before = publish(&publisher, 100).await;
    seen.all("orders", &before, &format!("on {name}")).await;
    let master = setup.master().await;
    replicated(&setup.servers[master]).await;
    setup.servers[master].kill9().await.unwrap();
    setup.until_other_than(master).await;
    let after = publish(&publisher, 100).await;
    seen.all("orders", &after, &format!("after the failover on {name}")).await;
    consumer.stop().await;

    // Each password is one server's own, and what is refused says whose.
    for (right, wrong) in [("sentinel_pass=watchword", "sentinel_pass=hunter2"), (":hunter2@", ":watchword@")] {
        let client = Client::open(&setup.url().replace(right, wrong)).unwrap();
        let error = client.connector().connect(&StreamKey::new("orders").unwrap()).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Authentication, "{wrong} on {name}: {error}");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("hunter2") && !told.contains("watchword"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_servers_have_passwords_of_their_own() {
    on_programs(with_passwords).await;
}

/// The number behind the sign at `at`, and where the next line begins.
fn number(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let end = at + bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((std::str::from_utf8(bytes.get(at + 1..end)?).ok()?.parse().ok()?, end + 2))
}

/// The first command, if it is there whole, and the bytes that it takes.
fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let (count, mut at) = number(bytes, 0)?;
    let mut args = Vec::new();
    for _ in 0..count {
        let (length, begin) = number(bytes, at)?;
        args.push(String::from_utf8_lossy(bytes.get(begin..begin + length)?).into_owned());
        at = begin + length + 2;
    }
    Some((args, at))
}

/// A sentinel that is sure of its master, whatever that says of itself.
async fn insists_on(master: u16) -> u16 {
    async fn serve(mut stream: TcpStream, master: u16) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        while stream.read_buf(&mut bytes).await? > 0 {
            while let Some((args, used)) = command(&bytes) {
                bytes.drain(..used);
                let told = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    ["HELLO", ..] => "-ERR unknown command\r\n".to_owned(),
                    ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", ..] => {
                        let port = master.to_string();
                        format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
                    }
                    ["SENTINEL", ..] => "*0\r\n".to_owned(),
                    ["SUBSCRIBE", channel] => {
                        format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len())
                    }
                    _ => "+PONG\r\n".to_owned(),
                };
                stream.write_all(told.as_bytes()).await?;
            }
        }
        Ok(())
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, master));
        }
    });
    port
}

async fn names_a_replica(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let master = RealServer::start(&binary, &ServerOptions::new()).await.unwrap();
    let follow = ["--replicaof", "127.0.0.1", &master.port().to_string()];
    let replica = RealServer::start(&binary, &ServerOptions::new().args(follow)).await.unwrap();
    master.ask("XADD orders 1-1 data 1").await;
    replicated(&master).await;
    let sentinel = insists_on(replica.port()).await;
    let client = Client::open(&format!("redis+sentinel://127.0.0.1:{sentinel}/main?connect_timeout=1s")).unwrap();
    let error = client.connector().connect(&StreamKey::new("orders").unwrap()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Moved, "{error}");
    assert!(error.to_string().contains("is no master but slave"), "{error}");

    let journal = Journal::default();
    let consumer = start(durable(&client).stream("orders"), noting(&journal));
    eventually(LIMIT, "the consumer to try again", || {
        std::future::ready((consumer.stats.get().reconnects > 1).then_some(()))
    })
    .await;
    assert_eq!(journal.ends(), 0, "nothing is read from a replica, {name}");
    replica.ask("REPLICAOF NO ONE").await;
    eventually(LIMIT, "the entry to be handled", || std::future::ready((journal.ends() == 1).then_some(()))).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_it_is_a_replica_is_not_used_until_it_is_a_master() {
    on_some_programs(names_a_replica).await;
}
