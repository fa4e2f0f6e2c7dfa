//! How do I consume a stream so that nothing is lost?
//!
//! `cargo run -p streamkeeper-examples --example consume`, with a server at `REDIS_URL` or on the default port. Stop it with
//! Ctrl-C: it finishes what it has started, and says so.

use std::time::Duration;

use serde::Deserialize;
use streamkeeper::{Client, Consumer, Context, Json, Outcome, RetryPolicy, Shutdown};

#[derive(Debug, Deserialize)]
struct Order {
    id: u64,
    cents: i64,
}

async fn bill(Json(order): Json<Order>, cx: Context) -> Result<Outcome, String> {
    if order.cents < 0 {
        // Trying again does not help: to the dead letters, with this reason.
        return Ok(Outcome::reject("the amount is negative"));
    }
    // The id is the same at every attempt: use it to make the work idempotent.
    println!("billing order {} ({}, attempt {})", order.id, cx.id(), cx.attempt());
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(Outcome::Done)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let client = Client::open(&url)?;
    let consumer = Consumer::durable(&client)
        .stream("orders")
        .group("billing")
        .retry(RetryPolicy::exponential(Duration::from_secs(1)..=Duration::from_mins(5)).max_attempts(8))
        .timeout(Duration::from_secs(30))
        .build()?;
    let report = consumer.run_with(&Shutdown::on_signals()?, bill).await?;
    println!("{report:?}");
    Ok(())
}
