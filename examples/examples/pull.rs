//! How do I own the loop?
//!
//! Deliveries are a stream; whoever holds one has its lease renewed, and says in the end what became of it.

use streamkeeper::{Client, Consumer, Data, Outcome};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let client = Client::open(&url)?;
    let mut deliveries =
        Consumer::durable(&client).stream("jobs").group("workers").concurrency(8).build()?.deliveries();
    for _ in 0..10 {
        let Some(delivery) = deliveries.next().await else { break };
        match delivery.extract::<Data>() {
            Ok(Data(data)) => {
                println!("{}: {} bytes", delivery.id(), data.len());
                delivery.acknowledge();
            }
            Err(error) => delivery.settle(Outcome::reject(error.to_string())),
        }
    }
    println!("{:?}", deliveries.stop().await?);
    Ok(())
}
