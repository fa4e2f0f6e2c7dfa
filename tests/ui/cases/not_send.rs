//! A future that must stay on its thread.

use std::rc::Rc;

use stream_consumer::{Data, DurableConsumer, Shutdown};

async fn handle(Data(payload): Data) {
    let shared = Rc::new(payload);
    std::future::ready(()).await;
    drop(shared);
}

fn consume(consumer: DurableConsumer, shutdown: &Shutdown) {
    let _ = consumer.run_with(shutdown, handle);
}

fn main() {
    let _ = consume;
}
