//! On real clusters whose slots move and whose masters die meanwhile.

use std::time::Duration;

use stream_testkit::{RealCluster, ServerBinary, eventually};
use streamkeeper::{Client, Context, Entry, Outcome, Partitions, Publisher, RetryPolicy};
use streamkeeper_tests::{Ask, start};

use super::{CUSTOMERS, Seen, publish};
use crate::topology::{LIMIT, durable, on_programs, plain, replicated};

const PARTITIONS: usize = 12;

async fn goes_on(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut cluster = RealCluster::start(&binary, &plain(), 3, true).await;
    let orders = Partitions::new("orders", PARTITIONS).unwrap();
    let client = Client::open(&cluster.url()).unwrap();
    let publisher = Publisher::builder(&client).partitions(&orders).build_partitioned().unwrap();
    let seen = Seen::default();
    let builder = durable(&client)
        .partitions(&orders)
        .concurrency(10)
        .order_by_field("customer")
        .retry(RetryPolicy::fixed(Duration::from_millis(20)));
    let consumer = start(builder, seen.handler(|number| number % 7 == 3));
    let mut published = 0;
    let all_seen = |seen: Seen, number, what: String| async move {
        eventually(LIMIT, what, || std::future::ready(seen.has(number).then_some(()))).await;
    };

    // A slot moves while its partition is written and read.
    let moving = orders.key(5).to_string();
    let from = cluster.owner(&moving).await;
    tokio::join!(publish(&publisher, 0..40), cluster.migrate(&moving, (from + 1) % 3));
    published += 40;
    all_seen(seen.clone(), published, format!("all after the migration on {name}")).await;

    // A master dies. What was confirmed is with its replica; what is published meanwhile waits for that.
    let owner = cluster.owner(&moving).await;
    replicated(&cluster.nodes[owner]).await;
    cluster.nodes[owner].kill9().await.unwrap();
    publish(&publisher, published..published + 40).await;
    published += 40;
    all_seen(seen.clone(), published, format!("all after the kill on {name}")).await;
    cluster.nodes[owner].restart().await.unwrap();
    cluster.until_ok().await;

    assert!(!consumer.is_over(), "{name}");
    consumer.stop().await;
    seen.check(published, 10, PARTITIONS, &name);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_each_key_is_kept_while_a_slot_moves_and_a_master_dies() {
    on_programs(goes_on).await;
}

async fn dead_letters(binary: ServerBinary) {
    let cluster = RealCluster::start(&binary, &plain(), 3, false).await;
    let orders = Partitions::new("orders", PARTITIONS).unwrap();
    let client = Client::open(&cluster.url()).unwrap();
    let publisher = Publisher::builder(&client).partitions(&orders).build_partitioned().unwrap();
    let reject = |_: Context, _: Entry| std::future::ready(Outcome::reject("of no use"));
    let consumer = start(durable(&client).partitions(&orders), reject);
    publish(&publisher, 0..2).await;
    let stats = consumer.stats.clone();
    eventually(LIMIT, "the dead letters", || {
        std::future::ready((stats.get().dead_lettered == CUSTOMERS as u64 * 2).then_some(()))
    })
    .await;
    consumer.stop().await;
    for key in orders.keys() {
        // Where the stream is: the node answers for both.
        let node = &cluster.nodes[cluster.owner(&key.to_string()).await];
        let (letters, entries) = (node.len(&format!("{key}:dead")).await, node.len(&key.to_string()).await);
        assert_eq!(letters, entries, "{key} on {}", binary.name());
        let scripts = node.calls().await.keys().any(|command| command.starts_with("evalsha"));
        assert!(scripts, "written and acknowledged in one step on {}", binary.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_a_partition_share_its_slot() {
    on_programs(dead_letters).await;
}
