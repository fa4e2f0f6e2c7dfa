//! A million pending entries and two hundred groups: no command of maintenance holds the server up, and memory stays flat.

use std::time::Duration;

use futures_util::future::join_all;
use stream_redis::Value;
use stream_testkit::{RealServer, ServerOptions, matrix};
use streamkeeper::maint::{
    ConsumerCleaner, ConsumerPolicy, GroupCleaner, GroupPolicy, LagMonitor, NamePattern, TrimPolicy, Trimmed, Trimmer,
};
use streamkeeper_tests::Ask;

const GROUPS: usize = 200;
const ENTRIES: usize = 5_200;
/// Delivered to every group and not acknowledged.
const PENDING: usize = 5_000;
/// So often is everything looked at: a command that is slow by its nature is slow each time, one that waited for a processor
/// of this machine is not.
const ROUNDS: usize = 10;

async fn fill(server: &RealServer) {
    let add = "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], i .. '-0', 'n', i) end";
    server.cli(&["EVAL", add, "1", "s", &ENTRIES.to_string()]).await.unwrap();
    // Only the first hundred entries are finished by all, so that there is something to trim.
    let group = "redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '100-0') for i = 1, 5 do redis.call('XREADGROUP', 'GROUP', \
                 ARGV[1], 'c' .. i, 'COUNT', tonumber(ARGV[2]) / 5, 'STREAMS', KEYS[1], '>') end";
    for number in 0..GROUPS {
        server.cli(&["EVAL", group, "1", "s", &format!("g{number}"), &PENDING.to_string()]).await.unwrap();
    }
}

/// The slowest commands since the log was reset, in microseconds.
async fn slow(server: &RealServer) -> Vec<(i64, String)> {
    let Value::Array(rows) = server.ask("SLOWLOG GET 128").await else { panic!("no rows") };
    let row = |row: &Value| {
        let Value::Array(row) = row else { panic!("{row:?}") };
        let Value::Array(words) = &row[3] else { panic!("{row:?}") };
        let words: Vec<_> =
            words.iter().take(6).map(|word| String::from_utf8_lossy(word.as_bytes().unwrap())).collect();
        (row[2].as_int().unwrap(), words.join(" "))
    };
    rows.iter().map(row).filter(|(_, words)| !words.starts_with("SLOWLOG") && !words.starts_with("CONFIG")).collect()
}

async fn used_memory(server: &RealServer) -> i64 {
    let info = server.ask("INFO memory").await;
    let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
    text.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok()).unwrap()
}

/// Resident memory of this process, in KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

async fn no_burden(server: &RealServer) {
    let name = server.name();
    server.ask("CONFIG SET slowlog-log-slower-than 10000").await;
    let client = server.client();
    let hour = Duration::from_hours(1);
    let stale = TrimPolicy::new().exclude_stale(NamePattern::new("gone-*").unwrap(), hour);
    let mut trimmer = Trimmer::builder(&client).stream("s").policy(stale).build().unwrap();
    let policy = GroupPolicy::new(NamePattern::new("g*").unwrap(), hour).unwrap();
    let mut groups = GroupCleaner::new(&client, "s", policy).unwrap();
    let mut consumers = ConsumerCleaner::new(&client, "s", "g7", ConsumerPolicy::default()).unwrap();
    let mut monitor = LagMonitor::new(&client, "s").unwrap();
    let (mut slowest, mut removed) = (Vec::new(), 0);
    let (mut server_memory, mut memory) = (0, 0);
    for round in 0..ROUNDS {
        server.ask("SLOWLOG RESET").await;
        let Trimmed::Stream(report) = trimmer.run().await.unwrap() else { panic!("{name}: no stream") };
        removed += report.removed;
        assert_eq!(groups.run().await.unwrap().kept, GROUPS as u64, "{name}");
        assert_eq!(consumers.run().await.unwrap().kept, 5, "{name}");
        let lag = monitor.look().await.unwrap().unwrap();
        assert_eq!(lag.groups.iter().map(|group| group.pending).sum::<u64>(), (GROUPS * PENDING) as u64, "{name}");
        slowest = slow(server).await;
        if round == 0 {
            (server_memory, memory) = (used_memory(server).await, resident());
        } else if slowest.is_empty() {
            break;
        }
    }
    assert_eq!(removed, 100, "{name}");
    assert!(slowest.is_empty(), "{name}: {slowest:?}");
    for _ in 0..10 {
        trimmer.run().await.unwrap();
        groups.run().await.unwrap();
        monitor.look().await.unwrap();
    }
    let grown = (used_memory(server).await - server_memory, resident() - memory);
    println!("{name}: no command over 10 ms; the server grew by {} B, this process by {} KiB", grown.0, grown.1);
    assert!(grown.0 < 4 << 20, "{name}: the server grew by {} B", grown.0);
    assert!(grown.1 < 16 << 10, "{name}: this process grew by {} KiB", grown.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_pending_entries_in_two_hundred_groups_are_no_burden() {
    // Filled two at a time, which is most of the work, and looked at one after the other.
    for pair in matrix::all().chunks(2) {
        let mut servers = Vec::new();
        for binary in pair {
            let server = RealServer::start(binary, &ServerOptions::new()).await.unwrap();
            if server.is_external() {
                eprintln!("SKIPPED on the server of REDIS_URL: it is not ours to fill");
                continue;
            }
            servers.push(server);
        }
        join_all(servers.iter().map(fill)).await;
        for server in &servers {
            no_burden(server).await;
        }
    }
}
