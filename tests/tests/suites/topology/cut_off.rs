//! Nodes that are cut off from the network and come back later, believing what they believed before.
//!
//! Containers are disconnected from theirs: connections to them are half open, new ones find no route, and among themselves
//! the nodes see the same. A process of this machine cannot be cut off, and is frozen in place of that: it is as silent, though
//! the system still takes connections for it.

use std::time::Duration;

use stream_redis::Value;
use stream_testkit::{
    AppendFsync, Network, RealCluster, RealServer, SentinelSetup, ServerBinary, ServerOptions, SpawnError, eventually,
    work_for,
};
use streamkeeper::Client;
use streamkeeper_tests::Ask;
use tokio::time::{Instant, timeout};

use super::judged::Judged;
use super::load::Times;
use super::{LIMIT, cluster, durable, on_some_programs, plain};

/// That of [`durable`].
const LEASE: Duration = Duration::from_secs(3);
/// One BLOCK period, and two seconds.
const BOUND: Duration = Duration::from_secs(3);
/// Nodes are held to be down after so long.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);

async fn cut_off(server: &RealServer) -> Instant {
    let now = Instant::now();
    if server.is_container() {
        server.cut_off().await.unwrap()
    } else {
        server.pause().await.unwrap()
    }
    now
}

async fn bring_back(server: &RealServer) {
    if server.is_container() { server.rejoin().await.unwrap() } else { server.resume().await.unwrap() }
}

async fn until_replica(server: &RealServer) {
    eventually(LIMIT, "the old master to follow the new one", || async {
        let Value::Array(role) = server.cli(&["ROLE"]).await.ok()? else { return None };
        (role[0].as_bytes() == Some(b"slave") && role[3].as_bytes() == Some(b"connected")).then_some(())
    })
    .await;
}

async fn sentinels(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url()).unwrap();
    let (judged, stream) = (Judged::new(), "orders".to_owned());
    let streams = [stream.clone()];
    let consumers = [1, 2].map(|process| judged.start(durable(&client), &streams, process));
    let load = judged.publish(&client, &stream, true);
    judged.goes_on(&stream, 300, &[1, 2]).await;

    let old = setup.master().await;
    let cut = cut_off(&setup.servers[old]).await;
    let new = &setup.servers[setup.until_other_than(old).await];
    let (probe, served) = judged.probe(new, &stream).await;
    let (mut failover, mut after) = (Times::default(), Times::default());
    failover.note(cut, served, LIMIT, "the sentinels");
    after.note(served, judged.handled(&stream, probe).await, BOUND, &format!("after the failover on {name}"));
    // The new master has no replica until the old one comes back.
    judged.lone(true);
    judged.goes_on(&stream, 200, &[1, 2]).await;
    judged.lone(false);
    judged.replaced(&stream, cut);

    // It still believes to be the master. What begins a lease from here on is excused nothing.
    bring_back(&setup.servers[old]).await;
    until_replica(&setup.servers[old]).await;
    setup.until_watched().await;
    judged.goes_on(&stream, 300, &[1, 2]).await;
    work_for(LEASE).await;
    load.stop().await;
    judged.settles(new, &stream).await;
    for consumer in consumers {
        consumer.stop(&judged).await;
    }
    let counts = judged.verdict(new, &stream, LEASE).await.counts;
    eprintln!(
        "{name}: a master cut off: the sentinels took {failover}; then handled after {after}. 0 of {} lost, {} in doubt, {} \
         handled again",
        counts.published, counts.unconfirmed, counts.handled_again
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_cut_off_is_replaced_and_comes_back_as_a_replica_and_nothing_is_lost() {
    on_some_programs(sentinels).await;
}

async fn slots(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let cluster = RealCluster::start(&binary, &plain(), 3, true).await;
    let streams = cluster::streams(&cluster).await;
    let client = Client::open(&cluster.url()).unwrap();
    let judged = Judged::new();
    let consumers = [1, 2].map(|process| judged.start(durable(&client), &streams, process));
    let loads = streams.each_ref().map(|stream| judged.publish(&client, stream, true));
    for stream in &streams {
        judged.goes_on(stream, 200, &[1, 2]).await;
    }

    // Masters come first, then their replicas in the same order; each stream is at the master of its place.
    let (stream, old, new) = (&streams[1], &cluster.nodes[1], &cluster.nodes[4]);
    let cut = cut_off(old).await;
    let others = async {
        let mut others = Times::default();
        while cut.elapsed() < NODE_TIMEOUT + BOUND {
            for other in [0, 2] {
                let (probe, served) = judged.probe(&cluster.nodes[other], &streams[other]).await;
                let handled = judged.handled(&streams[other], probe).await;
                others.note(served, handled, BOUND, &format!("another stream on {name}"));
            }
        }
        others
    };
    let taken_over = async {
        let (probe, served) = judged.probe(new, stream).await;
        let (mut failover, mut after) = (Times::default(), Times::default());
        failover.note(cut, served, LIMIT, "the cluster");
        after.note(served, judged.handled(stream, probe).await, BOUND, &format!("after the failover on {name}"));
        (failover, after)
    };
    let (others, (failover, after)) = tokio::join!(others, taken_over);
    judged.lone(true);
    judged.goes_on(stream, 200, &[1, 2]).await;
    judged.lone(false);
    judged.replaced(stream, cut);

    bring_back(old).await;
    until_replica(old).await;
    cluster.until_ok().await;
    judged.goes_on(stream, 200, &[1, 2]).await;
    work_for(LEASE).await;
    for load in loads {
        load.stop().await;
    }
    let nodes = [&cluster.nodes[0], new, &cluster.nodes[2]];
    for (node, stream) in nodes.into_iter().zip(&streams) {
        judged.settles(node, stream).await;
    }
    for consumer in consumers {
        consumer.stop(&judged).await;
    }
    let (mut published, mut again) = (0, Vec::new());
    for (node, stream) in nodes.into_iter().zip(&streams) {
        let counts = judged.verdict(node, stream, LEASE).await.counts;
        published += counts.published;
        again.push(counts.handled_again);
    }
    eprintln!(
        "{name}: a master cut off: the cluster took {failover}; then handled after {after}; streams of other nodes meanwhile \
         after {others}. 0 of {published} lost, handled again {again:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clusters_master_that_is_cut_off_delays_its_own_streams_alone_and_nothing_is_lost() {
    on_some_programs(slots).await;
}

async fn alone(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let network = Network::of(&binary).await.unwrap();
    let server = RealServer::start_in(&binary, &plain(), network.as_ref()).await.unwrap();
    let client = Client::open(&server.url()).unwrap();
    let (judged, stream) = (Judged::new(), "orders".to_owned());
    let streams = [stream.clone()];
    let consumers = [1, 2].map(|process| judged.start(durable(&client), &streams, process));
    let load = judged.publish(&client, &stream, false);
    judged.goes_on(&stream, 300, &[1, 2]).await;

    let cut = cut_off(&server).await;
    // Longer than a lease, and than an answer is waited for.
    work_for(Duration::from_secs(8)).await;
    bring_back(&server).await;
    let (probe, served) = judged.probe(&server, &stream).await;
    let mut after = Times::default();
    after.note(served, judged.handled(&stream, probe).await, BOUND, &format!("after its return on {name}"));
    judged.goes_on(&stream, 200, &[1, 2]).await;
    judged.away(&stream, cut);

    judged.goes_on(&stream, 200, &[1, 2]).await;
    work_for(LEASE).await;
    load.stop().await;
    judged.settles(&server, &stream).await;
    for consumer in consumers {
        consumer.stop(&judged).await;
    }
    let counts = judged.verdict(&server, &stream, LEASE).await.counts;
    eprintln!(
        "{name}: a server cut off for 8 s: handled after {after}. 0 of {} lost, {} in doubt, {} handled again",
        counts.published, counts.unconfirmed, counts.handled_again
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_cut_off_and_comes_back_is_read_on_without_a_restart() {
    on_some_programs(alone).await;
}

async fn addresses(binary: ServerBinary) {
    let network = Network::of(&binary).await.unwrap();
    let options = ServerOptions::new().aof(AppendFsync::Always);
    let mut servers = Vec::new();
    for _ in 0..2 {
        servers.push(RealServer::start_in(&binary, &options, network.as_ref()).await.unwrap());
    }
    let before: Vec<String> = servers.iter().map(RealServer::address).collect();
    if !servers[0].is_container() {
        let error = servers[0].cut_off().await.unwrap_err();
        assert!(matches!(error, SpawnError::NoNetwork { .. }), "{error}");
        return;
    }
    let mut open = servers[0].connect().await.unwrap();
    for (server, address) in servers.iter().zip(&before) {
        server.cli(&["SET", "address", address]).await.unwrap();
    }
    servers[0].cut_off().await.unwrap();
    let silent = timeout(Duration::from_secs(1), open.command(&["PING"])).await;
    assert!(silent.is_err(), "half open and not reset: {silent:?}");
    assert!(servers[0].cut_off().await.is_err(), "it is cut off already");
    servers[0].rejoin().await.unwrap();
    servers[0].ask("PING").await;
    // The engine gives the first free address to whoever starts first.
    for server in &mut servers {
        server.kill9().await.unwrap();
    }
    for server in servers.iter_mut().rev() {
        server.restart().await.unwrap();
    }
    for (server, address) in servers.iter().zip(&before) {
        assert_eq!(&server.address(), address);
        assert_eq!(server.ask("GET address").await.as_bytes(), Some(address.as_bytes()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_cut_off_or_killed_comes_back_at_its_address() {
    on_some_programs(addresses).await;
}
