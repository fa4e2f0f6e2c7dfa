//! What went wrong for others, as tests: each is named after its case in the collection of public bug reports.

mod access;
mod claiming;
mod connections;
mod data;
mod dead_letters;
mod gaps;
mod half_open;
mod handlers;
mod oddities;
mod payloads;
mod permissions;
mod starting;
mod topologies;
mod vendors;

use std::time::Duration;

use stream_testkit::{RealServer, work_for};
use streamkeeper::{Consumer, Context, DurableBuilder};
use streamkeeper_tests::{Ask, Journal, Running, start};

/// A consumer of `key` in the group `g` with a client of its own. Its pauses are short, since a renewal that is not answered
/// in time costs the connection, and the lease runs on meanwhile.
fn builder(server: &RealServer, key: &str) -> DurableBuilder {
    Consumer::durable(&server.client())
        .stream(key)
        .group("g")
        .block(Duration::from_secs(1))
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
}

/// Starts a consumer whose handler takes `time`.
fn taking(builder: DurableBuilder, journal: &Journal, time: Duration) -> Running {
    let seen = journal.clone();
    start(builder, move |cx: Context| {
        let run = seen.begin(&cx);
        async move {
            if !time.is_zero() {
                work_for(time).await;
            }
            run.end();
        }
    })
}

/// Waits until `count` entries were handled and nothing is pending.
async fn settled(server: &RealServer, key: &str, journal: &Journal, count: usize) {
    let what = format!("{count} entries to be handled");
    server.until(&what, || async { journal.finished() >= count && server.pending(key, "g").await == 0 }).await;
}

/// Entries that a consumer read and then died with.
async fn left_behind(server: &RealServer, key: &str, consumer: &str, count: usize) {
    server.ask(&format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS {key} >")).await;
}
