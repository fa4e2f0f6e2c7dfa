//! Networks and servers that fail in ways that a client does not notice by itself.

use std::time::Duration;

use stream_testkit::proxy::{Mode, Moment, Proxy};
use stream_testkit::{RealServer, ServerOptions, work_for};
use streamkeeper::{Client, Consumer, DurableBuilder};
use streamkeeper_tests::{Ask, Journal, on_each, on_each_own};

use super::{settled, taking};

/// A consumer through the proxy: BLOCK 1 s, answers within 500 ms, pauses up to 200 ms, a lease that plays no part.
fn through(proxy: &Proxy, key: &str) -> DurableBuilder {
    let client = Client::open(&format!("{}?response_timeout=500ms&connect_timeout=500ms", proxy.url())).unwrap();
    Consumer::durable(&client)
        .stream(key)
        .group("g")
        .block(Duration::from_secs(1))
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
}

#[tokio::test(flavor = "multi_thread")]
async fn b42_what_was_delivered_to_a_reader_that_hears_nothing_is_taken_up_at_once_and_unburned() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b42"), server.name().to_owned());
        let proxy = Proxy::start(server.address()).await.unwrap();
        let journal = Journal::default();
        let running = taking(through(&proxy, &key), &journal, Duration::ZERO);
        server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
        work_for(Duration::from_millis(100)).await;
        proxy.set(Mode::SwallowReplies);
        server.publish(&key, 7).await;
        server.until("the server to have delivered", || async { server.pending(&key, "g").await > 0 }).await;
        proxy.set(Mode::Forward);
        // The lease is 30 s: within this time it is not the steward that finds them.
        settled(&server, &key, &journal, 7).await;
        assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{name}: {:?}", journal.attempts());
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b42_a_reader_killed_on_the_server_loses_nothing() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b42"), server.name().to_owned());
        let proxy = Proxy::start(server.address()).await.unwrap();
        let journal = Journal::default();
        let running = taking(through(&proxy, &key), &journal, Duration::ZERO);
        for round in 1..=10 {
            server.until("it to be ready", || async { proxy.open() == 2 }).await;
            // In the middle of the reply, after it, or before the request.
            let moment = if round % 2 == 0 { Moment::BeforeReply } else { Moment::BeforeRequest };
            proxy.cut_at("XREADGROUP", moment);
            server.publish(&key, 20).await;
            settled(&server, &key, &journal, 20 * round).await;
        }
        assert_eq!(journal.starts(), 200, "{name}");
        assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{name}: {:?}", journal.attempts());
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b43_a_network_that_goes_silent_is_noticed_and_left_without_a_restart() {
    on_each(|server| async move {
        let name = server.name().to_owned();
        for mode in [Mode::Stall, Mode::StallReplies, Mode::SwallowReplies] {
            let key = server.fresh_key("b43");
            let proxy = Proxy::start(server.address()).await.unwrap();
            let journal = Journal::default();
            let running = taking(through(&proxy, &key), &journal, Duration::from_millis(50));
            server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
            for (round, during) in ["block", "acknowledgement"].into_iter().enumerate() {
                if during == "acknowledgement" {
                    server.publish(&key, 5).await;
                    server.until("handlers to run", || async { journal.starts() > 5 }).await;
                }
                proxy.set(mode);
                let before = running.events.count("Reconnecting");
                server.until("it to be noticed", || async { running.events.count("Reconnecting") > before }).await;
                if during == "block" {
                    server.publish(&key, 5).await;
                }
                proxy.set(Mode::Forward);
                settled(&server, &key, &journal, 5 * (round + 1)).await;
            }
            server.publish(&key, 5).await;
            settled(&server, &key, &journal, 15).await;
            assert_eq!(journal.overlaps(), [], "{name}: {mode:?}");
            assert!(!running.is_over(), "{name}: {mode:?}");
            // Nothing piles up: one connection for reading, one for commands.
            server.until("two connections", || async { proxy.open() == 2 }).await;
            running.stop().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b43_a_server_frozen_for_three_timeouts_is_come_back_to() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let client = Client::open(&format!("{}?response_timeout=500ms&connect_timeout=500ms", server.url())).unwrap();
        let builder = Consumer::durable(&client)
            .stream("orders")
            .group("g")
            .block(Duration::from_secs(1))
            .backoff(Duration::from_millis(20), Duration::from_millis(200));
        let journal = Journal::default();
        let running = taking(builder, &journal, Duration::from_millis(100));
        server.publish("orders", 20).await;
        server.until("handlers to run", || async { journal.starts() > 0 }).await;
        server.pause().await.unwrap();
        work_for(Duration::from_millis(4_500)).await;
        assert!(running.events.count("Reconnecting") > 0, "{name}");
        server.resume().await.unwrap();
        settled(&server, "orders", &journal, 20).await;
        server.publish("orders", 20).await;
        settled(&server, "orders", &journal, 40).await;
        running.stop().await;
        assert_eq!(journal.overlaps(), [], "{name}");
        assert_eq!(journal.starts(), 40, "{name}: {:?}", journal.attempts());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b45_every_connection_cut_at_any_point_comes_back() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b45"), server.name().to_owned());
        let proxy = Proxy::start(server.address()).await.unwrap();
        let journal = Journal::default();
        let builder = through(&proxy, &key).lease(Duration::from_millis(900));
        let running = taking(builder, &journal, Duration::from_millis(20));
        let mut published = 0;
        // Idle, in mid-read, in mid-acknowledgement, in mid-claim, in the renewal, in the greeting, at the group.
        for word in ["", "XREADGROUP", "XACK", "XAUTOCLAIM", "EVALSHA", "HELLO", "XGROUP", "XINFO", "XPENDING"] {
            for moment in [Moment::BeforeRequest, Moment::BeforeReply] {
                server.until("both connections", || async { proxy.open() == 2 }).await;
                if word.is_empty() {
                    proxy.cut();
                } else {
                    proxy.cut_at(word, moment);
                    if ["HELLO", "XGROUP", "XINFO", "XPENDING"].contains(&word) {
                        proxy.cut();
                    }
                }
                server.publish(&key, 10).await;
                published += 10;
                settled(&server, &key, &journal, published).await;
            }
        }
        assert!(!running.is_over(), "{name}");
        server.until("both connections", || async { proxy.open() == 2 }).await;
        assert_eq!(journal.overlaps(), [], "{name}");
        running.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b47_a_port_that_accepts_and_closes_is_backed_off_from() {
    let server = RealServer::start(&stream_testkit::matrix::one(), &ServerOptions::new()).await.unwrap();
    let proxy = Proxy::start(server.address()).await.unwrap();
    let journal = Journal::default();
    let running = taking(through(&proxy, "orders"), &journal, Duration::ZERO);
    server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
    proxy.set(Mode::Refuse);
    proxy.cut();
    let (before, began) = (proxy.accepted(), std::time::Instant::now());
    work_for(Duration::from_secs(3)).await;
    // Pauses of 100 ms on average, for two connections.
    let (asked, took) = (proxy.accepted() - before, began.elapsed());
    assert!((2..=30 * took.as_secs()).contains(&asked), "{asked} connections in {took:?}");
    proxy.set(Mode::Forward);
    server.publish("orders", 5).await;
    settled(&server, "orders", &journal, 5).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b48_a_server_that_becomes_a_replica_is_left_and_come_back_to() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let builder = Consumer::durable(&server.client())
            .stream("orders")
            .group("g")
            .block(Duration::from_secs(1))
            .backoff(Duration::from_millis(20), Duration::from_millis(200));
        let journal = Journal::default();
        let running = taking(builder, &journal, Duration::from_millis(10));
        server.publish("orders", 10).await;
        settled(&server, "orders", &journal, 10).await;
        server.ask("REPLICAOF 127.0.0.1 1").await;
        // New connections are made each time: whoever resolves the name anew finds the new primary.
        server.until("it to be noticed", || async { running.events.count("Reconnecting") >= 3 }).await;
        assert!(!running.is_over(), "{name}: {:?}", running.events.all());
        server.ask("REPLICAOF NO ONE").await;
        server.publish("orders", 10).await;
        settled(&server, "orders", &journal, 20).await;
        running.stop().await;
        assert_eq!(journal.starts(), 20, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b48_a_server_that_loads_its_data_is_waited_for() {
    let options = ServerOptions::new().aof(stream_testkit::AppendFsync::EverySecond);
    on_each_own(options, |mut server| async move {
        let name = server.name().to_owned();
        let builder = Consumer::durable(&server.client())
            .stream("orders")
            .group("g")
            .block(Duration::from_secs(1))
            // What was acknowledged before a kill and was not yet in the file is taken over within it.
            .lease(Duration::from_secs(3))
            .backoff(Duration::from_millis(5), Duration::from_millis(50));
        let journal = Journal::default();
        let running = taking(builder, &journal, Duration::ZERO);
        server.publish("orders", 2_000).await;
        settled(&server, "orders", &journal, 2_000).await;
        // A millisecond for every piece of the file: the server says LOADING for a while.
        server.ask("CONFIG SET key-load-delay 500").await;
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
        server.publish("orders", 10).await;
        settled(&server, "orders", &journal, 2_010).await;
        assert!(!running.is_over(), "{name}");
        running.stop().await;
    })
    .await;
}
