//! The library's durable consumer as a racer: everything on (leases, retries, dead letters, an observer) and defaults
//! apart from what the workload names.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use streamkeeper::{
    Client, Consumer, Data, DurableBuilder, DurableConsumer, Event, Json, Shutdown, StatsHandle, StreamKey,
};

use super::report::Watch;
use super::{SLOW, Task, number, streams};
use crate::Failure;

/// What the handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Looks at the payload.
    NoOp,
    /// Looks at the payloads of up to 1,000 at once.
    Batch,
    /// Takes a JSON object apart.
    Json,
    /// Looks at the payload; entries with one key in the field `key` one after the other.
    Ordered,
    /// Holds all entries until it is ended: what is measured is the renewing of leases.
    Hold,
}

impl FromStr for What {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text {
            "noop" => Ok(Self::NoOp),
            "batch" => Ok(Self::Batch),
            "json" => Ok(Self::Json),
            "ordered" => Ok(Self::Ordered),
            "hold" => Ok(Self::Hold),
            other => Err(format!("no handler is called {other}").into()),
        }
    }
}

/// As a service would have it.
#[derive(Debug, Deserialize)]
struct Order {
    number: u64,
    customer: String,
    cents: u64,
    item: String,
}

pub(super) async fn run(task: &Task, what: What, watch: Watch) -> Result<(), Failure> {
    let told = Arc::new(AtomicU64::new(0));
    let mut builder = builder(task)?.observer({
        let told = Arc::clone(&told);
        move |_: &StreamKey, event: &Event<'_>| {
            if matches!(event, Event::Handled { .. }) {
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for stream in streams(task)? {
        builder = builder.stream(stream);
    }
    if task.slow {
        builder = builder.concurrency(100);
    }
    builder = match what {
        What::Ordered => builder.order_by_field("key"),
        What::Hold => builder.concurrency(task.expect as usize),
        What::NoOp | What::Batch | What::Json => builder,
    };
    let consumer = builder.build()?;
    let shutdown = Shutdown::new();
    if what != What::Hold {
        tokio::spawn(stop_at(task.expect, consumer.stats(), shutdown.clone(), watch.clone()));
    }
    let report = handle(consumer, &shutdown, what, task.slow, watch).await?;
    let stats = report.stats;
    eprintln!("{stats:?}, told {}", told.load(Ordering::Relaxed));
    if stats.acknowledged < task.expect {
        return Err(format!("only {} of {} are acknowledged", stats.acknowledged, task.expect).into());
    }
    Ok(())
}

async fn handle(
    consumer: DurableConsumer,
    shutdown: &Shutdown,
    what: What,
    slow: bool,
    watch: Watch,
) -> Result<streamkeeper::DrainReport, Failure> {
    let report = match what {
        What::NoOp | What::Ordered if !slow => {
            let handler = move |Data(data): Data| {
                watch.see(&data);
                async {}
            };
            consumer.run_with(shutdown, handler).await?
        }
        What::NoOp | What::Ordered => {
            let handler = move |Data(data): Data| {
                watch.see(&data);
                tokio::time::sleep(SLOW)
            };
            consumer.run_with(shutdown, handler).await?
        }
        What::Batch => {
            let handler = move |batch: Vec<Data>| {
                for Data(data) in &batch {
                    watch.see(data);
                }
                async {}
            };
            consumer.run_batches(shutdown, 1_000, handler).await?
        }
        What::Json => {
            let handler = move |Json(order): Json<Order>| {
                let looked_at = order.number ^ order.cents;
                std::hint::black_box(looked_at);
                watch.see(order.item.as_bytes());
                std::hint::black_box(order.customer);
                async {}
            };
            consumer.run_with(shutdown, handler).await?
        }
        What::Hold => {
            let handler = move |Data(data): Data| {
                watch.see(&data);
                std::future::pending::<()>()
            };
            consumer.run_with(shutdown, handler).await?
        }
    };
    Ok(report)
}

/// Many consumers in one process, one stream each, and nothing to do.
pub(super) async fn idle(task: &Task) -> Result<(), Failure> {
    let shutdown = Shutdown::new();
    let mut runs = tokio::task::JoinSet::new();
    for stream in streams(task)? {
        let consumer = builder(task)?.stream(stream).build()?;
        let shutdown = shutdown.clone();
        runs.spawn(async move { consumer.run_with(&shutdown, |_: Data| async {}).await });
    }
    while let Some(run) = runs.join_next().await {
        run??;
    }
    Ok(())
}

fn builder(task: &Task) -> Result<DurableBuilder, Failure> {
    let client = Client::open(&task.url())?;
    let mut builder = Consumer::durable(&client).group(&task.group).dead_letter(format!("{}:dead", task.stream));
    let lease: u64 = number("LEASE_MS", 0)?;
    if lease > 0 {
        builder = builder.lease(Duration::from_millis(lease));
    }
    let claim: u64 = number("CLAIM_MS", 0)?;
    if claim > 0 {
        builder = builder.claim_every(Duration::from_millis(claim));
    }
    Ok(builder)
}

/// Stops the consumer once all is acknowledged. It looks seldom: each look wakes the runtime twice, which a consumer of
/// 5,000 entries a second would have to do a tenth more for.
async fn stop_at(expect: u64, stats: StatsHandle, shutdown: Shutdown, watch: Watch) {
    while stats.get().acknowledged < expect {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    watch.report();
    shutdown.stop();
}
