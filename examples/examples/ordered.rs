//! How do I keep the order of each customer's entries, and still handle many customers at a time?
//!
//! Entries with one value in the field `customer` run one at a time, in their order, also when one of them has to be tried
//! again; those of different customers run side by side.

use streamkeeper::{Client, Consumer, Data, EntryId, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let client = Client::open(&url)?;
    let report = Consumer::durable(&client)
        .stream("movements")
        .group("ledger")
        .order_by_field("customer")
        .build()?
        .run_with(&Shutdown::on_signals()?, |id: EntryId, Data(data): Data| async move {
            println!("{id}: {} bytes", data.len());
        })
        .await?;
    println!("{report:?}");
    Ok(())
}
