//! A return value that says nothing about the entry.

use stream_consumer::{Consumer, Context, Shutdown};

async fn bill(_cx: Context) -> u32 {
    7
}

fn main() {
    let client = stream_redis::Client::open("redis://localhost/").unwrap();
    let consumer = Consumer::durable(&client).stream("orders").group("billing").build().unwrap();
    let _ = consumer.run_with(&Shutdown::new(), bill);
}
