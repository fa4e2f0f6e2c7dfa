//! TLS in a cluster: nodes that are learned from others are held to the same, and each connection asks for the password of
//! the moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_core::StreamKey;
use stream_redis::{Client, ClusterOptions, ConnectOptions, ErrorKind, Request, TlsOptions, Value};
use stream_testkit::{RealServer, ServerBinary, ServerOptions, eventually};

use crate::every_server::{ok, on_every_binary};
use crate::tls::{Certificates, Rotating};

const READY: Duration = Duration::from_secs(60);

/// Two masters that share the slots, with their TLS ports.
async fn cluster(certificates: &Certificates, binary: &ServerBinary) -> Option<[(RealServer, u16); 2]> {
    let options = ServerOptions::new().args(["--cluster-enabled", "yes", "--tls-cluster", "yes"]);
    let nodes = [
        certificates.serve_as(binary, "server", "no", options.clone()).await?,
        certificates.serve_as(binary, "server", "no", options).await?,
    ];
    for ((node, _), slots) in nodes.iter().zip([0..8_192_u16, 8_192..16_384]) {
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        ok(node, &format!("CLUSTER ADDSLOTS {}", slots.join(" "))).await;
    }
    ok(&nodes[1].0, "CLUSTER SET-CONFIG-EPOCH 2").await;
    ok(&nodes[1].0, &format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].1)).await;
    for (node, _) in &nodes {
        eventually(READY, "the cluster to be whole", || async {
            let info = node.cli(&["CLUSTER", "INFO"]).await.ok()?;
            let info = String::from_utf8_lossy(info.as_bytes()?).into_owned();
            (info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")).then_some(())
        })
        .await;
    }
    Some(nodes)
}

async fn xlen(client: &Client, key: &str) -> Result<Value, stream_redis::Error> {
    let connection = client.connector().connect(&StreamKey::new(key).unwrap()).await?;
    connection.call(&Request::new("XLEN").arg(key)).await
}

#[tokio::test]
async fn every_node_of_a_cluster_is_greeted_over_tls_with_the_password_of_the_moment() {
    let certificates = Certificates::new();
    on_every_binary(async |binary| {
        let Some(nodes) = cluster(&certificates, &binary).await else { return };
        let mut admins = Vec::new();
        for (node, _) in &nodes {
            admins.push(node.connect().await.unwrap());
        }
        let provider = Rotating(Arc::new(Mutex::new("first")));
        let client = |tls: TlsOptions| {
            let options = ConnectOptions::tcp("localhost", 1).tls(tls).credentials(provider.clone());
            // The other node is learned from the first.
            let seeds = [("127.0.0.1".to_owned(), nodes[0].1)];
            Client::from_cluster(ClusterOptions::new(seeds, options.build().unwrap()).unwrap())
        };
        let trusting = client(certificates.localhost());
        for password in ["first", "second"] {
            for admin in &mut admins {
                admin.command(&["CONFIG", "SET", "requirepass", password]).await.unwrap();
                // Whoever is connected stays so.
                admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
            }
            if password == "second" {
                for key in ["a", "b"] {
                    let error = xlen(&trusting, key).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Authentication, "{key} on {}: {error}", binary.name());
                }
            }
            *provider.0.lock().unwrap() = password;
            // The slots of the first are the second node's, and the other way round.
            for key in ["a", "b"] {
                assert_eq!(xlen(&trusting, key).await.unwrap(), Value::Int(0), "{key} on {}", binary.name());
            }
        }
        let nobody = client(TlsOptions::new().server_name("localhost"));
        let error = xlen(&nobody, "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    })
    .await;
}
