//! [`ClusterOptions`]: some nodes of a cluster and how to greet all of them, validated when they are made.

use super::slots::Node;
use crate::options::{self, Address, ConnectOptions};
use crate::{Error, ErrorKind};

/// The port of a node when none is given.
const DEFAULT_PORT: u16 = 6379;

/// Some nodes of a cluster, from which the others are learned, and how to greet all of them.
///
/// From a URL: `redis+cluster://[user[:password]@]host[:port][,host[:port]…]`, with the parameters of
/// [`ConnectOptions`]; `rediss+cluster://` encrypts (feature `rustls`).
///
/// Keys that are used in one step must share a slot, which keys with the same `{hash tag}` do: name a stream
/// `{orders}` and its dead letters `{orders}:dead`. Where they do not, dead letters are written first and acknowledged
/// then, in two steps: a failure in between leaves a dead letter twice, never a loss.
///
/// ```
/// use stream_redis::ClusterOptions;
/// let options = ClusterOptions::from_url("redis+cluster://:s3cret@n1:7000,n2:7000")?;
/// assert!(ClusterOptions::from_url("redis+cluster://n1/3").is_err(), "a cluster has only database 0");
/// # Ok::<(), stream_redis::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    seeds: Vec<(String, u16)>,
    server: ConnectOptions,
}

impl ClusterOptions {
    /// Options from a URL.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the part that is wrong; never with a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let hosts = options::split(url, "cluster", DEFAULT_PORT, &[])?;
        match hosts.path.as_slice() {
            [] => {}
            [database] if database == "0" => {}
            _ => return Err(config("a cluster has only database 0: end the URL after the hosts")),
        }
        Self::new(hosts.addresses, hosts.options)
    }

    /// Options one by one: addresses of nodes, some of which answer at any time. The address in `server` is not used.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: no node, an empty host, port 0, or a database other than 0.
    pub fn new(seeds: impl IntoIterator<Item = (String, u16)>, server: ConnectOptions) -> Result<Self, Error> {
        let this = Self { seeds: seeds.into_iter().collect(), server };
        if this.seeds.is_empty() {
            return Err(config("no node of the cluster is given: give some that are likely to answer"));
        }
        if this.seeds.iter().any(|(host, port)| host.is_empty() || *port == 0) {
            return Err(config("a node of the cluster has no host or port 0"));
        }
        if this.server.database() != 0 {
            return Err(config("a cluster has only database 0"));
        }
        if matches!(this.server.address(), Address::Unix(_)) {
            return Err(config("the nodes of a cluster are reached over TCP: give a host and not a socket"));
        }
        Ok(this)
    }

    /// Hosts and ports of the nodes to begin with.
    pub fn nodes(&self) -> &[(String, u16)] {
        &self.seeds
    }

    pub(super) fn seeds(&self) -> impl Iterator<Item = Node> {
        self.seeds.iter().map(|(host, port)| Node::new(host, *port))
    }

    /// How to greet every node.
    pub fn server(&self) -> &ConnectOptions {
        &self.server
    }
}

fn config(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_everything() {
        let options = ClusterOptions::from_url("redis+cluster://app:hunter2@n1,n2:7001/0?connect_timeout=3s").unwrap();
        assert_eq!(options.seeds().collect::<Vec<_>>(), [Node::new("n1", 6379), Node::new("n2", 7001)]);
        assert_eq!(options.server().connect_timeout().as_secs(), 3);
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn what_a_cluster_has_not_is_refused() {
        for url in ["redis+cluster://n1/1", "redis+cluster://n1?db=1", "redis+cluster://", "redis+cluster://n1,:7"] {
            assert_eq!(ClusterOptions::from_url(url).expect_err(url).kind(), ErrorKind::Config, "{url}");
        }
    }
}
