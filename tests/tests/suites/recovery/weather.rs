//! Networks that are slow, narrow, half open, stalled or refuse, in an order that nobody has thought of.

use std::collections::BTreeSet;
use std::time::Duration;

use stream_testkit::proxy::{Mode, Weather};
use stream_testkit::{Proxy, RealServer, ServerOptions, eventually};
use streamkeeper::{Client, Consumer, EntryId};
use streamkeeper_tests::{Ask, Journal, on_each_own, start};

use crate::topology::noting;

/// With a busy machine around it.
const LIMIT: Duration = Duration::from_secs(60);

fn consumer(proxy: &Proxy) -> streamkeeper::DurableBuilder {
    let url = format!("{}?connect_timeout=1s&response_timeout=1s", proxy.url());
    Consumer::durable(&Client::open(&url).unwrap())
        .stream("orders")
        .group("g")
        .block(Duration::from_millis(500))
        .lease(Duration::from_secs(3))
        .backoff(Duration::from_millis(50), Duration::from_millis(500))
}

async fn all_handled(server: &RealServer, journal: &Journal, published: &BTreeSet<EntryId>) {
    eventually(LIMIT, format!("all entries to be handled on {}", server.name()), || async {
        let handled: BTreeSet<EntryId> = journal.attempts().into_keys().collect();
        (handled == *published && server.pending("orders", "g").await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_network_does_every_entry_is_handled_once_it_is_calm() {
    const SEED: u64 = 11;
    on_each_own(ServerOptions::new(), |server| async move {
        let proxy = Proxy::start(server.address()).await.unwrap();
        let journal = Journal::default();
        let consumer = start(consumer(&proxy), noting(&journal));
        let mut published = BTreeSet::new();
        for spell in Weather::new(SEED).take(8) {
            for _ in 0..20 {
                let id = server.ask("XADD orders * data 1").await;
                published.insert(EntryId::parse(id.as_bytes().unwrap()).unwrap());
            }
            proxy.play([spell], Duration::from_millis(200)).await;
        }
        all_handled(&server, &journal, &published).await;
        consumer.stop().await;
    })
    .await;
}

/// What arrives all the time is no silence, however long all of it takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_takes_longer_than_a_response_may_is_read_to_the_end_as_long_as_it_arrives() {
    on_each_own(ServerOptions::new(), |server| async move {
        let mut published = BTreeSet::new();
        let data = "x".repeat(10_000);
        for _ in 0..20 {
            let id = server.ask(&format!("XADD orders * data {data}")).await;
            published.insert(EntryId::parse(id.as_bytes().unwrap()).unwrap());
        }
        let proxy = Proxy::start(server.address()).await.unwrap();
        // All of it takes four seconds, and a response may take one.
        proxy.set(Mode::Throttle(50_000));
        let journal = Journal::default();
        let consumer = start(consumer(&proxy).lease(Duration::from_secs(10)), noting(&journal));
        all_handled(&server, &journal, &published).await;
        assert_eq!((consumer.stats.get().reconnects, journal.ends()), (0, 20), "{}", server.name());
        consumer.stop().await;
    })
    .await;
}
