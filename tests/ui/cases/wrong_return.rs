//! Numbers and flags are no outcome, alone or for each item of a batch.

use stream_consumer::{Data, DurableConsumer, Shutdown};

async fn handle(Data(payload): Data) -> usize {
    payload.len()
}

async fn handle_batch(items: Vec<Data>) -> Vec<bool> {
    items.iter().map(|item| item.0.is_empty()).collect()
}

fn consume(single: DurableConsumer, batches: DurableConsumer, shutdown: &Shutdown) {
    let _ = single.run_with(shutdown, handle);
    let _ = batches.run_batches(shutdown, 10, handle_batch);
}

fn main() {
    let _ = consume;
}
