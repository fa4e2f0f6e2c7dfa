//! An argument that cannot be made from an entry.

use stream_consumer::{Consumer, Context, Shutdown};

/// Not an extractor: nothing says how to make it from an entry.
struct Order;

async fn bill(_order: Order, _cx: Context) {}

fn main() {
    let client = stream_redis::Client::open("redis://localhost/").unwrap();
    let consumer = Consumer::durable(&client).stream("orders").group("billing").build().unwrap();
    let _ = consumer.run_with(&Shutdown::new(), bill);
}
