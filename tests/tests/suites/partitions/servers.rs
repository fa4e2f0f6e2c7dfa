//! On every server of the matrix.

use std::time::Duration;

use streamkeeper::maint::Trimmer;
use streamkeeper::{Consumer, Context, Entry, Outcome, Partitions, Publisher, RetryPolicy};
use streamkeeper_tests::{Ask, on_each, start};

use super::{CUSTOMERS, Seen, publish};

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_each_key_is_kept_over_retries_and_one_room_is_shared() {
    on_each(|server| async move {
        let orders = Partitions::new(server.fresh_key("orders"), 8).unwrap();
        let client = server.client();
        let publisher = Publisher::builder(&client).partitions(&orders).build_partitioned().unwrap();
        let seen = Seen::default();
        let builder = Consumer::durable(&client)
            .partitions(&orders)
            .group("g")
            .concurrency(10)
            .order_by_field("customer")
            .retry(RetryPolicy::fixed(Duration::from_millis(20)));
        let consumer = start(builder, seen.handler(|number| number % 7 == 3));
        publish(&publisher, 0..20).await;
        server.until("all", || std::future::ready(seen.has(20))).await;
        consumer.stop().await;
        seen.check(20, 10, 8, server.name());
        // Whatever all have finished can be trimmed, partition by partition.
        for key in orders.keys() {
            let mut trimmer = Trimmer::builder(&client).stream(key).build().unwrap();
            trimmer.run().await.unwrap();
            assert_eq!(server.len(&key.to_string()).await, 1, "the last entry stays in {key}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_has_dead_letters_of_its_own() {
    on_each(|server| async move {
        let orders = Partitions::new(server.fresh_key("orders"), 4).unwrap();
        let client = server.client();
        let publisher = Publisher::builder(&client).partitions(&orders).build_partitioned().unwrap();
        let reject = |_: Context, _: Entry| std::future::ready(Outcome::reject("of no use"));
        let consumer = start(Consumer::durable(&client).partitions(&orders).group("g"), reject);
        publish(&publisher, 0..2).await;
        let stats = consumer.stats.clone();
        let all = CUSTOMERS as u64 * 2;
        server.until("the dead letters", || std::future::ready(stats.get().dead_lettered == all)).await;
        consumer.stop().await;
        for key in orders.keys() {
            let letters = server.len(&format!("{key}:dead")).await;
            assert_eq!(letters, server.len(&key.to_string()).await, "{key}");
            assert!(letters > 0, "{key}");
        }
    })
    .await;
}

/// The server's own idea of the hash.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_found_as_the_slots_of_a_cluster_are() {
    use stream_testkit::{RealCluster, ServerOptions, matrix};
    let Some(binary) = matrix::all().into_iter().rfind(|binary| !binary.is_external()) else { return };
    let cluster = RealCluster::start(&binary, &ServerOptions::new(), 1, false).await;
    let orders = Partitions::new("orders", 16).unwrap();
    for number in 0..500 {
        let key = super::customer(number);
        let slot = cluster.nodes[0].ask(&format!("CLUSTER KEYSLOT {key}")).await.as_int().unwrap();
        assert_eq!(orders.of(&key) as i64, slot % 16, "{key}");
    }
}
