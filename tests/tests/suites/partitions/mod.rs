//! One logical stream over several: the publisher chooses by key, and one consumer reads all with one room.

mod cluster;
mod exact;
mod servers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::work_for;
use streamkeeper::{Context, Entry, Outcome, PartitionedPublisher};

/// So many customers, each with entries that are numbered.
const CUSTOMERS: usize = 40;

fn customer(number: usize) -> String {
    format!("customer-{number}")
}

/// Publishes the entries `numbers` of every customer; those of one customer one after the other.
async fn publish(publisher: &PartitionedPublisher, numbers: std::ops::Range<usize>) {
    let customers = (0..CUSTOMERS).map(|place| {
        let (customer, numbers) = (customer(place), numbers.clone());
        async move {
            for number in numbers {
                let fields = [("customer", customer.clone()), ("number", number.to_string())];
                publisher.publish(&customer, fields).await.unwrap();
            }
        }
    });
    futures_util::future::join_all(customers).await;
}

/// What handlers saw. Clones are the same.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// The numbers of each customer, in the order in which they came first.
    numbers: Arc<Mutex<BTreeMap<String, Vec<usize>>>>,
    streams: Arc<Mutex<BTreeMap<String, usize>>>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Seen {
    /// A handler that takes a moment. What `fails` says fails at its first attempt.
    fn handler(
        &self,
        fails: fn(usize) -> bool,
    ) -> impl Fn(Context, Entry) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> + Clone + Send + Sync + 'static
    {
        let seen = self.clone();
        move |cx: Context, entry: Entry| {
            let seen = seen.clone();
            Box::pin(async move {
                let text = |name| String::from_utf8(entry.get(name).unwrap().to_vec()).unwrap();
                let (customer, number): (_, usize) = (text("customer"), text("number").parse().unwrap());
                seen.most.fetch_max(seen.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                work_for(Duration::from_millis(1)).await;
                seen.running.fetch_sub(1, Ordering::SeqCst);
                if fails(number) && cx.attempt() == 1 {
                    return Outcome::failed("once");
                }
                let mut all = seen.numbers.lock().unwrap();
                let numbers = all.entry(customer).or_default();
                if !numbers.contains(&number) {
                    numbers.push(number);
                    *seen.streams.lock().unwrap().entry(cx.stream().to_string()).or_default() += 1;
                }
                Outcome::Done
            })
        }
    }

    /// Whether every customer's entries up to `number` have been seen.
    fn has(&self, number: usize) -> bool {
        let all = self.numbers.lock().unwrap();
        all.len() == CUSTOMERS && all.values().all(|numbers| numbers.len() >= number)
    }

    /// Every customer's entries came in their order, no more ran at once than had room, and all partitions gave some.
    fn check(&self, number: usize, concurrency: usize, partitions: usize, what: &str) {
        for (customer, numbers) in &*self.numbers.lock().unwrap() {
            assert!(numbers.iter().copied().eq(0..number), "{customer} on {what}: {numbers:?}");
        }
        let most = self.most.load(Ordering::SeqCst);
        assert!((2..=concurrency).contains(&most), "{most} at once on {what}");
        let streams = self.streams.lock().unwrap();
        assert_eq!(streams.len(), partitions, "on {what}: {streams:?}");
    }
}
