//! Clusters whose slots move and whose masters die.

use std::collections::BTreeSet;

use stream_testkit::{RealCluster, ServerBinary, eventually};
use streamkeeper::{Client, Context, DurableBuilder, Outcome, Publisher};
use streamkeeper_tests::{Journal, start};

use super::{LIMIT, durable, handled, noting, on_programs, plain, programs, publish, replicated};

/// Three streams, each at another of three masters.
async fn streams(cluster: &RealCluster) -> [String; 3] {
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

async fn goes_on(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut cluster = RealCluster::start(&binary, &plain(), 3, true).await;
    let streams = streams(&cluster).await;
    let client = Client::open(&cluster.url()).unwrap();
    let journal = Journal::default();
    let consumers = [(); 2].map(|()| {
        let builder = streams.iter().fold(durable(&client), DurableBuilder::stream);
        start(builder, noting(&journal))
    });
    let publishers = streams.each_ref().map(|stream| Publisher::builder(&client).stream(stream).build().unwrap());
    let mut published = BTreeSet::new();
    for round in 0..4 {
        for publisher in &publishers {
            published.extend(publish(publisher, 50).await);
        }
        let from = cluster.owner(&streams[0]).await;
        cluster.migrate(&streams[0], (from + 1) % 3).await;
        for publisher in &publishers {
            published.extend(publish(publisher, 50).await);
        }
        handled(&journal, &published, &format!("after migration {round} on {name}")).await;
    }
    for round in 0..2 {
        let owner = cluster.owner(&streams[1]).await;
        replicated(&cluster.nodes[owner]).await;
        cluster.nodes[owner].kill9().await.unwrap();
        // The other streams go on while nobody serves this one.
        published.extend(publish(&publishers[2], 50).await);
        handled(&journal, &published, &format!("of another stream after kill {round} on {name}")).await;
        published.extend(publish(&publishers[1], 50).await);
        handled(&journal, &published, &format!("after kill {round} on {name}")).await;
        cluster.nodes[owner].restart().await.unwrap();
        cluster.until_ok().await;
    }
    for consumer in consumers {
        assert!(!consumer.is_over(), "{name}");
        consumer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_and_publishers_follow_slots_and_failovers() {
    on_programs(goes_on).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn one_server_without_slots_is_a_clear_end() {
    let Some(binary) = programs().pop() else { return };
    let server = stream_testkit::RealServer::start(&binary, &plain()).await.unwrap();
    let client = Client::open(&format!("redis+cluster://{}", server.address())).unwrap();
    let error = start(durable(&client).stream("orders"), noting(&Journal::default())).ended().await.unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(text.contains("is it a cluster?"), "{text}");
}
