//! How do I write many entries at once, and acknowledge them only when they are written?
//!
//! The handler gets up to 500 rows and returns when they are safe; an error is a retry for all of them. One that cannot be
//! decoded goes to the dead letters without spoiling the others.

use serde::Deserialize;
use streamkeeper::{Client, Consumer, Json, Shutdown};

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
}

async fn insert(rows: Vec<Json<Row>>) -> Result<(), std::io::Error> {
    // Here: one transaction of the database.
    println!("wrote {} rows, the first is {:?}", rows.len(), rows.first().map(|row| &row.name));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let client = Client::open(&url)?;
    let consumer = Consumer::durable(&client).stream("rows").group("database").concurrency(1).build()?;
    let report = consumer.run_batches(&Shutdown::on_signals()?, 500, insert).await?;
    println!("{report:?}");
    Ok(())
}
