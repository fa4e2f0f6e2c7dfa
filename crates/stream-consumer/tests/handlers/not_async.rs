//! A function that is not asynchronous.

use stream_consumer::{Consumer, Context, Shutdown};

fn bill(_cx: Context) {}

fn main() {
    let client = stream_redis::Client::open("redis://localhost/").unwrap();
    let consumer = Consumer::durable(&client).stream("orders").group("billing").build().unwrap();
    let _ = consumer.run_with(&Shutdown::new(), bill);
}
