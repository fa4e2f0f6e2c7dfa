//! [`Client`]: where the servers are and how to reach them; cheap to clone.

use std::sync::Arc;

use crate::options::ConnectOptions;
use crate::standalone::Standalone;
use crate::{Connector, Error};

/// Opens connections to one server or topology. Cheap to clone; holds no connection itself.
#[derive(Debug, Clone)]
pub struct Client {
    connector: Arc<dyn Connector>,
}

impl Client {
    /// A client of the server that `url` names, for example `redis://127.0.0.1/`; what a URL may hold is described at
    /// [`ConnectOptions`]. Connects to nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL is not understood; never with the password.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Self::from_options(ConnectOptions::from_url(url)?))
    }

    /// A client of the server that `options` name. Connects to nothing yet.
    pub fn from_options(options: ConnectOptions) -> Self {
        Self::from_connector(Standalone::new(options))
    }

    /// A client over a connector of one's own, for example the in-memory server of the test kit.
    pub fn from_connector(connector: impl Connector) -> Self {
        Self { connector: Arc::new(connector) }
    }

    /// What opens the connections.
    pub fn connector(&self) -> &Arc<dyn Connector> {
        &self.connector
    }
}
