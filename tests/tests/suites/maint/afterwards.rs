//! What a consumer leaves behind: dead letters in Prefect's layout, and streams that hold only what is not finished.

use stream_testkit::RealServer;
use streamkeeper::maint::{DeadLetters, LetterFilter};
use streamkeeper::{Acknowledge, Consumer, Context, Data, DeadLetterLayout, DeadReason, Outcome};
use streamkeeper_tests::{Ask, Journal, on_each, start};

async fn hashes(server: RealServer) {
    let name = server.name().to_owned();
    let (key, set) = (server.fresh_key("hashes"), server.fresh_key("dlq"));
    let ids = server.publish(&key, 10).await;
    let builder = Consumer::durable(&server.client()).stream(&key).group("g").dead_letter(&set);
    let consumer = start(builder.dead_letter_layout(DeadLetterLayout::Prefect), |Data(data): Data| async move {
        if data == "3" { Outcome::reject("three") } else { Outcome::Done }
    });
    server
        .until("the dead letter", || async {
            server.ask(&format!("SCARD {set}")).await.as_int() == Some(1) && server.pending(&key, "g").await == 0
        })
        .await;
    consumer.stop().await;
    let mut dead = DeadLetters::prefect(&server.client(), &set).unwrap();
    let page = dead.list(&LetterFilter::all().reason("rejected"), None, 10).await.unwrap();
    let letter = page.letters[0].content.clone().unwrap();
    assert_eq!((letter.id, letter.get("data"), letter.attempts), (Some(ids[3]), Some(&b"3"[..]), Some(1)), "{name}");
    assert_eq!(letter.reason, Some(DeadReason::Rejected("three".to_owned())), "{name}");
    assert_eq!(letter.stream.unwrap().as_bytes(), key.as_bytes(), "{name}");
    assert_eq!(dead.purge(&LetterFilter::all()).await.unwrap(), 1, "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_kept_as_prefect_keeps_them() {
    on_each(hashes).await;
}

async fn deletes(server: RealServer) {
    let name = server.name().to_owned();
    let key = server.fresh_key("queue");
    let journal = Journal::default();
    let seen = journal.clone();
    let builder = Consumer::durable(&server.client()).stream(&key).group("g").delete_acknowledged();
    let consumer = start(builder, move |cx: Context| {
        let run = seen.begin(&cx);
        async move { run.end() }
    });
    server.publish(&key, 500).await;
    server.until("an empty stream", || async { journal.finished() == 500 && server.len(&key).await == 0 }).await;
    assert_eq!(journal.starts(), 500, "{name}");
    // From now on somebody else needs the entries as well.
    server.ask(&format!("XGROUP CREATE {key} other 0")).await;
    server.publish(&key, 50).await;
    server.until("the rest", || async { journal.finished() == 550 && server.pending(&key, "g").await == 0 }).await;
    assert_eq!(server.len(&key).await, 50, "{name}");
    assert_eq!(consumer.events.count("LeaseLost"), 0, "{name}");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_finished_is_deleted_at_once_while_no_other_group_needs_it() {
    on_each(deletes).await;
}

#[tokio::test]
async fn what_cannot_be_kept_together_is_refused() {
    let client = streamkeeper::Client::open("redis://127.0.0.1/").unwrap();
    let builder = || Consumer::durable(&client).stream("s").group("g");
    let check = |builder: streamkeeper::DurableBuilder, names: [&str; 2]| {
        let error = builder.build().unwrap_err().to_string();
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
    };
    let bounded = builder().dead_letter_layout(DeadLetterLayout::Prefect).dead_letter_max(10);
    check(bounded, ["dead_letter_layout", "dead_letter_max"]);
    check(builder().delete_acknowledged().acknowledge(Acknowledge::First), ["delete_acknowledged", "acknowledge"]);
}
