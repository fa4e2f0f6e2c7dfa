//! How fast can a handler be fed? Drains a group and ends; also the program that the benchmarks race.
//!
//! `PORT`, `STREAM`, `GROUP` and `EXPECT` say what to drain. `LIVE` prints latencies from a time stamp in the payload,
//! `W3` makes the handler sleep for 5 ms, `CURRENT_THREAD` runs on one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use streamkeeper::{Client, Consumer, Data, DurableConsumer, Shutdown};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut runtime = if std::env::var_os("CURRENT_THREAD").is_some() {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    runtime.enable_all().build()?.block_on(drain())
}

async fn drain() -> Result<(), Failure> {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let expect: u64 = var("EXPECT", "1000").parse()?;
    let live = std::env::var_os("LIVE").is_some();
    let slow = std::env::var_os("W3").is_some();
    let client = Client::open(&format!("redis://127.0.0.1:{}/", var("PORT", "6379")))?;
    let consumer: DurableConsumer = Consumer::durable(&client)
        .stream(var("STREAM", "orders"))
        .group(var("GROUP", "g"))
        .concurrency(if slow { 100 } else { 64 })
        .build()?;
    let stats = consumer.stats();
    let shutdown = Shutdown::new();
    let seen = Arc::new(AtomicU64::new(0));
    let latencies = Arc::new(std::sync::Mutex::new(Vec::new()));
    let watch = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            while stats.get().acknowledged < expect {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            shutdown.stop();
        }
    });
    let report = {
        let (seen, latencies) = (Arc::clone(&seen), Arc::clone(&latencies));
        consumer
            .run_with(&shutdown, move |Data(data): Data| {
                seen.fetch_add(data.len() as u64, Ordering::Relaxed);
                if live && let Some(sent) = sent_at(&data) {
                    latencies.lock().expect("no handler panics").push(now_ns().saturating_sub(sent));
                }
                async move {
                    if slow {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            })
            .await?
    };
    watch.await?;
    if live {
        let mut sorted = std::mem::take(&mut *latencies.lock().expect("no handler panics"));
        sorted.sort_unstable();
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        println!(
            "{{\"n\":{},\"p50_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1}}}",
            sorted.len(),
            at(0.5),
            at(0.99),
            at(0.999)
        );
    } else {
        eprintln!("{report:?}, {} bytes", seen.load(Ordering::Relaxed));
    }
    Ok(())
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The nanoseconds that the payload begins with.
fn sent_at(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data.get(..19)?).ok()?.parse().ok()
}
