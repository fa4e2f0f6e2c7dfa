//! Connections that turn half open in the middle of one command: the sockets stay, the other side is not heard any more.

use std::sync::Arc;
use std::time::Duration;

use stream_redis::command::Script;
use stream_testkit::proxy::{Moment, Proxy, Silence};
use stream_testkit::{RealServer, work_for};
use streamkeeper::maint::Trimmer;
use streamkeeper::{Client, Consumer, Context, Json, Outcome};
use streamkeeper_tests::{Ask, Journal, on_each, start};
use tokio::task::JoinSet;

/// The commands during which a connection goes half open, and what passes on it then.
fn words() -> [(&'static str, &'static str); 6] {
    [
        ("block", "XREADGROUP"),
        ("claim", "XAUTOCLAIM"),
        ("renew", Script::renew().sha()),
        ("acknowledge", "XACK"),
        ("dead letter", Script::dead_letter().sha()),
        ("trim", "XTRIM"),
    ]
}

/// Entries before the connection goes half open, and after.
const ENTRIES: usize = 20;

/// A consumer through the proxy: BLOCK 1 s, answers within 500 ms, pauses up to 200 ms.
fn client(proxy: &Proxy) -> Client {
    Client::open(&format!("{}?response_timeout=500ms&connect_timeout=500ms", proxy.url())).unwrap()
}

/// In both directions and in one, during each command. A lease of six seconds is renewed every two, and one entry is held
/// longer than that: nothing is taken over, so that each entry is handled once, whatever was not heard.
#[tokio::test(flavor = "multi_thread")]
async fn b43_a_connection_half_open_in_any_command_is_left_and_nothing_is_lost_or_repeated() {
    on_each(|server| async move {
        let server = Arc::new(server);
        let mut cases = JoinSet::new();
        for (what, word) in words() {
            for silence in [Silence::Both, Silence::Replies] {
                cases.spawn(half_open(Arc::clone(&server), what, word, silence));
            }
        }
        while let Some(case) = cases.join_next().await {
            case.unwrap();
        }
    })
    .await;
}

async fn half_open(server: Arc<RealServer>, what: &str, word: &str, silence: Silence) {
    let case = format!("{}: {what}, {silence:?}", server.name());
    let key = server.fresh_key("half");
    let dead = format!("{key}:dead");
    let proxy = Proxy::start(server.address()).await.unwrap();
    let builder = Consumer::durable(&client(&proxy))
        .stream(&key)
        .group("g")
        .block(Duration::from_secs(1))
        .lease(Duration::from_secs(6))
        .concurrency(4)
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
        .dead_letter(&dead);
    let journal = Journal::default();
    let seen = journal.clone();
    let running = start(builder, move |Json(number): Json<u64>, cx: Context| {
        let run = seen.begin(&cx);
        async move {
            if number == 0 {
                work_for(Duration::from_secs(7)).await;
            }
            run.end();
            if number % 5 == 4 { Outcome::reject("not wanted") } else { Outcome::Done }
        }
    });
    let trimmer =
        Trimmer::builder(&client(&proxy)).stream(&key).trim_every(Duration::from_millis(500)).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let trimming = tokio::spawn(async move {
        let mut trimmer = trimmer;
        trimmer.run_every(stopped, |_| {}).await
    });
    server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;

    server.publish(&key, ENTRIES).await;
    server.until("the half before it", || async { journal.finished() >= ENTRIES - 1 }).await;
    proxy.silence_at(word, silence);
    server.publish(&key, ENTRIES).await;
    let all = || async {
        proxy.cuts() == 1
            && journal.finished() == 2 * ENTRIES
            && server.pending(&key, "g").await == 0
            && server.len(&key).await <= 1
    };
    server.until(&format!("all to be handled and trimmed; {case}"), all).await;

    assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{case}: {:?}", journal.attempts());
    assert_eq!(server.len(&dead).await, 2 * ENTRIES as i64 / 5, "{case}");
    assert!(!running.is_over(), "{case}");
    drop(stop);
    trimming.await.unwrap();
    running.stop().await;
}

/// What a server has carried out and said to nobody is said again, and not done again.
#[tokio::test(flavor = "multi_thread")]
async fn b43_an_acknowledgement_whose_answer_is_lost_is_sent_again_and_its_entries_run_once() {
    on_each(|server| async move {
        for moment in [Moment::BeforeRequest, Moment::BeforeReply, Moment::InsideReply] {
            let (key, case) = (server.fresh_key("unheard"), format!("{}: {moment:?}", server.name()));
            let proxy = Proxy::start(server.address()).await.unwrap();
            let builder = Consumer::durable(&client(&proxy)).stream(&key).group("g").block(Duration::from_secs(1));
            let journal = Journal::default();
            let running = super::taking(builder, &journal, Duration::ZERO);
            server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
            proxy.cut_at("XACK", moment);
            server.publish(&key, ENTRIES).await;
            super::settled(&server, &key, &journal, ENTRIES).await;
            let told = || {
                let stats = running.stats.get();
                // Acknowledged by the request whose answer was lost, as the second one was told.
                stats.acknowledged + stats.already_acknowledged
            };
            server.until("it to be told", || async { told() == ENTRIES as u64 }).await;
            assert_eq!(proxy.cuts(), 1, "{case}");
            let heard = running.stats.get().already_acknowledged == 0;
            assert_eq!(heard, moment == Moment::BeforeRequest, "{case}");
            assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{case}: {:?}", journal.attempts());
            running.stop().await;
        }
    })
    .await;
}
