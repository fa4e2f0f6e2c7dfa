//! Dead letters on their way back, in a process that is killed.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, eventually, work_for};
use streamkeeper::maint::DeadLetters;
use streamkeeper::{ConsumerName, DeadLetter, DeadReason, Entry, EntryId, GroupName, StreamKey};
use streamkeeper_tests::{Ask, on_each_own};

const LETTERS: u64 = 100_000;
const BATCH: usize = 100;

/// Fills the dead letters on the server itself: one as the library writes it, and as many more with other numbers.
async fn fill(server: &RealServer, layout: &str) {
    let letter = DeadLetter {
        entry: Entry::new(EntryId::new(1, 0), [("n", "0000000")]).unwrap(),
        stream: StreamKey::new("s").unwrap(),
        group: GroupName::new("g").unwrap(),
        consumer: ConsumerName::new("c").unwrap(),
        attempts: 3,
        reason: DeadReason::Exhausted { error: None },
        dead_at_ms: 1_700_000_000_000,
        redriven: 0,
    };
    let fields = if layout == "prefect" { letter.to_hash("x") } else { letter.to_fields() };
    let one = if layout == "prefect" {
        "redis.call('SADD', 'dead', 'dead:' .. i); redis.call('HSET', 'dead:' .. i, unpack(f))"
    } else {
        "redis.call('XADD', 'dead', '*', unpack(f))"
    };
    let script = format!(
        "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do local f = {{}} for j = 3, #ARGV do \
         f[#f + 1] = string.gsub(ARGV[j], '0000000', string.format('%07d', i)) f[#f] = f[#f] end {one} end"
    );
    let fields: Vec<String> = fields
        .iter()
        .flat_map(|(name, value)| [name, value])
        .map(|text| String::from_utf8(text.to_vec()).unwrap())
        .collect();
    for from in (1..=LETTERS).step_by(2_000) {
        let (from, to) = (from.to_string(), (from + 1_999).to_string());
        let mut args = vec!["EVAL", script.as_str(), "0", &from, &to];
        args.extend(fields.iter().map(String::as_str));
        server.cli(&args).await.unwrap();
    }
}

async fn survives(server: &RealServer, layout: &str) {
    let name = format!("{}, {layout}", server.name());
    server.ask("FLUSHALL").await;
    server.ask("XGROUP CREATE s g $ MKSTREAM").await;
    fill(server, layout).await;
    let start = |at_most: Option<u64>| {
        Command::new(env!("CARGO_BIN_EXE_test-redrive"))
            .args([&server.url(), "dead", layout, &BATCH.to_string()])
            .args(at_most.map(|at_most| at_most.to_string()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    for kill in 1..=3_u64 {
        // No three of them do all of it, however late a machine that others use as well comes to kill them.
        let part = server.len("s").await + LETTERS as i64 / 20;
        let mut process = start(Some(LETTERS / 4));
        eventually(Duration::from_mins(2), format!("a part to go back: {name}"), || async {
            (server.len("s").await > part).then_some(())
        })
        .await;
        work_for(Duration::from_millis(kill)).await;
        assert_eq!(process.try_wait().unwrap(), None, "{name}: it is there to be killed");
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let mut process = start(None);
    // A thread that waited for its end would be kept from the other servers, whose answers would then come too late.
    let ended = eventually(Duration::from_mins(2), format!("the last one to end: {name}"), || {
        std::future::ready(process.try_wait().unwrap())
    })
    .await;
    assert!(ended.success(), "{name}");
    let mut back = BTreeMap::<String, usize>::new();
    let mut from = EntryId::ZERO;
    loop {
        let page = format!("XRANGE s {from} + COUNT 10000");
        let stream_redis::Value::Array(rows) = server.ask(&page).await else { panic!("{name}: no rows") };
        for row in &rows {
            let stream_redis::Value::Array(row) = row else { panic!("{name}: {row:?}") };
            let stream_redis::Value::Array(fields) = &row[1] else { panic!("{name}: {row:?}") };
            *back.entry(String::from_utf8_lossy(fields[1].as_bytes().unwrap()).into_owned()).or_default() += 1;
            from = EntryId::parse(row[0].as_bytes().unwrap()).unwrap().successor().unwrap();
        }
        if rows.len() < 10_000 {
            break;
        }
    }
    let twice: usize = back.values().map(|times| times - 1).sum();
    assert_eq!(back.len() as u64, LETTERS, "{name}: each is back");
    assert!(twice <= 3 * BATCH, "{name}: {twice} are there twice");
    println!("{name}: {} back, {twice} of them twice after three kills", back.len());
    let mut dead = match layout {
        "prefect" => DeadLetters::prefect(&server.client(), "dead").unwrap(),
        _ => DeadLetters::new(&server.client(), "dead").unwrap(),
    };
    assert!(dead.is_empty().await.unwrap(), "{name}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_letters_go_back_through_three_kills_from_a_stream() {
    on_each_own(ServerOptions::new(), |server| async move { survives(&server, "stream").await }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_letters_go_back_through_three_kills_from_hashes() {
    on_each_own(ServerOptions::new(), |server| async move {
        // The commands are those of any version; two spare the others the minutes.
        if ["redis-6.2", "valkey-9.1"].contains(&server.name()) {
            survives(&server, "prefect").await;
        } else {
            println!("SKIPPED on {}: redis-6.2 and valkey-9.1 stand for all", server.name());
        }
    })
    .await;
}
