//! [`RealCluster`]: masters that share the slots, with replicas if wanted.

use std::time::{Duration, Instant};

use stream_redis::Value;

use super::{ask, text};
use crate::matrix::info_field;
use crate::{Network, RealServer, ServerBinary, ServerOptions, eventually};

const SLOTS: usize = 16_384;
const LIMIT: Duration = Duration::from_secs(60);
/// A node that was not greeted within the node timeout is forgotten, and has to be met again.
const MEET_AGAIN: Duration = Duration::from_secs(6);

/// A cluster of real servers. Masters come first, then their replicas in the same order.
#[derive(Debug)]
pub struct RealCluster {
    /// All nodes.
    pub nodes: Vec<RealServer>,
}

impl RealCluster {
    /// Starts `masters` nodes that share the slots evenly, each with a replica if `replicas`, and waits until all agree.
    /// A master that does not answer for three seconds is failed over; sooner, and a busy machine looks like a dead node.
    /// `options` are for all nodes; containers are in a network of their own.
    ///
    /// # Panics
    /// When it cannot be started, or is not ready within a minute.
    pub async fn start(binary: &ServerBinary, options: &ServerOptions, masters: usize, replicas: bool) -> Self {
        let options = options.clone().args(["--cluster-enabled", "yes", "--cluster-node-timeout", "3000"]);
        // A replica that could not follow in time must still be allowed to take over: these tests kill masters.
        let options = options.args(["--cluster-replica-validity-factor", "0"]);
        let network = Network::of(binary).await.unwrap();
        let mut nodes = Vec::new();
        for _ in 0..masters * if replicas { 2 } else { 1 } {
            nodes.push(RealServer::start_in(binary, &options, network.as_ref()).await.unwrap());
        }
        let this = Self { nodes };
        let (host, first) = (this.nodes[0].host(), this.nodes[0].port().to_string());
        for (place, node) in this.nodes.iter().enumerate() {
            ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()]).await;
            if place < masters {
                let own = (SLOTS * place / masters)..(SLOTS * (place + 1) / masters);
                let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
                command.extend(own.map(|slot| slot.to_string()));
                ask(node, &command).await;
            }
            ask(node, &["CLUSTER", "MEET", host, &first]).await;
        }
        for node in &this.nodes {
            let mut met = Instant::now();
            eventually(LIMIT, format!("a node to know all others ({})", node.address()), || {
                let meet = met.elapsed() > MEET_AGAIN;
                if meet {
                    met = Instant::now();
                }
                let (nodes, first) = (&this.nodes, &first);
                async move {
                    if meet {
                        node.cli(&["CLUSTER", "MEET", host, first]).await.ok()?;
                    }
                    let info = node.cli(&["CLUSTER", "INFO"]).await.ok()?;
                    (info_field(&info, "cluster_known_nodes") == Some(&nodes.len().to_string())).then_some(())
                }
            })
            .await;
        }
        for (place, node) in this.nodes.iter().enumerate().skip(masters) {
            let master = text(&ask(&this.nodes[place - masters], &["CLUSTER", "MYID"]).await);
            eventually(LIMIT, "a replica to follow", || async {
                node.cli(&["CLUSTER", "REPLICATE", &master]).await.ok()
            })
            .await;
        }
        this.until_ok().await;
        this
    }

    /// The URL for the library, with all nodes.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(RealServer::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Waits until every node that answers holds the cluster to be whole, and replicas are in step.
    ///
    /// # Panics
    /// When that takes longer than a minute.
    pub async fn until_ok(&self) {
        for node in &self.nodes {
            self.until(node, "the cluster to be whole", |info| {
                info_field(info, "cluster_state") == Some("ok") && info_field(info, "cluster_slots_fail") == Some("0")
            })
            .await;
            eventually(LIMIT, "a replica to be in step", || async {
                let info = node.cli(&["INFO", "replication"]).await.ok()?;
                let down = info_field(&info, "master_link_status").is_some_and(|status| status != "up");
                (!down).then_some(())
            })
            .await;
        }
    }

    async fn until(&self, node: &RealServer, what: &str, holds: impl Fn(&Value) -> bool) {
        let holds = &holds;
        eventually(LIMIT, format!("{what} ({})", node.address()), || async move {
            node.cli(&["CLUSTER", "INFO"]).await.ok().filter(holds).map(|_| ())
        })
        .await;
    }

    /// Which node serves `key`, as the nodes say that answer.
    ///
    /// # Panics
    /// When none does within a minute.
    pub async fn owner(&self, key: &str) -> usize {
        eventually(LIMIT, "a node that serves the key", || async {
            for (place, node) in self.nodes.iter().enumerate() {
                // The owner alone answers; others point to it.
                if node.cli(&["EXISTS", key]).await.is_ok() {
                    return Some(place);
                }
            }
            None
        })
        .await
    }

    /// Moves the slot of `key` to the master `to`, key by key as operators do it, while clients use it.
    ///
    /// # Panics
    /// When a node refuses.
    pub async fn migrate(&self, key: &str, to: usize) {
        let from = self.owner(key).await;
        assert_ne!(from, to, "the slot is there already");
        let slot = ask(&self.nodes[0], &["CLUSTER", "KEYSLOT", key]).await.as_int().unwrap().to_string();
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let source_id = text(&ask(source, &["CLUSTER", "MYID"]).await);
        let target_id = text(&ask(target, &["CLUSTER", "MYID"]).await);
        ask(target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
        ask(source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
        loop {
            let Value::Array(keys) = ask(source, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).await else {
                panic!("no list of keys")
            };
            if keys.is_empty() {
                break;
            }
            let port = target.port().to_string();
            let mut command = ["MIGRATE", target.host(), &port, "", "0", "10000", "KEYS"].map(str::to_owned).to_vec();
            command.extend(keys.iter().map(text));
            ask(source, &command).await;
        }
        ask(target, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await;
        ask(source, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await;
    }
}
