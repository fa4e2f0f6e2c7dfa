//! What the tests on the in-memory server share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Context, EntryId};
use stream_testkit::MemoryServer;

/// Publishes `count` entries with their number as payload.
pub(crate) fn publish(server: &MemoryServer, key: &str, count: usize) {
    for n in 0..count {
        server.add(key, [("data", n.to_string())]);
    }
}

/// Publishes `count` entries that a consumer which is dead has been delivered so often.
pub(crate) fn abandoned(server: &MemoryServer, key: &str, count: usize, deliveries: u64) {
    publish(server, key, count);
    let (count, deliveries) = (count.to_string(), deliveries.to_string());
    server.command(["XGROUP", "CREATE", key, "g", "0"]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "dead", "COUNT", &count, "STREAMS", key, ">"]).unwrap();
    for (id, ..) in server.pending(key, "g") {
        let id = id.to_string();
        server.command(["XCLAIM", key, "g", "dead", "0", &id, "RETRYCOUNT", &deliveries, "JUSTID"]).unwrap();
    }
}

/// Who started what, and at which attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<BTreeMap<EntryId, Vec<u32>>>>);

impl Journal {
    /// Notes the start of a handler.
    #[allow(clippy::needless_pass_by_value, reason = "handlers own their context")]
    pub(crate) fn done(&self, cx: Context) -> impl Future<Output = ()> + Send + use<> {
        self.0.lock().unwrap().entry(cx.id()).or_default().push(cx.attempt());
        async {}
    }

    pub(crate) fn attempts(&self) -> BTreeMap<EntryId, Vec<u32>> {
        self.0.lock().unwrap().clone()
    }
}

/// Waits until `count` entries were started and nothing is pending.
pub(crate) async fn settled(server: &MemoryServer, key: &str, group: &str, count: usize, journal: &Journal) {
    let what = format!("{count} entries to be started and acknowledged");
    stream_testkit::eventually(Duration::from_hours(24), &what, || {
        let settled = journal.attempts().len() >= count && server.pending(key, group).is_empty();
        std::future::ready(settled.then_some(()))
    })
    .await;
}
