//! On the in-memory server, with paused time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use streamkeeper::{Consumer, Context, ErrorKind, Partitions, Publisher, Shutdown, StartFrom};

use super::{CUSTOMERS, customer, publish};

#[tokio::test(start_paused = true)]
async fn publishers_of_all_partitions_share_one_connection_and_come_back_over_one() {
    let server = MemoryServer::new();
    let orders = Partitions::new("orders", 16).unwrap();
    let publisher = Publisher::builder(&server.client()).partitions(&orders).build_partitioned().unwrap();
    publish(&publisher, 0..5).await;
    assert_eq!(server.count("CONNECT"), 1);
    server.kill_connections();
    publish(&publisher, 5..10).await;
    assert_eq!(server.count("CONNECT"), 2);
    // An answer that says that this is no longer the one is a reason to connect anew, although the connection stands.
    server.fail_next("XADD", Fault::error("READONLY You can't write against a read only replica."));
    publish(&publisher, 10..15).await;
    assert_eq!(server.count("CONNECT"), 3);
    for place in 0..CUSTOMERS {
        let customer = customer(place);
        let entries = server.entries(orders.key_of(&customer));
        let numbers: Vec<_> = entries
            .iter()
            .filter(|entry| entry.get("customer") == Some(customer.as_bytes()))
            .map(|entry| String::from_utf8(entry.get("number").unwrap().to_vec()).unwrap())
            .collect();
        assert_eq!(numbers, (0..15).map(|number| number.to_string()).collect::<Vec<_>>(), "{customer}");
    }
    assert_eq!(publisher.unconfirmed(), 0);
    assert!(publisher.close(Duration::from_secs(1)).await.is_empty());
    drop(publisher);
    stream_testkit::eventually(Duration::from_secs(1), "all connections to be closed", || {
        std::future::ready((server.open_connections() == 0).then_some(()))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_left_at_the_end_comes_back_with_its_stream() {
    let server = MemoryServer::new();
    server.set_down(true);
    let orders = Partitions::new("orders", 4).unwrap();
    let publisher = Publisher::builder(&server.client()).partitions(&orders).build_partitioned().unwrap();
    for place in 0..CUSTOMERS {
        let customer = customer(place);
        drop(publisher.enqueue(&customer, [("customer", &customer)]).await.unwrap());
    }
    assert_eq!(publisher.unconfirmed(), CUSTOMERS);
    let began = tokio::time::Instant::now();
    let left = publisher.close(Duration::from_secs(3)).await;
    assert!(began.elapsed() < Duration::from_secs(4), "all partitions at once: {:?}", began.elapsed());
    assert_eq!(left.len(), CUSTOMERS);
    for (stream, unconfirmed) in left {
        assert_eq!(orders.key_of(unconfirmed.entry.get("customer").unwrap()), &stream);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_and_partitions_are_not_mixed_up() {
    let server = MemoryServer::new();
    let client = server.client();
    let orders = Partitions::new("orders", 4).unwrap();
    let refused = |builder: streamkeeper::PublisherBuilder| {
        let error = builder.build_partitioned().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    };
    assert!(refused(Publisher::builder(&client)).contains("needs partitions"));
    assert!(
        refused(Publisher::builder(&client).stream("orders").partitions(&orders)).contains("leave `.stream(..)` out")
    );
    let one = Publisher::builder(&client).partitions(&orders);
    assert!(one.check().is_ok() && one.clone().batch(0).check().is_err());
    assert!(one.build().unwrap_err().to_string().contains("build_partitioned"));
    let twice = Consumer::durable(&client).group("g").stream("orders:{3}").partitions(&orders).build();
    assert!(twice.unwrap_err().to_string().contains("orders:{3}"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_without_a_group_sees_all_partitions_and_keeps_their_order() {
    let server = MemoryServer::new();
    let client = server.client();
    let orders = Partitions::new("orders", 8).unwrap();
    let publisher = Publisher::builder(&client).partitions(&orders).build_partitioned().unwrap();
    publish(&publisher, 0..5).await;
    let seen = Arc::new(Mutex::new(std::collections::BTreeMap::<_, Vec<_>>::new()));
    let shutdown = Shutdown::new();
    let consumer = Consumer::ephemeral(&client).partitions(&orders).start(StartFrom::Beginning).build().unwrap();
    let run = tokio::spawn({
        let (seen, shutdown) = (Arc::clone(&seen), shutdown.clone());
        async move {
            let handler = move |cx: Context| {
                seen.lock().unwrap().entry(cx.stream().clone()).or_default().push(cx.id());
                std::future::ready(())
            };
            consumer.run_with(&shutdown, handler).await
        }
    });
    stream_testkit::eventually(Duration::from_mins(1), "all entries", || {
        let all: usize = seen.lock().unwrap().values().map(Vec::len).sum();
        std::future::ready((all >= CUSTOMERS * 5).then_some(()))
    })
    .await;
    shutdown.stop();
    run.await.unwrap().unwrap();
    for (key, ids) in &*seen.lock().unwrap() {
        assert!(server.entries(key).iter().map(streamkeeper::Entry::id).eq(ids.iter().copied()), "{key}");
    }
}
