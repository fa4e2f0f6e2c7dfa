//! A function that is not async.

use stream_consumer::{Data, DurableConsumer, Shutdown};

fn handle(_: Data) {}

fn consume(consumer: DurableConsumer, shutdown: &Shutdown) {
    let _ = consumer.run_with(shutdown, handle);
}

fn main() {
    let _ = consume;
}
