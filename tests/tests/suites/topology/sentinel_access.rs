//! Sentinels and servers with passwords of their own, and sentinels that name a server which is no master.

use stream_testkit::{RealServer, Scripted, SentinelSetup, ServerBinary, ServerOptions, eventually};
use streamkeeper::{Client, ErrorKind, Publisher, StreamKey};
use streamkeeper_tests::{Ask, Journal, start};

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

/// A sentinel that is sure of its master, whatever that says of itself.
async fn insists_on(master: u16) -> Scripted {
    let answer = move |args: &[String]| match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", ..] => {
            let port = master.to_string();
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
        }
        ["SUBSCRIBE", channel] => format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len()),
        _ => "*0\r\n".to_owned(),
    };
    Scripted::start(answer).await.unwrap()
}

async fn names_a_replica(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let master = RealServer::start(&binary, &ServerOptions::new()).await.unwrap();
    let follow = ["--replicaof", "127.0.0.1", &master.port().to_string()];
    let replica = RealServer::start(&binary, &ServerOptions::new().args(follow)).await.unwrap();
    master.ask("XADD orders 1-1 data 1").await;
    replicated(&master).await;
    let sentinel = insists_on(replica.port()).await;
    let client =
        Client::open(&format!("redis+sentinel://127.0.0.1:{}/main?connect_timeout=1s", sentinel.port())).unwrap();
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
