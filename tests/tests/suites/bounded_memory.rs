//! The memory of a consumer does not depend on its backlog. 200,000 entries of 1 KiB; 1,000,000 with `STREAMKEEPER_FULL=1`.
#![cfg(target_os = "linux")]

use stream_testkit::ServerOptions;
use streamkeeper_tests::{Ask, on_each_own};
use tokio::process::Command;
use tokio::sync::Semaphore;

const MOST_KIB: u64 = 64 * 1024;

/// One backlog at a time: those of all servers together might not fit into the memory of a small machine.
static TURN: Semaphore = Semaphore::const_new(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_any_length_is_consumed_in_64_mib() {
    let full = std::env::var("STREAMKEEPER_FULL").is_ok_and(|full| full == "1");
    let entries: usize = if full { 1_000_000 } else { 200_000 };
    on_each_own(ServerOptions::new(), move |mut server| async move {
        let _turn = TURN.acquire().await.unwrap();
        let fill = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'data', string.rep('x', 1024)) end";
        for _ in 0..entries / 20_000 {
            server.cli(&["EVAL", fill, "1", "backlog", "20000"]).await.unwrap();
        }
        let helper = Command::new(env!("CARGO_BIN_EXE_test-backlog"))
            .args([&server.url(), "backlog", "g", &entries.to_string()])
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let name = server.name().to_owned();
        assert!(helper.status.success(), "{name}: {}", String::from_utf8_lossy(&helper.stderr));
        let said = String::from_utf8(helper.stdout).unwrap();
        let numbers: Vec<u64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [acknowledged, peak_kib] = numbers[..] else { panic!("{name}: {said}") };
        println!("{name}: {entries} entries of 1 KiB consumed, {peak_kib} KiB resident at most");
        assert_eq!(acknowledged, entries as u64, "{name}");
        assert!(peak_kib < MOST_KIB, "{name}: {peak_kib} KiB");
        assert_eq!(server.pending("backlog", "g").await, 0, "{name}");
        server.kill9().await.unwrap();
    })
    .await;
}
