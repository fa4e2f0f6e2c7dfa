//! What a user may not do, and what is there already when many start at once.

use std::collections::BTreeSet;
use std::time::Duration;

use stream_testkit::{RealServer, work_for};
use streamkeeper::{
    Client, Consumer, Context, Data, DurableBuilder, EntryId, ErrorKind, RetryPolicy, RunError, StartFrom,
};
use streamkeeper_tests::{Ask, Journal, Running, on_each, start};

const LEASE: Duration = Duration::from_secs(6);
/// Longer than half a lease, by when it was renewed at the latest, and well below the five sixths that it is trusted for.
const SLOW: Duration = Duration::from_millis(3_200);

const PERMISSIONS: &str = include_str!("../../../../docs/permissions.md");

fn builder(client: &Client, key: &str) -> DurableBuilder {
    Consumer::durable(client).stream(key).group("g").block(Duration::from_secs(1)).lease(LEASE)
}

/// A client of a user whose rules are one of the documentation's, without the permissions that begin so.
async fn user(server: &RealServer, key: &str, rules: usize, without: &[&str]) -> Client {
    let name = key.replace(':', "-");
    let documented =
        PERMISSIONS.lines().filter_map(|line| line.strip_prefix("ACL SETUSER billing ")).nth(rules).unwrap();
    let rules = documented.replace("PASSWORD", "pw").replace("orders", key);
    let kept = rules.split(' ').filter(|rule| !without.iter().any(|without| rule.starts_with(&format!("+{without}"))));
    let rules: Vec<&str> = kept.collect();
    server.ask(&format!("ACL SETUSER {name} reset {}", rules.join(" "))).await;
    Client::open(&format!("redis://{name}:pw@{}", server.address())).unwrap()
}

/// The kind and the text of why a consumer ended.
async fn why(consumer: Running) -> (ErrorKind, String) {
    match consumer.ended().await.unwrap_err() {
        RunError::Stream { stream, source } => (source.kind(), format!("{stream}: {source}")),
        other => panic!("another end: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_fifty_consumers_that_start_together_make_one_group() {
    on_each(|server| async move {
        let name = server.name();
        let key = server.fresh_key("b12");
        let journal = Journal::default();
        let run = |key: &str, from: StartFrom| {
            let seen = journal.clone();
            start(builder(&server.client(), key).start(from), move |cx: Context| {
                seen.begin(&cx).end();
                async {}
            })
        };
        let consumers: Vec<_> = (0..50).map(|_| run(&key, StartFrom::Beginning)).collect();
        let ready = || async { consumers.iter().all(|consumer| consumer.events.count("Ready") == 1) };
        server.until("all fifty to be ready", ready).await;
        let created: u64 = consumers.iter().map(|consumer| consumer.stats.get().groups_created).sum();
        assert_eq!(created, 1, "{name}");
        server.publish(&key, 100).await;
        server.until("all to be handled", || async { journal.finished() == 100 }).await;
        for consumer in consumers {
            assert_eq!(consumer.events.count("Reconnecting"), 0, "{name}: {:?}", consumer.events.all());
            consumer.stop().await;
        }
        assert_eq!((journal.starts(), server.pending(&key, "g").await), (100, 0), "{name}");

        // The position of a group that is there already stays, wherever the consumer would have begun one.
        let ids = server.publish(&key, 3).await;
        server.ask(&format!("XGROUP SETID {key} g {}", ids[1])).await;
        for from in [StartFrom::Beginning, StartFrom::End] {
            let consumer = run(&key, from);
            server.until("it to be ready", || async { consumer.events.count("Ready") == 1 }).await;
            server
                .until("all to be handled", || async {
                    server.pending(&key, "g").await == 0 && journal.finished() == 101
                })
                .await;
            consumer.stop().await;
        }
        assert_eq!((journal.starts(), journal.attempts_of(ids[2])), (101, vec![1]), "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_key_of_another_type_or_a_missing_permission_is_not_taken_for_a_group_that_exists() {
    on_each(|server| async move {
        let name = server.name();
        let key = server.fresh_key("b12");
        server.ask(&format!("SET {key} x")).await;
        let (kind, text) = why(start(builder(&server.client(), &key), || async {})).await;
        assert_eq!(kind, ErrorKind::WrongType, "{name}: {text}");
        assert!(text.starts_with(&format!("{key}: XGROUP CREATE {key}: WRONGTYPE ")), "{name}: {text}");
        assert_eq!(server.ask(&format!("GET {key}")).await.as_bytes(), Some(b"x".as_slice()), "{name}");

        let key = server.fresh_key("b12");
        let client = user(&server, &key, 1, &["xgroup"]).await;
        let (kind, text) = why(start(builder(&client, &key), || async {})).await;
        assert_eq!(kind, ErrorKind::NoPermission, "{name}: {text}");
        assert!(text.starts_with(&format!("{key}: XGROUP CREATE {key}: NOPERM ")), "{name}: {text}");
        assert!(text.contains("xgroup"), "{name}: {text}");
    })
    .await;
}

/// What came of a consumer under some user: ten entries, one that fails once, one that always fails, one that is slower
/// than a renewal, and two that another consumer has left.
struct Came {
    degraded: BTreeSet<String>,
    dead: bool,
    dead_failed: bool,
    removed: bool,
}

const PLAIN: usize = 8;

async fn consume(server: &RealServer, rules: usize, without: &[&str], told: &[&str]) -> Came {
    let key = server.fresh_key("b66");
    let context = format!("{}, without {without:?}", server.name());
    server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
    let mut ids: Vec<EntryId> = server.publish(&key, 2).await;
    server.ask(&format!("XREADGROUP GROUP g gone COUNT 2 STREAMS {key} >")).await;
    server.ask(&format!("XCLAIM {key} g gone 0 {} {} IDLE 3600000 RETRYCOUNT 1 JUSTID", ids[0], ids[1])).await;
    ids.extend(server.publish(&key, PLAIN).await);
    let full = rules == 1;
    if full {
        for word in ["once", "slow", "poison"] {
            server.ask(&format!("XADD {key} * data {word}")).await;
        }
    }
    let client = user(server, &key, rules, without).await;
    let journal = Journal::default();
    let seen = journal.clone();
    let consumer = start(
        builder(&client, &key)
            .claim_every(Duration::from_millis(200))
            .backoff(Duration::from_millis(100), Duration::from_secs(1))
            .retry(RetryPolicy::immediate().max_attempts(2)),
        move |Data(data): Data, cx: Context| {
            let run = seen.begin(&cx);
            async move {
                if &*data == b"slow" {
                    work_for(SLOW).await;
                }
                run.end();
                if &*data == b"poison" || (&*data == b"once" && cx.attempt() == 1) { Err("not now") } else { Ok(()) }
            }
        },
    );
    let events = consumer.events.clone();
    let is_told = |text: &str| events.all().iter().any(|event| event.text.contains(text));
    let expected: Vec<EntryId> = if without.contains(&"xautoclaim") { ids[2..].to_vec() } else { ids.clone() };
    let finished = || async {
        let attempts = journal.attempts();
        let extra = if full { 3 } else { 0 };
        expected.iter().all(|id| attempts.contains_key(id))
            && journal.finished() == expected.len() + extra
            && told.iter().all(|text| is_told(text))
    };
    server.until(&format!("the entries to be handled and {told:?} to be told {context}"), finished).await;
    if !without.contains(&"xack") {
        let pending = || async {
            let pending = server.pending_entries(&key, "g").await;
            expected.iter().all(|id| pending.iter().all(|(pending, ..)| pending != id))
        };
        server.until(&format!("what was handled to be acknowledged {context}"), pending).await;
    }
    let dispensable = ["client", "eval", "xautoclaim", "xgroup", "xinfo"];
    let is_complete = full && without.iter().all(|without| dispensable.iter().any(|kind| without.starts_with(kind)));
    if is_complete {
        let stays = (ids.len() - expected.len()) as i64;
        let over =
            || async { server.pending(&key, "g").await == stays && server.len(&format!("{key}:dead")).await == 1 };
        server.until(&format!("all to be settled {context}"), over).await;
    }
    let report = consumer.stop().await;
    let of = |event: &streamkeeper_tests::consumer::Told| {
        let text = event.text.split_once("what: \"").unwrap().1;
        text.split_once('"').unwrap().0.to_owned()
    };
    let all: Vec<String> = events.named("Degraded").iter().map(of).collect();
    let degraded: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(all.len(), degraded.len(), "{context}: each once: {all:?}");
    for text in &degraded {
        assert!(PERMISSIONS.contains(&format!("`{text}`")), "{context}: {text:?} is not documented");
    }
    assert_eq!(events.count("Reconnecting"), 0, "{context}: {:?}", events.all());
    Came {
        degraded,
        dead: server.len(&format!("{key}:dead")).await == 1,
        dead_failed: events.count("DeadLetterFailed") > 0,
        removed: report.consumer_removed,
    }
}

const CREATE: &str = "a group that does not exist cannot be created, which ends the consumer";
const INFO: &str = "a lost group is made anew at its beginning, since its position is not known";
const RENEW: &str = "leases cannot be renewed: handlers must be quicker than the lease";
const ATTEMPTS: &str = "attempts of abandoned entries cannot be counted";
const RETRIES: &str = "retries come back only after their lease, and are not counted";
const CUT: &str = "what an interrupted read left behind is taken up only after the lease";
const SCRIPTS: &str = "without scripts, an entry counts as lost before its lease is over";
const CLAIMS: &str = "entries of dead owners are not taken over by this process";
const ACKS: &str = "entries are handled but cannot be acknowledged";

#[tokio::test(flavor = "multi_thread")]
async fn b66_the_least_permissions_consume() {
    on_each(|server| async move {
        let came = consume(&server, 0, &[], &[CREATE, INFO, ATTEMPTS]).await;
        let told: BTreeSet<&str> = came.degraded.iter().map(String::as_str).collect();
        assert!(told.is_superset(&[CREATE, INFO, ATTEMPTS].into()), "{}: {told:?}", server.name());
        assert!(told.is_subset(&[CREATE, INFO, ATTEMPTS, CUT, RENEW, SCRIPTS].into()), "{}: {told:?}", server.name());
        assert!(!came.removed, "{}", server.name());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_each_permission_buys_what_is_documented() {
    on_each(|server| async move {
        let check = async |without: &[&str], told: &[&str], at_stop: &[&str], dead: bool, removed: bool| {
            let letters: &[&str] = if dead { &[] } else { &["DeadLetterFailed"] };
            let came = consume(&server, 1, without, &[told, letters].concat()).await;
            let degraded: Vec<&str> = came.degraded.iter().map(String::as_str).collect();
            let mut expected = [told, at_stop].concat();
            expected.sort_unstable();
            let context = format!("{}, without {without:?}", server.name());
            assert_eq!(degraded, expected, "{context}");
            assert_eq!((came.dead, came.dead_failed, came.removed), (dead, !dead, removed), "{context}");
        };
        tokio::join!(
            check(&[], &[], &[], true, true),
            check(&["xgroup|create", "xgroup|createconsumer"], &[CREATE], &[], true, true),
            check(&["xgroup|delconsumer"], &[], &[], true, false),
            check(&["xinfo|consumers"], &[], &[], true, false),
            check(&["xinfo|stream", "xinfo|groups"], &[INFO], &[], true, true),
            check(&["client"], &[], &[], true, true),
            check(&["eval"], &[SCRIPTS], &[], true, false),
            check(&["xautoclaim"], &[CLAIMS], &[], true, true),
            check(&["xpending"], &[INFO, RENEW, ATTEMPTS, RETRIES], &[CUT], false, false),
            check(&["xadd"], &[], &[], false, false),
        );
        tokio::join!(
            async {
                let came = consume(&server, 1, &["xclaim"], &[RENEW, RETRIES]).await;
                assert_eq!(came.degraded, [RENEW, RETRIES].map(str::to_owned).into(), "{}", server.name());
            },
            async {
                let came = consume(&server, 1, &["xack"], &[ACKS]).await;
                assert!(came.degraded.contains(ACKS), "{}: {:?}", server.name(), came.degraded);
            },
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_without_xreadgroup_the_run_ends() {
    on_each(|server| async move {
        let key = server.fresh_key("b66");
        let client = user(&server, &key, 1, &["xreadgroup"]).await;
        let consumer = start(builder(&client, &key), || async {});
        let events = consumer.events.clone();
        let (kind, text) = why(consumer).await;
        assert_eq!(kind, ErrorKind::NoPermission, "{}: {text}", server.name());
        assert!(text.starts_with(&format!("{key}: XREADGROUP {key}: NOPERM ")), "{}: {text}", server.name());
        assert_eq!(events.count("Reconnecting"), 0, "{}: no loop: {:?}", server.name(), events.all());
    })
    .await;
}
