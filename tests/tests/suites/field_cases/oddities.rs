//! Servers that do not behave, played by a few lines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::work_for;
use streamkeeper::{Client, Consumer};
use streamkeeper_tests::Journal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::taking;

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// A server that knows no HELLO and no scripts, and gives `read` as the answer to every read, at once.
async fn odd(read: &'static str) -> (String, Counts) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let counts = Counts::default();
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, read, Arc::clone(&counted)));
        }
    });
    (url, counts)
}

async fn talk(stream: TcpStream, read: &'static str, counts: Counts) {
    let mut stream = BufReader::new(stream);
    while let Some(command) = request(&mut stream).await {
        let name = command[0].to_ascii_uppercase();
        *counts.lock().unwrap().entry(name.clone()).or_default() += 1;
        let answer = match name.as_str() {
            "XREADGROUP" => read,
            "PING" => "+PONG\r\n",
            "XGROUP" if command[1].eq_ignore_ascii_case("CREATECONSUMER") => ":1\r\n",
            "XGROUP" | "CLIENT" | "SELECT" => "+OK\r\n",
            _ => "-ERR unknown command\r\n",
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One request: an array of strings.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    async fn number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        line.trim_end().get(1..)?.parse().ok()
    }
    let mut arguments = Vec::new();
    for _ in 0..number(stream).await? {
        let mut text = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut text).await.ok()?;
        text.truncate(text.len() - 2);
        arguments.push(String::from_utf8_lossy(&text).into_owned());
    }
    Some(arguments)
}

#[tokio::test(flavor = "multi_thread")]
async fn b54_empty_replies_that_come_at_once_are_paced() {
    for read in ["*-1\r\n", "$-1\r\n", "*0\r\n", "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n"] {
        let (url, counts) = odd(read).await;
        let client = Client::open(&url).unwrap();
        let builder = Consumer::durable(&client).stream("s").group("g").block(Duration::from_secs(1));
        let running = taking(builder, &Journal::default(), Duration::ZERO);
        work_for(Duration::from_secs(3)).await;
        let counts = counts.lock().unwrap().clone();
        assert!((5..=15).contains(&counts["XREADGROUP"]), "{read:?}: {counts:?}");
        assert!(counts.values().sum::<u64>() < 40, "{read:?}: {counts:?}");
        assert!(!running.is_over(), "{read:?}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_an_unknown_shape_is_an_error_and_never_an_empty_result() {
    for read in [":7\r\n", "+OK\r\n", "*1\r\n:3\r\n", "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\nabc\r\n*0\r\n"] {
        let (url, counts) = odd(read).await;
        let client = Client::open(&url).unwrap();
        let builder = Consumer::durable(&client).stream("s").group("g").block(Duration::from_secs(1));
        let running = taking(builder, &Journal::default(), Duration::ZERO);
        work_for(Duration::from_secs(2)).await;
        let told = running.events.named("Reconnecting");
        assert!(running.is_over() || !told.is_empty(), "{read:?}: {:?}", running.events.all());
        assert!(told.iter().all(|told| told.text.contains("Protocol")), "{read:?}: {told:?}");
        let counts = counts.lock().unwrap().clone();
        assert!(counts["XREADGROUP"] < 10, "{read:?}: {counts:?}");
        running.shutdown.stop();
        let _ = running.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_a_group_that_is_missing_right_after_it_was_made_ends_the_run() {
    let (url, counts) = odd("-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n").await;
    let client = Client::open(&url).unwrap();
    let builder = Consumer::durable(&client)
        .stream("s")
        .group("g")
        .block(Duration::from_secs(1))
        .backoff(Duration::from_millis(10), Duration::from_millis(50));
    let running = taking(builder, &Journal::default(), Duration::ZERO);
    stream_testkit::eventually(Duration::from_secs(10), "the end of the run", || {
        std::future::ready(running.is_over().then_some(()))
    })
    .await;
    let error = running.ended().await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("NOGROUP"), "{error}");
    assert!(counts.lock().unwrap()["XREADGROUP"] <= 12, "{counts:?}");
}
