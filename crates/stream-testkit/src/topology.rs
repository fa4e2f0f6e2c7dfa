//! Several real servers that belong together: a master with its replicas and sentinels, a cluster.

mod cluster;
mod sentinel;

use stream_redis::Value;

pub use cluster::RealCluster;
pub use sentinel::SentinelSetup;

use crate::RealServer;

/// Asks a server, and is surprised by everything but a reply.
async fn ask<A: AsRef<[u8]>>(server: &RealServer, command: &[A]) -> Value {
    let first = || String::from_utf8_lossy(command[0].as_ref()).into_owned();
    server.cli(command).await.unwrap_or_else(|error| panic!("{} at {}: {error}", first(), server.address()))
}

/// A text reply.
fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_else(|| panic!("a text was expected, not {value:?}")))
        .into_owned()
}
