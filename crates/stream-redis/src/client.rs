//! [`Client`]: where the servers are and how to reach them; cheap to clone.

use std::sync::Arc;

use crate::Connector;

/// Opens connections to one server or topology. Cheap to clone; holds no connection itself.
#[derive(Debug, Clone)]
pub struct Client {
    connector: Arc<dyn Connector>,
}

impl Client {
    /// A client over a connector of one's own, for example the in-memory server of the test kit.
    pub fn from_connector(connector: impl Connector) -> Self {
        Self { connector: Arc::new(connector) }
    }

    /// What opens the connections.
    pub fn connector(&self) -> &Arc<dyn Connector> {
        &self.connector
    }
}
