//! Payloads and replies of every shape, and dead letters that cannot be written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_redis::Value;
use stream_testkit::{RealServer, ServerOptions};
use streamkeeper::{
    Client, Consumer, Context, Data, DeadLetter, DurableBuilder, Entry, EntryId, Fields, Json, Outcome, RetryPolicy,
};
use streamkeeper_tests::{Ask, Journal, on_each, on_each_own, start};
use tokio::sync::Semaphore;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn builder(server: &RealServer, key: &str) -> DurableBuilder {
    Consumer::durable(&server.client()).stream(key).group("g").block(Duration::from_secs(1))
}

/// The entries of a stream, as the server has them.
async fn entries(server: &RealServer, key: &str) -> Vec<(EntryId, Pairs)> {
    let Value::Array(rows) = server.cli(&["XRANGE", key, "-", "+"]).await.unwrap() else { panic!("no list") };
    let entry = |row: &Value| {
        let Value::Array(row) = row else { panic!("no entry: {row:?}") };
        let Value::Array(fields) = &row[1] else { panic!("no fields: {row:?}") };
        let bytes = |value: &Value| value.as_bytes().unwrap().to_vec();
        let pairs = fields.chunks_exact(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect();
        (EntryId::parse(row[0].as_bytes().unwrap()).unwrap(), pairs)
    };
    rows.iter().map(entry).collect()
}

/// The dead letters of a stream.
async fn letters(server: &RealServer, key: &str) -> Vec<DeadLetter> {
    let entries = entries(server, &format!("{key}:dead")).await;
    entries.into_iter().map(|(id, pairs)| DeadLetter::from_entry(&Entry::new(id, pairs).unwrap()).unwrap()).collect()
}

fn pairs_of(entry: &Entry) -> Pairs {
    entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

async fn add(server: &RealServer, key: &str, id: &str, pairs: &[(&[u8], &[u8])]) {
    let mut command: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), id.as_bytes()];
    command.extend(pairs.iter().flat_map(|(name, value)| [*name, *value]));
    server.cli(&command).await.unwrap();
}

/// One poison entry among others, while `obstacle` stands before the dead letters, until it is taken away.
async fn obstacle(server: &RealServer, user: &str, label: &str, obstacle: &[&str], removal: &[&str], more: bool) {
    let key = server.fresh_key(label);
    let context = format!("{}, {key}", server.name());
    let named = |command: &[&str]| command.iter().map(|word| word.replace("KEY", &key)).collect::<Vec<_>>();
    server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
    let ids = server.publish(&key, 10).await;
    server.cli(&named(obstacle)).await.unwrap();
    let journal = Journal::default();
    let seen = journal.clone();
    let client = Client::open(&format!("redis://{user}@{}", server.address())).unwrap();
    let base = Duration::from_millis(50);
    let builder = Consumer::durable(&client)
        .stream(&key)
        .group("g")
        .block(Duration::from_secs(1))
        .lease(Duration::from_secs(3))
        .backoff(base, Duration::from_millis(400))
        .retry(RetryPolicy::immediate().max_attempts(2));
    let poison = ids[3];
    let consumer = start(builder, move |cx: Context| {
        let (run, poison) = (seen.begin(&cx), cx.id() == poison);
        async move {
            run.end();
            if poison { Err("poison") } else { Ok(()) }
        }
    });
    let events = consumer.events.clone();
    server.until("the dead letter to fail again and again", || async { events.count("DeadLetterFailed") >= 4 }).await;
    if more {
        server.publish(&key, 10).await;
    }
    let others = if more { 19 } else { 9 };
    let flow = || async { journal.finished() == others + 1 && server.pending(&key, "g").await == 1 };
    server.until("the others to flow", flow).await;
    let pending = server.pending_entries(&key, "g").await;
    assert_eq!((pending[0].0, pending[0].2), (ids[3], 2), "{context}: not acknowledged");
    assert_eq!(journal.attempts_of(ids[3]), [1, 2], "{context}");
    let failed = events.named("DeadLetterFailed");
    assert!(failed.iter().all(|told| told.text.contains(&format!("{:?}", ids[3]))), "{context}: {failed:?}");
    for pair in failed.windows(2) {
        assert!(pair[1].at - pair[0].at >= base / 10, "{context}: it backs off");
    }
    assert_eq!(events.count("DeadLettered {"), 0, "{context}");

    server.cli(&named(removal)).await.unwrap();
    server.until("the dead letter to be written", || async { server.pending(&key, "g").await == 0 }).await;
    let letters = letters(server, &key).await;
    assert_eq!(letters.len(), 1, "{context}: {letters:?}");
    assert_eq!((letters[0].entry.id(), letters[0].attempts, letters[0].reason.as_str()), (ids[3], 2, "exhausted"));
    assert_eq!(events.count("DeadLettered {"), 1, "{context}");
    assert_eq!(journal.attempts_of(ids[3]), [1, 2], "{context}: it did not run again");
    let report = consumer.stop().await;
    assert_eq!((report.stats.acknowledged, report.stats.dead_lettered), (others as u64, 1), "{context}");
    assert_eq!(report.stats.leases_lost, 0, "{context}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_dead_letter_that_cannot_be_written_stays_pending_and_others_flow() {
    on_each_own(ServerOptions::new(), |server| async move {
        let server = &server;
        server.ask("ACL SETUSER limited on >pw +@all ~eval*").await;
        tokio::join!(
            obstacle(server, "", "b25", &["SET", "KEY:dead", "x"], &["DEL", "KEY:dead"], true),
            // The key's name has the name of a command in it, which the error repeats.
            obstacle(
                server,
                "limited:pw",
                "eval",
                &["ACL", "SETUSER", "limited", "resetkeys", "~KEY"],
                &["ACL", "SETUSER", "limited", "~KEY:dead"],
                true,
            ),
        );
        let full = ["CONFIG", "SET", "maxmemory", "1"];
        obstacle(server, "", "b25", &full, &["CONFIG", "SET", "maxmemory", "0"], false).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b31_what_cannot_be_decoded_is_dead_lettered_raw_and_the_next_goes_on() {
    #[derive(serde::Deserialize)]
    struct Order {
        id: u64,
    }
    on_each(|server| async move {
        let key = server.fresh_key("b31");
        let bad: [&[(&[u8], &[u8])]; 4] = [
            &[(b"kind", b"order"), (b"payload", b"{\"id\":1}")],
            &[(b"data", b"{\"id\":\xff\xfe}")],
            &[(b"data", b"{\"id\":\"secret\"}"), (b"trace", b"\x00\x01")],
            &[(b"data", b"")],
        ];
        for (n, pairs) in bad.iter().enumerate() {
            add(&server, &key, &format!("{}-1", n + 1), pairs).await;
            add(&server, &key, &format!("{}-2", n + 1), &[(b"data", format!("{{\"id\":{n}}}").as_bytes())]).await;
        }
        let handled = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&handled);
        let consumer = start(builder(&server, &key).concurrency(1), move |Json(order): Json<Order>| {
            seen.lock().unwrap().push(order.id);
            async {}
        });
        let over = || async { server.len(&format!("{key}:dead")).await == 4 && server.pending(&key, "g").await == 0 };
        server.until("everything to be settled", over).await;
        assert_eq!(*handled.lock().unwrap(), [0, 1, 2, 3], "{}", server.name());
        let letters = letters(&server, &key).await;
        for (n, (letter, pairs)) in letters.iter().zip(bad).enumerate() {
            let raw: Pairs = pairs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            assert_eq!(pairs_of(&letter.entry), raw, "{}", server.name());
            assert_eq!(letter.entry.id().to_string(), format!("{}-1", n + 1));
            assert_eq!((letter.reason.as_str(), letter.attempts), ("undecodable", 1));
            assert!(!letter.reason.detail().unwrap().contains("secret"), "{letter:?}");
        }
        let events = consumer.events.clone();
        let report = consumer.stop().await;
        assert_eq!((report.stats.acknowledged, report.stats.dead_lettered, report.stats.retried), (4, 4, 0));
        assert!(!format!("{:?}", events.all()).contains("secret"), "no event holds a payload");
    })
    .await;
}

/// What a consumer of one protocol was given and has given up.
#[derive(Debug, Default, PartialEq)]
struct Outcomes {
    starts: BTreeMap<String, Vec<(u32, Pairs)>>,
    dead: Vec<(String, u32, String, Pairs)>,
    deleted: u64,
    acknowledged: u64,
}

/// The same list of deliveries of every kind: taken over, deleted meanwhile, failed, given up, large, empty, late.
async fn deliveries(server: &RealServer, protocol: &str) -> Outcomes {
    let key = server.fresh_key("b57");
    let large = vec![b'x'; 300_000];
    for (n, value) in
        [b"left".as_slice(), b"left", b"left", b"once", b"poison", b"reject", &large, b""].iter().enumerate()
    {
        add(server, &key, &format!("{}-0", n + 1), &[(b"do", value), (b"do", b"again")]).await;
    }
    server.ask(&format!("XGROUP CREATE {key} g 0")).await;
    server.ask(&format!("XREADGROUP GROUP g gone COUNT 3 STREAMS {key} >")).await;
    server.ask(&format!("XCLAIM {key} g gone 0 1-0 2-0 3-0 IDLE 3600000 RETRYCOUNT 1 JUSTID")).await;
    server.ask(&format!("XDEL {key} 2-0")).await;

    let client = Client::open(&format!("redis://{}?protocol={protocol}", server.address())).unwrap();
    let outcomes = Arc::new(Mutex::new(Outcomes::default()));
    let seen = Arc::clone(&outcomes);
    let builder = Consumer::durable(&client)
        .stream(&key)
        .group("g")
        .consumer(format!("{protocol}-reader"))
        .block(Duration::from_millis(100))
        .retry(RetryPolicy::immediate().max_attempts(2));
    let consumer = start(builder, move |Fields(fields): Fields, cx: Context| {
        let fields: Pairs = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let outcome = match fields[0].1.as_slice() {
            b"once" if cx.attempt() == 1 => Outcome::failed("once"),
            b"poison" => Outcome::failed("poison"),
            b"reject" => Outcome::reject("no"),
            _ => Outcome::Done,
        };
        seen.lock().unwrap().starts.entry(cx.id().to_string()).or_default().push((cx.attempt(), fields));
        async { outcome }
    });
    let stats = consumer.stats.clone();
    let settled = async |handled| {
        server
            .until("the list to be settled", || async {
                stats.get().acknowledged == handled
                    && stats.get().dead_lettered == 2
                    && server.pending(&key, "g").await == 0
            })
            .await;
    };
    settled(5).await;
    let clients = server.ask("CLIENT LIST").await;
    let clients = String::from_utf8_lossy(clients.as_bytes().unwrap()).into_owned();
    let reader = clients.lines().find(|line| line.contains(&format!("{protocol}-reader"))).unwrap_or_default();
    if let Some((_, spoken)) = reader.split_once(" resp=") {
        assert_eq!(&spoken[..1], &protocol[4..], "{}: {reader}", server.name());
    }
    // Empty replies in between, whose shape differs most.
    let reads = stats.get().reads;
    server.until("two reads to find nothing", || async { stats.get().reads >= reads + 2 }).await;
    add(server, &key, "9-0", &[(b"do", b"late"), (b"do", b"again")]).await;
    settled(6).await;
    let report = consumer.stop().await;
    let mut outcomes = std::mem::take(&mut *outcomes.lock().unwrap());
    (outcomes.deleted, outcomes.acknowledged) = (report.stats.deleted_while_pending, report.stats.acknowledged);
    for letter in letters(server, &key).await {
        let id = letter.entry.id().to_string();
        outcomes.dead.push((id, letter.attempts, letter.reason.as_str().to_owned(), pairs_of(&letter.entry)));
    }
    outcomes.dead.sort();
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_the_same_deliveries_over_both_protocols() {
    on_each(|server| async move {
        let name = server.name();
        let (two, three) = tokio::join!(deliveries(&server, "resp2"), deliveries(&server, "resp3"));
        assert_eq!(two, three, "{name}");
        let starts: Vec<(&str, Vec<u32>)> = two
            .starts
            .iter()
            .map(|(id, starts)| (id.as_str(), starts.iter().map(|(attempt, _)| *attempt).collect()))
            .collect();
        let expected = [
            ("1-0", vec![2]),
            ("3-0", vec![2]),
            ("4-0", vec![1, 2]),
            ("5-0", vec![1, 2]),
            ("6-0", vec![1]),
            ("7-0", vec![1]),
            ("8-0", vec![1]),
            ("9-0", vec![1]),
        ];
        assert_eq!(starts, expected, "{name}");
        assert_eq!(two.starts["7-0"][0].1[0].1.len(), 300_000, "{name}");
        assert_eq!(
            two.starts["8-0"][0].1,
            [(b"do".to_vec(), Vec::new()), (b"do".to_vec(), b"again".to_vec())],
            "{name}"
        );
        let dead: Vec<_> =
            two.dead.iter().map(|(id, attempts, reason, _)| (id.as_str(), *attempts, reason.as_str())).collect();
        assert_eq!(dead, [("5-0", 2, "exhausted"), ("6-0", 1, "rejected")], "{name}");
        assert_eq!((two.deleted, two.acknowledged), (1, 6), "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b58_fields_are_seen_and_kept_as_they_are() {
    on_each(|server| async move {
        let key = server.fresh_key("b58");
        let all: [&[(&[u8], &[u8])]; 5] = [
            &[(b"a", b"1"), (b"a", b"2"), (b"a", b"1")],
            &[(b"", b""), (b"", b"x"), (b"x", b"")],
            &[(b"z", b"1"), (b"a", b"2"), (b"m", b"3")],
            &[(b"\xff\x00name", b"\x00\xfe\r\n"), (b"caf\xc3\xa9", b"\xc3")],
            &[(b"streamkeeper", b"1"), (b"id", b"0-1"), (b"fields", b"99"), (b"reason", b"none"), (b"data", b"d")],
        ];
        for pairs in all {
            add(&server, &key, "*", pairs).await;
        }
        let published = entries(&server, &key).await;
        let handled = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&handled);
        let consumer = start(builder(&server, &key).concurrency(1), move |Fields(fields): Fields, entry: Entry| {
            let fields: Pairs = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            seen.lock().unwrap().push((entry.id(), fields));
            async { Outcome::reject("to the dead letters") }
        });
        server.until("all to be dead", || async { server.len(&format!("{key}:dead")).await == 5 }).await;
        consumer.stop().await;
        assert_eq!(*handled.lock().unwrap(), published, "{}", server.name());
        let letters = letters(&server, &key).await;
        let kept: Vec<_> = letters.iter().map(|letter| (letter.entry.id(), pairs_of(&letter.entry))).collect();
        assert_eq!(kept, published, "{}", server.name());
        let raw = entries(&server, &format!("{key}:dead")).await;
        for ((_, raw), (_, pairs)) in raw.iter().zip(&published) {
            assert!(raw.ends_with(pairs), "{}: {raw:?}", server.name());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b65_large_entries_and_slow_handlers_hold_few_bytes_and_keep_their_leases() {
    const STREAMS: usize = 3;
    const EACH: usize = 24;
    const SIZE: usize = 1 << 20;
    const FAST: usize = 12;
    // Nine of them in prefetch_bytes and six that run.
    const MOST: i64 = 15;
    on_each_own(ServerOptions::new(), |server| async move {
        let lease = Duration::from_secs(6);
        let keys: Vec<String> = (0..STREAMS).map(|n| format!("b65:{n}")).collect();
        let fill = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'data', string.rep('x', ARGV[2])) end";
        for key in &keys {
            server.cli(&["EVAL", fill, "1", key, &EACH.to_string(), &SIZE.to_string()]).await.unwrap();
        }
        let (journal, gate) = (Journal::default(), Arc::new(Semaphore::new(FAST)));
        let builder = Consumer::durable(&server.client())
            .group("g")
            .block(Duration::from_secs(1))
            .lease(lease)
            .concurrency(6)
            .prefetch_bytes(9 * SIZE);
        let builder = keys.iter().fold(builder, streamkeeper::DurableBuilder::stream);
        let (seen, passed) = (journal.clone(), Arc::clone(&gate));
        let consumer = start(builder, move |Data(data): Data, cx: Context| {
            assert_eq!(data.len(), SIZE);
            let (run, gate) = (seen.begin(&cx), Arc::clone(&passed));
            async move {
                // Fast at first, so that it is read ahead for.
                gate.acquire().await.unwrap().forget();
                run.end();
            }
        });
        let held = async || {
            let mut held = 0;
            for key in &keys {
                held += server.pending(key, "g").await;
            }
            held
        };
        server.until("six to be stuck", || async { journal.starts() == FAST + 6 }).await;
        let scripts = async || server.calls().await.get("evalsha").copied().unwrap_or(0);
        let before = scripts().await;
        let most = AtomicI64::new(0);
        let renewed = || async {
            most.fetch_max(held().await, Ordering::Relaxed);
            scripts().await >= before + 4 * STREAMS as u64
        };
        // At every third of a lease: by then it would have run out.
        server.until("leases to be renewed four times", renewed).await;
        let (name, most) = (server.name(), most.into_inner());
        assert!(most <= MOST, "{name}: {most} entries of 1 MiB are held");
        assert_eq!(journal.starts(), FAST + 6, "{name}: reading pauses");
        for key in &keys {
            let claimed =
                server.ask(&format!("XAUTOCLAIM {key} g thief {} 0 COUNT 100 JUSTID", lease.as_millis())).await;
            let Value::Array(reply) = claimed else { panic!("XAUTOCLAIM answered {claimed:?}") };
            assert_eq!(reply[1], Value::Array(Vec::new()), "{name}: no lease has run out");
        }
        gate.add_permits(STREAMS * EACH);
        let over = || async { journal.finished() == STREAMS * EACH && held().await == 0 };
        server.until("all to be handled", over).await;
        let report = consumer.stop().await;
        assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{name}");
        assert_eq!((report.stats.leases_lost, report.stats.taken_over), (0, 0), "{name}");
    })
    .await;
}
