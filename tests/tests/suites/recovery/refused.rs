//! A server that lets nobody in for a minute, or lets everybody in and closes at the first word, and a hundred consumers that
//! come back to it, with paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use stream_core::{BackoffPolicy, StreamKey};
use stream_redis::{Connection, Connector, Error, Reader};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use streamkeeper::{Client, Consumer, Context};
use streamkeeper_tests::{Journal, start};
use tokio::time::Instant;

use crate::memory::{publish, until};

const CONSUMERS: usize = 100;

/// When each consumer asked for a connection, for commands and for reading.
type Attempts = Arc<Mutex<BTreeMap<(usize, &'static str), Vec<Instant>>>>;

/// The way to the server, with a list of who went it and when.
#[derive(Debug)]
struct Watched {
    consumer: usize,
    client: Client,
    attempts: Attempts,
}

impl Watched {
    fn note(&self, what: &'static str) {
        self.attempts.lock().unwrap().entry((self.consumer, what)).or_default().push(Instant::now());
    }
}

#[async_trait]
impl Connector for Watched {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        self.note("commands");
        self.client.connector().connect(key).await
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        self.note("reading");
        self.client.connector().open_reader(key, name).await
    }
}

#[tokio::test(start_paused = true)]
async fn b47_a_hundred_consumers_refused_for_a_minute_ask_seldom_and_spread_and_all_come_back() {
    refused_for_a_minute(|server| server.set_down(true)).await;
}

/// As a port does that has no server behind its load balancer.
#[tokio::test(start_paused = true)]
async fn b47_a_hundred_consumers_let_in_and_cut_off_for_a_minute_ask_as_seldom() {
    refused_for_a_minute(|server| server.fail_always("*", Fault::CutBefore)).await;
}

async fn refused_for_a_minute(refuse: impl FnOnce(&MemoryServer)) {
    let server = MemoryServer::new();
    let attempts = Attempts::default();
    let journal = Journal::default();
    let mut all = Vec::new();
    for consumer in 0..CONSUMERS {
        let watched = Watched { consumer, client: server.client(), attempts: Arc::clone(&attempts) };
        let builder = Consumer::durable(&Client::from_connector(watched)).stream(format!("s{consumer}")).group("g");
        let seen = journal.clone();
        all.push(start(builder, move |cx: Context| {
            seen.begin(&cx).end();
            async {}
        }));
    }
    until("all to wait for entries", || server.blocked_readers() == CONSUMERS).await;
    attempts.lock().unwrap().clear();

    let down = Instant::now();
    refuse(&server);
    server.kill_connections();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let asked = std::mem::take(&mut *attempts.lock().unwrap());
    server.set_down(false);
    server.clear_faults();
    let up = Instant::now();
    for consumer in 0..CONSUMERS {
        publish(&server, &format!("s{consumer}"), 1);
    }
    until("each to have handled what was published since", || journal.ends() == CONSUMERS).await;
    assert!(up.elapsed() < BackoffPolicy::default().max(), "{:?}", up.elapsed());

    // Nobody asks sooner than the shortest wait of the policy; the n-th wait is at most a second times two to the n.
    let policy = BackoffPolicy::default();
    let mut moments = Vec::new();
    for ((consumer, what), times) in &asked {
        assert!((3..=20).contains(&times.len()), "consumer {consumer}, {what}: {} attempts", times.len());
        for pair in times.windows(2) {
            assert!(pair[1] - pair[0] >= policy.delay(0, 0.0), "consumer {consumer}, {what}: {pair:?}");
        }
        moments.extend(times.iter().map(|time| (*time - down).as_millis()));
    }
    // And ever more seldom: the fourth wait is eight times the first in the mean.
    let mean = |wait: usize| {
        let waits = asked.values().filter_map(|times| Some(*times.get(wait + 1)? - *times.get(wait)?));
        let waits: Vec<Duration> = waits.collect();
        waits.iter().sum::<Duration>() / u32::try_from(waits.len()).unwrap()
    };
    assert!(mean(3) > 3 * mean(0), "{:?} and {:?}", mean(0), mean(3));
    // Whoever cannot send a command does not try to read.
    assert_eq!(asked.keys().filter(|(_, what)| *what == "commands").count(), CONSUMERS);
    // All connections are lost at once. Once they have waited, no tenth of a second sees a crowd of them.
    let mut crowds = BTreeMap::new();
    moments.iter().filter(|moment| **moment > 5_000).for_each(|moment| *crowds.entry(moment / 100).or_insert(0) += 1);
    let largest = crowds.values().max().copied().unwrap_or_default();
    assert!((1..=20).contains(&largest), "{largest} attempts within a tenth of a second: {crowds:?}");
    for consumer in all {
        assert!(!consumer.is_over());
        consumer.stop().await;
    }
}
