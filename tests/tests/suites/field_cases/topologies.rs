//! Cases about sentinel setups and clusters: the same behaviour as on a server that is alone.

use std::time::Duration;

use stream_testkit::{RealCluster, RealServer, SentinelSetup, ServerBinary};
use streamkeeper::Client;
use streamkeeper_tests::{Ask, Journal, start};

use super::{left_behind, settled};
use crate::topology::{durable, noting, on_programs, plain};

/// Entries between read and acknowledgement, whose owner is dead: `node` has the stream, `client` finds it.
async fn stranded(node: &RealServer, client: &Client, key: &str, name: &str) {
    for consumer in ["dead", "another"] {
        let key = format!("{{{key}}}:{consumer}");
        node.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        node.publish(&key, 25).await;
        left_behind(node, &key, "dead", 20).await;
        let journal = Journal::default();
        let builder = durable(client).lease(Duration::from_millis(600)).stream(&key).consumer(consumer);
        let running = start(builder, noting(&journal));
        settled(node, &key, &journal, 25).await;
        running.stop().await;
        assert_eq!(journal.starts(), 25, "{name} as {consumer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_entries_between_read_and_acknowledgement_are_handled_behind_sentinels() {
    async fn run(binary: ServerBinary) {
        let setup = SentinelSetup::start(&binary, &plain()).await;
        let client = Client::open(&setup.url()).unwrap();
        let master = setup.master().await;
        stranded(&setup.servers[master], &client, "b14", &format!("sentinels of {}", binary.name())).await;
    }
    on_programs(run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_entries_between_read_and_acknowledgement_are_handled_in_a_cluster() {
    async fn run(binary: ServerBinary) {
        let cluster = RealCluster::start(&binary, &plain(), 3, false).await;
        let client = Client::open(&cluster.url()).unwrap();
        let node = &cluster.nodes[cluster.owner("{b14}").await];
        stranded(node, &client, "b14", &format!("cluster of {}", binary.name())).await;
    }
    on_programs(run).await;
}
