//! A number is no extractor: whether it is the payload or something else, only the handler's author knows.

use stream_consumer::{DurableConsumer, Shutdown};

async fn handle(_amount: u32) {}

fn consume(consumer: DurableConsumer, shutdown: &Shutdown) {
    let _ = consumer.run_with(shutdown, handle);
}

fn main() {
    let _ = consume;
}
