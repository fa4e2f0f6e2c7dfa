//! Prefect's messaging on the other side.

use std::time::Duration;

use serde_json::{Value, json};
use stream_testkit::{RealServer, work_for};
use streamkeeper::maint::{DeadLetters, LetterFilter, Redrive};
use streamkeeper::{DurableBuilder, Outcome, PrefectMessage, PrefectPublisher, StreamKey};
use streamkeeper_tests::{Ask, Peer, Running, start};

use super::{Handled, Line, assert_same, builder, lines, numbers, server};

fn peer(server: &RealServer, args: &[&str]) -> Peer {
    Peer::start("prefect_peer.py", &server.url(), args)
}

/// Starts a consumer that writes down what it handles, each for `time`.
fn handling(builder: DurableBuilder, handled: &Handled, time: Duration) -> Running {
    let handled = handled.clone();
    start(builder, move |PrefectMessage { data, attributes }: PrefectMessage| {
        let handled = handled.clone();
        async move {
            if !time.is_zero() {
                work_for(time).await;
            }
            handled.add(Line::new(&data, attributes));
        }
    })
}

/// Publishes messages of every shape that Prefect can read; returns them.
async fn publish(server: &RealServer, key: &str, count: u64) -> Vec<Line> {
    let publisher = PrefectPublisher::builder(&server.client()).topic(key).batch_size(100).build().unwrap();
    let mut lines = Vec::new();
    for n in 0..count {
        let data = match n % 5 {
            _ if n == 7 => "x".repeat(1 << 20),
            0 => format!("text {n}"),
            1 => json!({"n": n, "list": [1, null, "x"]}).to_string(),
            2 => format!("größe → 漢字 🦀 {n}"),
            3 => String::new(),
            _ => format!("line one\r\nline two\0{n}"),
        };
        let headers: Vec<(String, Value)> = vec![
            ("id".to_owned(), format!("m-{n}").into()),
            ("n".to_owned(), n.into()),
            ("ünïcode".to_owned(), "→".into()),
            ("deep".to_owned(), json!({"list": [1, null, true]})),
        ];
        let receipt = publisher.enqueue(&data, headers.clone()).await.unwrap();
        drop(receipt);
        lines.push(Line::new(data.as_bytes(), headers));
    }
    assert!(publisher.publisher().close(Duration::from_secs(30)).await.is_empty());
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn what_prefect_publishes_is_handled_byte_for_byte() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    let key = server.fresh_key("prefect");
    let (published, again) = (folder.path().join("published"), folder.path().join("again"));
    let handled = Handled::default();
    let consumer = handling(builder(&server, &key).concurrency(1), &handled, Duration::ZERO);
    peer(&server, &["publish", &key, published.to_str().unwrap(), "1000"]).done().await;
    server.until("1000 messages to be handled", || async { handled.len() >= 1000 }).await;
    assert_same(&handled.lines(), &lines(&published));
    assert_eq!(consumer.stop().await.stats.acknowledged, 1000);

    // What one side has published with deduplication is a duplicate on the other.
    let key = server.fresh_key("prefect-once");
    let publisher = PrefectPublisher::builder(&server.client()).topic(&key).deduplicate_by("id").build().unwrap();
    assert!(publisher.publish("ours", [("id", format!("{key}-1"))]).await.unwrap().is_some());
    let message = |n: u32| format!("{{\"body\": \"70\", \"headers\": {{\"id\": \"{key}-{n}\"}}}}\n");
    std::fs::write(&again, [message(1), message(2)].concat()).unwrap();
    peer(&server, &["duplicate", &key, again.to_str().unwrap()]).done().await;
    assert_eq!(publisher.publish("ours", [("id", format!("{key}-2"))]).await.unwrap(), None);
    assert_eq!(server.len(&key).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_we_publish_is_handled_by_prefect() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    let key = server.fresh_key("prefect");
    let handled = folder.path().join("handled");
    let published = publish(&server, &key, 1000).await;
    peer(&server, &["consume", &key, "g", handled.to_str().unwrap(), "1000"]).done().await;
    assert_same(&lines(&handled), &published);
    assert_eq!(server.pending(&key, "g").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_dead_letters_go_back_to_be_handled_by_prefect() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    let key = server.fresh_key("prefect-dead");
    let handled = folder.path().join("handled");
    let published = publish(&server, &key, 10).await;
    let consumer = start(builder(&server, &key), |_: PrefectMessage| async { Outcome::reject("not ours") });
    let dead = format!("{key}:dead");
    server.until("ten dead letters", || async { server.len(&dead).await == 10 }).await;
    consumer.stop().await;
    let mut letters = DeadLetters::new(&server.client(), &dead).unwrap();
    assert_eq!(letters.list(&LetterFilter::all().reason("rejected"), None, 20).await.unwrap().letters.len(), 10);
    assert_eq!(letters.redrive(&Redrive::new()).await.unwrap().redriven, 10);
    peer(&server, &["consume", &key, "g", handled.to_str().unwrap(), "10"]).done().await;
    let (mut found, mut expected) = (lines(&handled), published);
    found.sort_by_key(Line::number);
    expected.sort_by_key(Line::number);
    assert_same(&found, &expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_prefect_are_listed_and_go_back_to_be_handled_here() {
    let server = server().await;
    let key = server.fresh_key("prefect-letters");
    let published = publish(&server, &key, 10).await;
    peer(&server, &["fail", &key, "g", "10"]).done().await;
    let mut letters = DeadLetters::prefect(&server.client(), "dlq").unwrap();
    let page = letters.list(&LetterFilter::all(), None, 20).await.unwrap();
    let attempts: Vec<_> = page.letters.iter().map(|letter| letter.content.as_ref().unwrap().attempts).collect();
    assert_eq!(attempts, [Some(2); 10], "one retry was allowed");
    let redrive = Redrive::new().to(StreamKey::new(&key).unwrap());
    assert_eq!(letters.redrive(&redrive).await.unwrap().redriven, 10);
    assert_eq!(letters.len().await.unwrap(), 0);
    let handled = Handled::default();
    let consumer = handling(builder(&server, &key), &handled, Duration::ZERO);
    server.until("ten messages to be handled", || async { handled.len() == 10 }).await;
    consumer.stop().await;
    let (mut found, mut expected) = (handled.lines(), published);
    found.sort_by_key(Line::number);
    expected.sort_by_key(Line::number);
    assert_same(&found, &expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_both_kinds_share_a_group_and_one_that_is_killed_loses_nothing() {
    let (server, folder) = (server().await, tempfile::tempdir().unwrap());
    for python_dies in [true, false] {
        let key = server.fresh_key("prefect-shared");
        let path = folder.path().join(format!("handled-{python_dies}"));
        server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        let theirs = peer(&server, &["work", &key, "g", "theirs", path.to_str().unwrap()]);
        server.until("their worker to be there", || async { server.consumers(&key, "g").await > 0 }).await;
        let published = publish(&server, &key, 2000).await;
        // Ours is several times as quick and might leave nothing for theirs.
        server.until("their worker to have handled some", || async { lines(&path).len() >= 50 }).await;
        let handled = Handled::default();
        // Prefect renews nothing: a lease that is longer than its slowest batch keeps ours from taking that over.
        let ours = builder(&server, &key).consumer("ours").lease(Duration::from_secs(3)).concurrency(4).prefetch(10);
        let ours = handling(ours, &handled, Duration::from_millis(5));
        server.until("ours to have handled some", || async { handled.len() >= 100 }).await;
        if python_dies {
            theirs.kill();
            server.until("all messages to be settled", || async { server.pending(&key, "g").await == 0 }).await;
            let all = || async { numbers(&[handled.lines(), lines(&path)].concat()).len() == published.len() };
            server.until("all messages to be handled", all).await;
            ours.stop().await;
        } else {
            ours.crash().await;
            let all = || async {
                server.pending(&key, "g").await == 0
                    && numbers(&[handled.lines(), lines(&path)].concat()).len() == published.len()
            };
            stream_testkit::eventually(Duration::from_secs(60), "all messages to be handled by them", || async {
                all().await.then_some(())
            })
            .await;
            theirs.kill();
        }
        let found = numbers(&[handled.lines(), lines(&path)].concat());
        assert_eq!(found, numbers(&published), "python dies: {python_dies}");
    }
}
