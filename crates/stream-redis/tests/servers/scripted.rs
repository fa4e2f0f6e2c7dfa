//! Nodes and sentinels that say what no real one can be brought to say in a test.

use std::time::Duration;

use futures_util::future::join_all;
use stream_core::StreamKey;
use stream_redis::{Client, ErrorKind, Recovery, Request, Value};
use stream_testkit::{Scripted, eventually};
use tokio::net::TcpListener;

use crate::every_server::key;

/// One that is in the slots from 0 on, and one in those from 8192 on.
const LOW: &str = "b";
const HIGH: &str = "a";

fn slots(low: u16, high: u16) -> String {
    let range =
        |first: u16, last: u16, port: u16| format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n");
    format!("*2\r\n{}{}", range(0, 8_191, low), range(8_192, 16_383, high))
}

fn client(port: u16) -> Client {
    Client::open(&format!("redis+cluster://127.0.0.1:{port}?connect_timeout=1s&response_timeout=1s")).unwrap()
}

/// As after a migration that died between its last two steps.
#[tokio::test]
async fn nodes_that_point_to_each_other_are_asked_a_few_times_and_then_less_often() {
    let ports = std::sync::Arc::new(std::sync::Mutex::new([0_u16; 2]));
    let mut nodes = Vec::new();
    for own in 0..2 {
        let ports = std::sync::Arc::clone(&ports);
        let node = Scripted::start(move |args| {
            let ports = *ports.lock().unwrap();
            match args[0].as_str() {
                "CLUSTER" => slots(ports[0], ports[0]),
                _ => format!("-MOVED 15495 127.0.0.1:{}\r\n", ports[1 - own]),
            }
        });
        nodes.push(node.await.unwrap());
    }
    *ports.lock().unwrap() = [nodes[0].port(), nodes[1].port()];
    let client = client(nodes[0].port());
    let key = StreamKey::new(HIGH).unwrap();
    let error = client.connector().open_reader(&key, "r").await.err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Moved | ErrorKind::Timeout), "{error}");
    let asked = nodes.iter().map(Scripted::accepted).sum::<u64>();
    // Seven of them about each quarter of a second.
    assert!((5..=100).contains(&asked), "{asked} connections in a second");
}

/// Dead letters live in another slot, for example, and their node is away.
#[tokio::test]
async fn a_node_of_another_slot_that_is_away_is_no_reason_to_leave_that_of_the_stream() {
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let own = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(0));
    let known = std::sync::Arc::clone(&own);
    let near = Scripted::start(move |args| match args[0].as_str() {
        "CLUSTER" => slots(away, known.load(std::sync::atomic::Ordering::SeqCst)),
        _ => ":7\r\n".to_owned(),
    });
    let near = near.await.unwrap();
    own.store(near.port(), std::sync::atomic::Ordering::SeqCst);
    let connection = client(near.port()).connector().connect(&StreamKey::new(HIGH).unwrap()).await.unwrap();
    let length = |key: &str| Request::new("XLEN").key(&StreamKey::new(key).unwrap());
    let error = connection.call(&length(LOW)).await.unwrap_err();
    assert_eq!((error.kind(), error.recovery()), (ErrorKind::Busy, Recovery::Retry), "{error}");
    assert!(std::error::Error::source(&error).is_some(), "{error}");
    assert_eq!(connection.call(&length(HIGH)).await.unwrap(), Value::Int(7));
}

#[tokio::test]
async fn callers_that_wait_for_the_same_node_learn_together_that_it_is_away() {
    let hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = hole.local_addr().unwrap().port();
    let counted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&counted);
    let holding = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = hole.accept().await {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            held.push(stream);
        }
    });
    let own = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(0));
    let known = std::sync::Arc::clone(&own);
    let near = Scripted::start(move |args| match args[0].as_str() {
        "CLUSTER" => slots(port, known.load(std::sync::atomic::Ordering::SeqCst)),
        _ => ":7\r\n".to_owned(),
    });
    let near = near.await.unwrap();
    own.store(near.port(), std::sync::atomic::Ordering::SeqCst);
    let client = client(near.port());
    let connection = client.connector().connect(&StreamKey::new(HIGH).unwrap()).await.unwrap();
    let far = StreamKey::new(LOW).unwrap();
    let calls = join_all((0..8).map(|_| async { connection.call(&Request::new("XLEN").key(&far)).await }));
    for answer in calls.await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Busy);
    }
    assert_eq!(counted.load(std::sync::atomic::Ordering::SeqCst), 1, "one tries for all");
    holding.abort();
}

/// A sentinel that is sure of its master, at this epoch.
async fn names(port: u16, epoch: u64) -> Scripted {
    let answer = move |args: &[String]| match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", ..] => {
            let port = port.to_string();
            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
        }
        ["SENTINEL", ..] => format!("*2\r\n$12\r\nconfig-epoch\r\n${}\r\n{epoch}\r\n", epoch.to_string().len()),
        _ => "+OK\r\n".to_owned(),
    };
    Scripted::start(answer).await.unwrap()
}

/// Says what it is, and knows how long its stream is.
async fn master(length: i64) -> Scripted {
    let answer = move |args: &[String]| match args[0].as_str() {
        "ROLE" => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned(),
        _ => format!(":{length}\r\n"),
    };
    Scripted::start(answer).await.unwrap()
}

async fn length(client: &Client) -> Value {
    let connection = client.connector().connect(&key()).await.unwrap();
    connection.call(&Request::new("XLEN").key(&key())).await.unwrap()
}

fn through(sentinels: &[&Scripted]) -> Client {
    let hosts: Vec<_> = sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    Client::open(&format!("redis+sentinel://{}/main?connect_timeout=2s", hosts.join(","))).unwrap()
}

/// An address that was used again: whoever is there has nothing to do with it.
#[tokio::test]
async fn a_server_that_refuses_for_good_is_not_the_last_that_is_tried() {
    let refuses = Scripted::start(|_| "-NOAUTH Authentication required.\r\n".to_owned()).await.unwrap();
    let good = master(3).await;
    let (newer, older) = (names(refuses.port(), 2).await, names(good.port(), 1).await);
    assert_eq!(length(&through(&[&newer, &older])).await, Value::Int(3));
}

#[tokio::test]
async fn a_sentinel_that_missed_a_failover_is_not_believed_once_another_has_told_of_it() {
    let (old, new) = (master(1).await, master(2).await);
    let (behind, ahead) = (names(old.port(), 1).await, names(new.port(), 2).await);
    let client = through(&[&behind, &ahead]);
    assert_eq!(length(&client).await, Value::Int(2));
    // Only the one that is behind can be reached now.
    let address = ("127.0.0.1", ahead.port());
    drop(ahead);
    eventually(Duration::from_secs(20), "the other one to be gone", || async {
        tokio::net::TcpStream::connect(address).await.is_err().then_some(())
    })
    .await;
    assert_eq!(length(&client).await, Value::Int(2));
}
