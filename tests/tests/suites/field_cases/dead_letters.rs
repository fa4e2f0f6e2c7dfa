//! Dead letters: first written, then acknowledged, whatever is cut or refused between the two.

use std::time::Duration;

use stream_testkit::proxy::{Moment, Proxy};
use stream_testkit::{RealServer, ServerOptions};
use streamkeeper::{Client, Consumer, Context, Data, DeadLetter, Outcome};
use streamkeeper_tests::{Ask, Journal, Running, on_each, on_each_own, start};

use super::settled;

/// A consumer that rejects the entry with the payload `3`.
fn rejecting(builder: streamkeeper::DurableBuilder, journal: &Journal) -> Running {
    let seen = journal.clone();
    let builder = builder.backoff(Duration::from_millis(20), Duration::from_millis(200));
    start(builder, move |Data(data): Data, cx: Context| {
        seen.begin(&cx).end();
        async move { if data == "3" { Outcome::reject("three") } else { Outcome::Done } }
    })
}

/// The letters of a stream.
async fn letters(server: &RealServer, key: &str) -> Vec<DeadLetter> {
    server.entries(key).await.iter().map(|entry| DeadLetter::from_entry(entry).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_a_connection_cut_around_a_dead_letter_leaves_exactly_one_in_one_step() {
    on_each(|server| async move {
        let name = server.name().to_owned();
        for moment in [Moment::BeforeRequest, Moment::BeforeReply] {
            let key = server.fresh_key("b24");
            let dead = format!("{key}:dead");
            let ids = server.publish(&key, 10).await;
            let proxy = Proxy::start(server.address()).await.unwrap();
            // The name of their stream is in the one request that writes dead letters.
            proxy.cut_at(dead.as_str(), moment);
            let journal = Journal::default();
            let client = Client::open(&proxy.url()).unwrap();
            let running = rejecting(Consumer::durable(&client).stream(&key).group("g"), &journal);
            server
                .until("the dead letter", || async {
                    server.len(&dead).await >= 1 && server.pending(&key, "g").await == 0
                })
                .await;
            settled(&server, &key, &journal, 10).await;
            running.stop().await;
            assert_eq!(proxy.cuts(), 1, "{name}");
            let letters = letters(&server, &dead).await;
            assert_eq!(letters.len(), 1, "{name}: {moment:?}");
            assert_eq!((letters[0].entry.id(), letters[0].attempts), (ids[3], 1), "{name}: {moment:?}");
            assert_eq!(letters[0].stream.as_bytes(), key.as_bytes(), "{name}");
            assert_eq!((letters[0].group.as_bytes(), letters[0].reason.detail()), (&b"g"[..], Some("three")), "{name}");
            assert_eq!(journal.starts(), 10, "{name}: {moment:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_without_scripts_a_cut_between_the_two_steps_leaves_a_duplicate_and_never_a_loss() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("ACL SETUSER plain on >word ~* +@all -eval -evalsha").await;
        for (word, moment, most) in [("XADD", Moment::BeforeRequest, 1), ("XADD", Moment::BeforeReply, 2)] {
            let key = server.fresh_key("b24");
            let dead = format!("{key}:dead");
            let ids = server.publish(&key, 10).await;
            let proxy = Proxy::start(server.address()).await.unwrap();
            proxy.cut_at(word, moment);
            let journal = Journal::default();
            let client = Client::open(&proxy.url().replace("redis://", "redis://plain:word@")).unwrap();
            let running = rejecting(Consumer::durable(&client).stream(&key).group("g"), &journal);
            server
                .until("the dead letter", || async {
                    server.len(&dead).await >= 1 && server.pending(&key, "g").await == 0
                })
                .await;
            running.stop().await;
            assert_eq!(proxy.cuts(), 1, "{name}");
            let letters = letters(&server, &dead).await;
            assert!((1..=most).contains(&letters.len()), "{name}: {moment:?}: {}", letters.len());
            assert!(letters.iter().all(|letter| letter.entry.id() == ids[3]), "{name}: a replay can tell duplicates");
            assert_eq!(journal.finished(), 10, "{name}");
        }
    })
    .await;
}
