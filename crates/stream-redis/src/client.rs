//! [`Client`]: where the servers are and how to reach them; cheap to clone.

use std::sync::Arc;

use crate::cluster::{Cluster, ClusterOptions};
use crate::options::ConnectOptions;
use crate::sentinel::{Sentinel, SentinelOptions};
use crate::standalone::Standalone;
use crate::{Connector, Error};

/// Opens connections to one server or topology. Cheap to clone; holds no connection itself.
#[derive(Debug, Clone)]
pub struct Client {
    connector: Arc<dyn Connector>,
}

impl Client {
    /// A client of what `url` names. Connects to nothing yet.
    ///
    /// | URL | Servers | Described at |
    /// |---|---|---|
    /// | `redis://127.0.0.1/`, `rediss://…`, `unix:///…` | one server | [`ConnectOptions`] |
    /// | `redis+sentinel://host,host/master`, `rediss+sentinel://…` | the master that sentinels watch | [`SentinelOptions`] |
    /// | `redis+cluster://host,host`, `rediss+cluster://…` | a cluster | [`ClusterOptions`] |
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the URL is not understood; never with the password.
    pub fn open(url: &str) -> Result<Self, Error> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        match scheme {
            "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel" | "valkeys+sentinel" => {
                Ok(Self::from_sentinel(SentinelOptions::from_url(url)?))
            }
            "redis+cluster" | "rediss+cluster" | "valkey+cluster" | "valkeys+cluster" => {
                Ok(Self::from_cluster(ClusterOptions::from_url(url)?))
            }
            _ => Ok(Self::from_options(ConnectOptions::from_url(url)?)),
        }
    }

    /// A client of the server that `options` name. Connects to nothing yet.
    pub fn from_options(options: ConnectOptions) -> Self {
        Self::from_connector(Standalone::new(options))
    }

    /// A client of the master that sentinels watch. Connects to nothing yet.
    pub fn from_sentinel(options: SentinelOptions) -> Self {
        Self::from_connector(Sentinel::new(options))
    }

    /// A client of a cluster. Connects to nothing yet.
    pub fn from_cluster(options: ClusterOptions) -> Self {
        Self::from_connector(Cluster::new(options))
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
