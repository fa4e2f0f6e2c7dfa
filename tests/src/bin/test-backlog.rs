//! A consumer process whose memory is measured: `test-backlog URL STREAM GROUP ENTRIES` consumes so many entries with the
//! default settings and prints how many were acknowledged, and the most memory it ever had resident, in KiB.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use streamkeeper::{Client, Consumer, Data, Shutdown};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, stream, group, entries] = args.as_slice() else {
        return Err("usage: test-backlog URL STREAM GROUP ENTRIES".into());
    };
    let entries: u64 = entries.parse()?;
    let consumer = Consumer::durable(&Client::open(url)?).stream(stream).group(group).build()?;
    let (shutdown, handled) = (Shutdown::new(), Arc::new(AtomicU64::new(0)));
    let switch = shutdown.clone();
    let report = consumer
        .run_with(&shutdown, move |Data(data): Data| {
            let (switch, handled) = (switch.clone(), Arc::clone(&handled));
            async move {
                // Off the fast path every now and then, as real handlers are.
                if data.len() % 2 == 0 && handled.load(Ordering::Relaxed) % 64 == 0 {
                    tokio::task::yield_now().await;
                }
                if handled.fetch_add(1, Ordering::Relaxed) + 1 == entries {
                    switch.stop();
                }
            }
        })
        .await?;
    println!("{} {}", report.stats.acknowledged, peak_kib()?);
    Ok(())
}

/// The most memory that was ever resident, as the system counts it.
fn peak_kib() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
