//! Clusters whose slots move and whose masters die.

use std::collections::BTreeSet;
use std::time::Duration;

use stream_testkit::{AppendFsync, RealCluster, ServerBinary, eventually};
use streamkeeper::{Client, Consumer, Context, DurableBuilder, EntryId, Outcome, Publisher, Shutdown};
use streamkeeper_tests::{Ask, Journal, start};
use tokio::time::Instant;

use super::load::{Load, Seen, Times, probe, thorough};
use super::{LIMIT, durable, noting, on_programs, on_some_programs, plain, programs, publish, replicated};

/// Three streams, each at another of three masters.
pub(super) async fn streams(cluster: &RealCluster) -> [String; 3] {
    let mut names: [Option<String>; 3] = [None, None, None];
    for n in 0.. {
        let name = format!("orders-{n}");
        let owner = cluster.owner(&name).await;
        names[owner].get_or_insert(name);
        if names.iter().all(Option::is_some) {
            break;
        }
    }
    names.map(Option::unwrap)
}

/// One BLOCK period, and two seconds.
const BOUND: Duration = Duration::from_secs(3);

async fn goes_on(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut cluster = RealCluster::start(&binary, &plain(), 3, true).await;
    let streams = streams(&cluster).await;
    let client = Client::open(&cluster.url()).unwrap();
    let seen = Seen::default();
    let consumers = [(); 2].map(|()| {
        let builder = streams.iter().fold(durable(&client), DurableBuilder::stream);
        // With the pauses between attempts that everybody has who sets none.
        start(builder.backoff(Duration::from_secs(1), Duration::from_secs(60)), seen.handler())
    });
    let mut loads = streams.each_ref().map(|stream| Some(Load::on(&client, stream)));
    let mut published: [BTreeSet<_>; 3] = Default::default();
    let (migrations, kills) = if thorough() { (10, 5) } else { (2, 1) };

    let mut moved = Times::default();
    for round in 0..migrations {
        let from = cluster.owner(&streams[0]).await;
        // Never to the node of the second stream, which is going to die.
        let to = if from == 0 { 2 } else { 0 };
        cluster.migrate(&streams[0], to).await;
        let (id, served) = probe(&cluster.nodes[to], &streams[0]).await;
        published[0].insert(id);
        let handled = seen.first(&streams[0], id).await;
        moved.note(served, handled, BOUND, &format!("after migration {round} on {name}"));
    }

    let (mut failovers, mut killed, mut others) = (Times::default(), Times::default(), Times::default());
    for round in 0..kills {
        let owner = cluster.owner(&streams[1]).await;
        // What a master has confirmed and no replica has is lost with it. So nothing is published here as it dies.
        for (load, published) in loads.iter_mut().zip(&mut published) {
            published.extend(load.take().unwrap().stop().await);
        }
        replicated(&cluster.nodes[owner]).await;
        cluster.nodes[owner].kill9().await.unwrap();
        let began = Instant::now();
        for (load, stream) in loads.iter_mut().zip(&streams) {
            *load = Some(Load::on(&client, stream));
        }
        // Whatever is at the other nodes goes on while nobody serves this.
        for other in [0, 2] {
            let node = cluster.owner(&streams[other]).await;
            if node != owner {
                let (id, served) = probe(&cluster.nodes[node], &streams[other]).await;
                published[other].insert(id);
                let handled = seen.first(&streams[other], id).await;
                others.note(served, handled, BOUND, &format!("another stream after kill {round} on {name}"));
            }
        }
        let replica = cluster.owner(&streams[1]).await;
        let (id, served) = probe(&cluster.nodes[replica], &streams[1]).await;
        failovers.note(began, served, LIMIT, "the cluster");
        published[1].insert(id);
        let handled = seen.first(&streams[1], id).await;
        killed.note(served, handled, BOUND, &format!("after kill {round} on {name}"));
        cluster.nodes[owner].restart().await.unwrap();
        cluster.until_ok().await;
    }

    let mut entries = 0;
    for ((load, mut published), stream) in loads.into_iter().zip(published).zip(&streams) {
        published.extend(load.unwrap().stop().await);
        seen.all(stream, &published, &format!("on {name}")).await;
        entries += published.len();
    }
    for consumer in consumers {
        assert!(!consumer.is_over(), "{name}");
        consumer.stop().await;
    }
    eprintln!(
        "{name}: {migrations} migrations: handled after {moved}. {kills} kills: the cluster took {failovers}; then handled \
         after {killed}; streams of other nodes meanwhile after {others}. 0 of {entries} entries lost, {} runs repeated",
        seen.repeated()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_and_publishers_follow_slots_and_failovers_within_a_block_period_and_two_seconds() {
    on_programs(goes_on).await;
}

/// The slot moves under a durable consumer and a reader without a group that wait in their reads, there and back.
async fn moves_while_reads_wait(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let cluster = RealCluster::start(&binary, &plain(), 3, false).await;
    let key = "b50";
    let client = Client::open(&cluster.url()).unwrap();
    let (group, tail) = (Seen::default(), Seen::default());
    let durable = start(durable(&client).stream(key), group.handler());
    let ephemeral = Consumer::ephemeral(&client).stream(key).block(Duration::from_secs(1));
    let (shutdown, handler) = (Shutdown::new(), tail.handler());
    let (switch, ephemeral) = (shutdown.clone(), ephemeral.build().unwrap());
    let ephemeral = tokio::spawn(async move { ephemeral.run_with(&switch, handler).await });
    let slot = cluster.nodes[0].ask(&format!("CLUSTER KEYSLOT {key}")).await.as_int().unwrap();
    let mut moved = Times::default();
    let mut all = BTreeSet::new();
    for round in 0..4 {
        let from = cluster.owner(key).await;
        eventually(LIMIT, format!("both to wait on {name}"), || async {
            let info = cluster.nodes[from].ask("INFO clients").await;
            String::from_utf8_lossy(info.as_bytes()?).contains("blocked_clients:2\r\n").then_some(())
        })
        .await;
        let to = (from + 1) % 3;
        cluster.migrate(key, to).await;
        let (id, served) = probe(&cluster.nodes[to], key).await;
        all.insert(id);
        for seen in [&group, &tail] {
            moved.note(served, seen.first(key, id).await, BOUND, &format!("after migration {round} on {name}"));
        }
        let left = cluster.nodes[from].ask(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).await;
        assert_eq!(left.as_int(), Some(0), "{name}: nothing is made anew on the node that was left");
        let stream_redis::Value::Array(groups) = cluster.nodes[to].ask(&format!("XINFO GROUPS {key}")).await else {
            panic!("no list of groups on {name}")
        };
        assert_eq!(groups.len(), 1, "{name}");
    }
    for seen in [&group, &tail] {
        seen.all(key, &all, &format!("on {name}")).await;
        assert_eq!((seen.len(), seen.repeated()), (all.len(), 0), "{name}");
    }
    let report = durable.stop().await;
    assert_eq!(report.stats.groups_created, 1, "{name}: a slot that moves is no stream that was deleted");
    shutdown.stop();
    ephemeral.await.unwrap().unwrap();
    eprintln!("{name}: a slot moved under waiting reads: handled after {moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b50_a_slot_that_moves_while_reads_wait_is_followed_within_a_block_period() {
    on_programs(moves_while_reads_wait).await;
}

async fn beside_an_idle_stream(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let cluster = RealCluster::start(&binary, &plain(), 3, false).await;
    let [busy, elsewhere, _] = streams(&cluster).await;
    // Another slot of the same node.
    let mut idle = String::new();
    for n in 0.. {
        idle = format!("idle-{n}");
        if cluster.owner(&idle).await == cluster.owner(&busy).await {
            break;
        }
    }
    let client = Client::open(&cluster.url()).unwrap();
    let seen = Seen::default();
    // A minute: whoever waited for the idle stream's read would be seen.
    let builder = durable(&client).block(Duration::from_secs(60));
    let consumer = start([&idle, &busy, &elsewhere].into_iter().fold(builder, DurableBuilder::stream), seen.handler());
    let mut times = Times::default();
    for stream in [&busy, &elsewhere].into_iter().cycle().take(40) {
        let node = &cluster.nodes[cluster.owner(stream).await];
        let (id, added) = probe(node, stream).await;
        let handled = seen.first(stream, id).await;
        times.note(added, handled, Duration::from_secs(2), &format!("beside an idle stream on {name}"));
    }
    consumer.stop().await;
    eprintln!("{name}: beside an idle stream, handled after {times}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_not_delayed_by_the_blocking_read_of_another() {
    on_some_programs(beside_an_idle_stream).await;
}

async fn dead_letters(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let cluster = RealCluster::start(&binary, &plain(), 3, false).await;
    let [near, far, _] = streams(&cluster).await;
    let client = Client::open(&cluster.url()).unwrap();
    let reject = |_: Context| std::future::ready(Outcome::reject("of no use"));
    let consumer = start(durable(&client).stream(&near).dead_letter(&far), reject);
    let publisher = Publisher::builder(&client).stream(&near).build().unwrap();
    publish(&publisher, 100).await;
    let node = &cluster.nodes[cluster.owner(&far).await];
    eventually(LIMIT, format!("the dead letters on {name}"), || async {
        let length = node.cli(&["XLEN", &far]).await.ok()?.as_int()?;
        (length >= 100).then_some(())
    })
    .await;
    let node = &cluster.nodes[cluster.owner(&near).await];
    eventually(LIMIT, format!("nothing to be pending on {name}"), || async {
        let stream_redis::Value::Array(summary) = node.cli(&["XPENDING", &near, "g"]).await.ok()? else { return None };
        (summary[0].as_int() == Some(0)).then_some(())
    })
    .await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_reach_a_stream_in_another_slot() {
    on_programs(dead_letters).await;
}

/// Two steps on two nodes, each of which dies, and whose slots move, between them.
async fn dead_letters_between_faults(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut cluster = RealCluster::start(&binary, &plain().aof(AppendFsync::Always), 3, false).await;
    let [near, far, _] = streams(&cluster).await;
    let client = Client::open(&cluster.url()).unwrap();
    let reject = |_: Context| std::future::ready(Outcome::reject("of no use"));
    let consumer = start(durable(&client).stream(&near).dead_letter(&far), reject);
    let publisher = Publisher::builder(&client).stream(&near).build().unwrap();
    let mut published = publish(&publisher, 20).await;
    for key in [&far, &near] {
        let node = cluster.owner(key).await;
        // Another is on its way with each fault.
        let sent = publish(&publisher, 100).await;
        cluster.nodes[node].kill9().await.unwrap();
        cluster.nodes[node].restart().await.unwrap();
        cluster.until_ok().await;
        published.extend(sent);
    }
    for key in [&far, &near] {
        let from = cluster.owner(key).await;
        let (sent, ()) = tokio::join!(publish(&publisher, 100), cluster.migrate(key, (from + 1) % 3));
        published.extend(sent);
    }
    eventually(LIMIT, format!("a dead letter of each entry on {name}"), || async {
        let letters = cluster.nodes[cluster.owner(&far).await].entries(&far).await;
        let of = letters.iter().filter_map(|letter| EntryId::parse(letter.get("id")?).ok()).collect::<BTreeSet<_>>();
        let pending = cluster.nodes[cluster.owner(&near).await].pending(&near, "g").await;
        (of == published && pending == 0).then_some(())
    })
    .await;
    assert!(!consumer.is_over(), "{name}");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_reach_another_slot_also_where_nodes_die_and_slots_move_meanwhile() {
    on_programs(dead_letters_between_faults).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_without_slots_is_a_clear_end() {
    let Some(binary) = programs().pop() else { return };
    let server = stream_testkit::RealServer::start(&binary, &plain()).await.unwrap();
    let client = Client::open(&format!("redis+cluster://{}", server.address())).unwrap();
    let error = start(durable(&client).stream("orders"), noting(&Journal::default())).ended().await.unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(text.contains("is it a cluster?"), "{text}");
}
