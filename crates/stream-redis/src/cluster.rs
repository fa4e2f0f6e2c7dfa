//! [`Cluster`]: each key at the node that owns its slot.
//!
//! What must stay true: a blocking read has a connection of its own to the owner of its stream; a command is sent again
//! only where the server said that it did not carry it out (`MOVED`, `ASK`); the trouble of one node is not that of the
//! streams of another.

mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
mod nodes;
mod options;
mod slots;

use std::sync::Arc;

use async_trait::async_trait;
use stream_core::StreamKey;

use crate::reader::SocketReader;
use crate::{Connection, Connector, Error, Reader};
use connection::ClusterConnection;
use nodes::Nodes;

pub use options::ClusterOptions;

/// Opens connections to the nodes of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Arc<Nodes>,
}

impl Cluster {
    pub(crate) fn new(options: ClusterOptions) -> Self {
        Self { nodes: Arc::new(Nodes::new(options)) }
    }
}

#[async_trait]
impl Connector for Cluster {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        // A stream of one's own finds out who owns the slot, as for a reader, and who would answer.
        let (_, node) = self.nodes.open_owner(key, None).await?;
        Ok(Arc::new(ClusterConnection::new(Arc::clone(&self.nodes), slots::of(key.as_bytes()), node)))
    }

    fn serves_all_keys(&self) -> bool {
        false
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        let (stream, _) = self.nodes.open_owner(key, Some(name)).await?;
        Ok(Box::new(SocketReader::new(stream, self.nodes.options().response_timeout())))
    }
}
