//! Consumers under load while nodes fail: what they saw, and how long each stream was without them.
//!
//! What is measured is the time from the moment at which a node serves the stream again, by a probe that the test itself
//! adds there, until the probe is handled. How long the servers take to get so far is theirs.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::{RealServer, eventually, work_for};
use streamkeeper::{Client, Context, EntryId, Publisher, StreamKey};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{LIMIT, publish};

/// Entries of one load at a time, and the pause between.
const BATCH: usize = 10;
const PAUSE: Duration = Duration::from_millis(25);

/// Whether to run the long form: more rounds, and the exact bounds.
pub(super) fn thorough() -> bool {
    std::env::var_os("STREAMKEEPER_THOROUGH").is_some()
}

/// How often and when first each entry was handled. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Handled>>);

type Handled = HashMap<(StreamKey, EntryId), (Instant, usize)>;

impl Seen {
    pub(super) fn handler(&self) -> impl Fn(Context) -> std::future::Ready<()> + Clone + Send + Sync + 'static {
        let seen = self.clone();
        move |cx: Context| {
            let mut all = seen.0.lock().unwrap();
            all.entry((cx.stream().clone(), cx.id())).or_insert_with(|| (Instant::now(), 0)).1 += 1;
            std::future::ready(())
        }
    }

    /// When an entry was handled first.
    pub(super) async fn first(&self, key: &str, id: EntryId) -> Instant {
        let place = (StreamKey::new(key).unwrap(), id);
        eventually(LIMIT, format!("{id} of {key} to be handled"), || {
            std::future::ready(self.0.lock().unwrap().get(&place).map(|(first, _)| *first))
        })
        .await
    }

    /// Waits until all of these were handled.
    pub(super) async fn all(&self, key: &str, ids: &BTreeSet<EntryId>, what: &str) {
        let key = StreamKey::new(key).unwrap();
        eventually(LIMIT, format!("all of {key} to be handled {what}"), || {
            let all = self.0.lock().unwrap();
            std::future::ready(ids.iter().all(|id| all.contains_key(&(key.clone(), *id))).then_some(()))
        })
        .await;
    }

    /// How many starts there were beyond the first of each entry.
    pub(super) fn repeated(&self) -> usize {
        self.0.lock().unwrap().values().map(|(_, times)| times - 1).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A publisher that goes on until it is stopped.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<BTreeSet<EntryId>>,
}

impl Load {
    pub(super) fn on(client: &Client, key: &str) -> Self {
        let publisher = Publisher::builder(client).stream(key).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut published = BTreeSet::new();
            while !stopped.load(Ordering::Relaxed) {
                published.extend(publish(&publisher, BATCH).await);
                work_for(PAUSE).await;
            }
            published
        });
        Self { stop, task }
    }

    /// All that was published, each confirmed.
    pub(super) async fn stop(self) -> BTreeSet<EntryId> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// Adds an entry as soon as `server` takes it, and returns it with the time.
pub(super) async fn probe(server: &RealServer, key: &str) -> (EntryId, Instant) {
    eventually(LIMIT, format!("{} to take an entry of {key}", server.address()), || async {
        let id = server.cli(&["XADD", key, "*", "data", "probe"]).await.ok()?;
        Some((EntryId::parse(id.as_bytes()?).ok()?, Instant::now()))
    })
    .await
}

/// Times of one kind.
#[derive(Debug, Default)]
pub(super) struct Times(Vec<Duration>);

impl Times {
    /// Notes the time from `since` to `until`, which may lie before that, and checks it against the bound.
    pub(super) fn note(&mut self, since: Instant, until: Instant, bound: Duration, what: &str) {
        let time = until.saturating_duration_since(since);
        // A machine that builds something else meanwhile proves nothing about the bound.
        let bound = if thorough() { bound } else { bound + Duration::from_secs(20) };
        assert!(time <= bound, "{what}: {time:?}, and {bound:?} are allowed");
        self.0.push(time);
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.0.clone();
        times.sort_unstable();
        let (Some(middle), Some(most)) = (times.get(times.len() / 2), times.last()) else { return f.write_str("none") };
        write!(f, "{:.2} s, {:.2} s at most", middle.as_secs_f64(), most.as_secs_f64())
    }
}
