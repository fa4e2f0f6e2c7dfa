//! What the exact tests share: the in-memory server, filled and watched. Time is paused in all of them.

use std::time::Duration;

use stream_testkit::MemoryServer;
use streamkeeper::{Consumer, DurableBuilder, EntryId};

/// Publishes `count` entries with their number as payload.
pub(crate) fn publish(server: &MemoryServer, key: &str, count: usize) -> Vec<EntryId> {
    (0..count).map(|n| server.add(key, [("data", n.to_string())])).collect()
}

/// A consumer of `s` in the group `g` with a lease of 3 s.
pub(crate) fn builder(server: &MemoryServer) -> DurableBuilder {
    Consumer::durable(&server.client()).stream("s").group("g").lease(Duration::from_secs(3))
}

/// Waits until `holds`, for an hour of paused time at most.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    stream_testkit::eventually(Duration::from_hours(1), what, || std::future::ready(holds().then_some(()))).await;
}
