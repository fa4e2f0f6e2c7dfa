//! How do I spread one stream over the nodes of a cluster, and still keep the order of each customer's entries?
//!
//! Sixteen partitions of one logical stream; an entry goes to the partition of its customer. One consumer reads all of them
//! with one room, and handles the entries of a customer in their order. The same works on a single server.

use std::time::Duration;

use streamkeeper::{Client, Consumer, Data, EntryId, Partitions, Publisher, Shutdown};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis+cluster://127.0.0.1:7000".to_owned());
    let client = Client::open(&url)?;
    // Choose the number once: with another, entries of a customer would be in two partitions for a while.
    let movements = Partitions::new("movements", 16)?;

    let publisher = Publisher::builder(&client).partitions(&movements).build_partitioned()?;
    for number in 0..100 {
        let customer = format!("customer-{}", number % 7);
        publisher.publish(&customer, [("data", number.to_string()), ("customer", customer.clone())]).await?;
    }
    assert!(publisher.close(Duration::from_secs(5)).await.is_empty());

    let report = Consumer::durable(&client)
        .partitions(&movements)
        .group("ledger")
        .order_by_field("customer")
        .build()?
        .run_with(&Shutdown::on_signals()?, |id: EntryId, Data(data): Data| async move {
            println!("{id}: {data:?}");
        })
        .await?;
    println!("{report:?}");
    Ok(())
}
