//! Handlers that fit, written as the others are that do not: what fails there fails for the reason that it is about.

use stream_consumer::{Data, DurableConsumer, Outcome, Shutdown};

async fn handle(Data(_): Data) {}

fn consume(function: DurableConsumer, closure: DurableConsumer, batches: DurableConsumer, shutdown: &Shutdown) {
    let _ = function.run_with(shutdown, handle);
    let _ = closure.run_with(shutdown, |Data(_): Data| async { Ok::<_, std::fmt::Error>(Outcome::Done) });
    let _ = batches.run_batches(shutdown, 10, |items: Vec<Data>| async move { vec![Outcome::Done; items.len()] });
}

fn main() {
    let _ = consume;
}
