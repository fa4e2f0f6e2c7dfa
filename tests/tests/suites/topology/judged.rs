//! Streams whose whole history is written down and judged: what was published, which handler ran when, what the servers
//! said, and when they were away.
//!
//! An entry counts as confirmed when a replica has it as well, as long as [`Judged::lone`] does not say that there is none:
//! a master loses by design what it confirmed and had not passed on when it was replaced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_redis::{Connection, Request, Value};
use stream_testkit::history::{Cause, Ending, Expectations, Fate, History, Returned, Verdict, What};
use stream_testkit::{RealServer, eventually, work_for};
use streamkeeper::{Client, Context, DurableBuilder, Entry, EntryId, Event, RunError, Shutdown, StreamKey};
use streamkeeper_tests::Ask;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::LIMIT;

/// Entries of one publisher at a time, and the pause between.
const BATCH: u64 = 5;
const PAUSE: Duration = Duration::from_millis(25);
/// A server that does not answer a publisher for so long is given up.
const PATIENCE: Duration = Duration::from_secs(3);
/// Each of so many handlers outlives a lease.
const SLOW: u64 = 100;
const SLOW_FOR: Duration = Duration::from_secs(4);

/// Histories, one for each stream. Clones are the same.
#[derive(Clone)]
pub(super) struct Judged(Arc<Desk>);

struct Desk {
    began: Instant,
    streams: Mutex<BTreeMap<String, Notes>>,
    number: AtomicU64,
    lone: AtomicBool,
}

#[derive(Default)]
struct Notes {
    history: History,
    /// When the handler of each entry began first.
    begun: BTreeMap<EntryId, Instant>,
    /// When each process began to handle anything last.
    last: BTreeMap<u32, Instant>,
    confirmed: Vec<EntryId>,
}

impl Judged {
    pub(super) fn new() -> Self {
        let (streams, number) = (Mutex::default(), AtomicU64::new(1));
        Self(Arc::new(Desk { began: Instant::now(), streams, number, lone: AtomicBool::new(false) }))
    }

    fn at(&self, time: Instant) -> u64 {
        // Events before the beginning would be at zero.
        u64::try_from(time.duration_since(self.0.began).as_micros()).unwrap() + 1
    }

    fn with<T>(&self, stream: &str, work: impl FnOnce(&mut Notes) -> T) -> T {
        work(self.0.streams.lock().unwrap().entry(stream.to_owned()).or_default())
    }

    fn note(&self, stream: &str, time: Instant, what: What) {
        let at = self.at(time);
        self.with(stream, |notes| notes.history.add(at, what));
    }

    /// Whether there is no replica now, so that what the server confirms is all that can be had.
    pub(super) fn lone(&self, lone: bool) {
        self.0.lone.store(lone, Ordering::SeqCst);
    }

    /// Until now the servers of a stream were away, or may have been for a client.
    pub(super) fn away(&self, stream: &str, since: Instant) {
        let since = self.at(since);
        self.note(stream, Instant::now(), What::Silence { process: None, cause: Cause::Server, since });
    }

    /// Between `since` and now another server took over, and with it went what the old one alone knew.
    pub(super) fn replaced(&self, stream: &str, since: Instant) {
        self.away(stream, since);
        let since = self.at(since);
        self.note(stream, Instant::now(), What::GroupLost { since });
    }

    /// Starts a consumer as a process of this number. Some of its handlers take longer than a lease.
    pub(super) fn start(&self, builder: DurableBuilder, streams: &[String], process: u32) -> Subject {
        let consumer = format!("process-{process}");
        for stream in streams {
            self.note(stream, Instant::now(), What::ProcessStarted { process, consumer: consumer.clone() });
        }
        let told = self.clone();
        let builder = streams.iter().fold(builder, DurableBuilder::stream).consumer(consumer.as_str()).concurrency(64);
        let observer = move |stream: &StreamKey, event: &Event<'_>| {
            if let Event::LeaseLost { id } = event {
                told.note(&stream.to_string(), Instant::now(), What::LeaseLost { process, entry: *id });
            }
        };
        let consumer = builder.observer(observer).build().unwrap();
        let (shutdown, desk) = (Shutdown::new(), self.clone());
        let switch = shutdown.clone();
        let handler = move |entry: Entry, cx: Context| desk.clone().handle(process, entry, cx);
        let task = tokio::spawn(async move { consumer.run_with(&switch, handler).await.map(|_| ()) });
        Subject { process, streams: streams.to_vec(), shutdown, task }
    }

    async fn handle(self, process: u32, entry: Entry, cx: Context) {
        let (stream, number, attempt) = (cx.stream().to_string(), number_of(&entry), cx.attempt());
        let entry = cx.id();
        let now = Instant::now();
        self.note(&stream, now, What::Started { process, entry, number, attempt });
        self.with(&stream, |notes| {
            notes.begun.entry(entry).or_insert(now);
            notes.last.insert(process, now);
        });
        if number % SLOW == 0 {
            work_for(SLOW_FOR).await;
        }
        self.note(&stream, Instant::now(), What::Finished { process, entry, attempt, result: Returned::Done });
    }

    /// A publisher, until it is stopped. Nothing is published twice by it: where the connection failed, nobody knows.
    pub(super) fn publish(&self, client: &Client, stream: &str, replicated: bool) -> Publishing {
        let stop = Arc::new(AtomicBool::new(false));
        let (desk, client, name, stopped) = (self.clone(), client.clone(), stream.to_owned(), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let key = StreamKey::new(name.as_str()).unwrap();
            let mut connection = None;
            while !stopped.load(Ordering::SeqCst) {
                work_for(PAUSE).await;
                let open = match connection.take() {
                    Some(open) => open,
                    None => match timeout(PATIENCE, client.connector().connect(&key)).await {
                        Ok(Ok(open)) => open,
                        Ok(Err(_)) | Err(_) => continue,
                    },
                };
                if desk.batch(&*open, &key, replicated).await {
                    connection = Some(open);
                }
            }
        });
        Publishing { stop, task }
    }

    /// Publishes a batch, and says whether the connection is still good.
    async fn batch(&self, connection: &dyn Connection, key: &StreamKey, replicated: bool) -> bool {
        let (at, stream) = (Instant::now(), key.to_string());
        let first = self.0.number.fetch_add(BATCH, Ordering::SeqCst);
        let numbers = first..first + BATCH;
        let add = |number: u64| Request::new("XADD").key(key).arg("*").arg("data").arg(number.to_string());
        let requests: Vec<Request> = numbers.clone().map(add).collect();
        let sent = timeout(PATIENCE, connection.send(&requests)).await;
        let replies = sent.ok().and_then(Result::ok);
        let wait = Request::new("WAIT").int(1).int(1_000);
        let kept = replies.is_some()
            && (!replicated
                || self.0.lone.load(Ordering::SeqCst)
                || matches!(timeout(PATIENCE, connection.call(&wait)).await, Ok(Ok(Value::Int(1..)))));
        let mut good = kept;
        for (place, number) in numbers.enumerate() {
            let reply = replies.as_ref().map(|replies| &replies[place]);
            match reply {
                Some(Ok(id)) if kept => {
                    let entry = EntryId::parse(id.as_bytes().unwrap()).unwrap();
                    self.confirmed(&stream, at, entry, number);
                }
                // Refused: it is not there.
                Some(Err(_)) => good = false,
                Some(Ok(_)) | None => {
                    self.note(&stream, at, What::Unconfirmed { number, key: None, fate: Fate::Handled });
                }
            }
        }
        good
    }

    fn confirmed(&self, stream: &str, at: Instant, entry: EntryId, number: u64) {
        self.note(stream, at, What::Published { entry, number, key: None, fate: Fate::Handled });
        self.with(stream, |notes| notes.confirmed.push(entry));
    }

    /// Adds an entry as soon as `server` takes it, and returns it with the time.
    pub(super) async fn probe(&self, server: &RealServer, stream: &str) -> (EntryId, Instant) {
        let number = self.0.number.fetch_add(1, Ordering::SeqCst);
        let data = number.to_string();
        eventually(LIMIT, format!("{} to take an entry of {stream}", server.address()), || async {
            let at = Instant::now();
            let id = server.cli(&["XADD", stream, "*", "data", &data]).await.ok()?;
            let entry = EntryId::parse(id.as_bytes()?).ok()?;
            self.confirmed(stream, at, entry, number);
            Some((entry, Instant::now()))
        })
        .await
    }

    /// When the handler of an entry began first.
    pub(super) async fn handled(&self, stream: &str, entry: EntryId) -> Instant {
        eventually(LIMIT, format!("{entry} of {stream} to be handled"), || {
            std::future::ready(self.with(stream, |notes| notes.begun.get(&entry).copied()))
        })
        .await
    }

    /// Waits until so many more entries than now are confirmed and handled, and each of these processes has handled some.
    pub(super) async fn goes_on(&self, stream: &str, entries: usize, processes: &[u32]) {
        let now = Instant::now();
        let before = self.with(stream, |notes| notes.confirmed.len());
        eventually(LIMIT, format!("{entries} more entries of {stream} to be handled by all"), || {
            std::future::ready(self.with(stream, |notes| {
                let new = notes.confirmed.iter().skip(before).filter(|id| notes.begun.contains_key(id)).count();
                let all = processes.iter().all(|process| notes.last.get(process).is_some_and(|last| *last > now));
                (new >= entries && all).then_some(())
            }))
        })
        .await;
    }

    /// Waits until everything that is on `server` is handled and acknowledged, which is looked at all the while.
    pub(super) async fn settles(&self, server: &RealServer, stream: &str) {
        eventually(LIMIT, format!("nothing of {stream} to be left"), || async {
            let (end, pending) = self.look(server, stream).await;
            let last = server.entries(stream).await.last()?.id();
            (pending == 0 && end >= last).then_some(())
        })
        .await;
    }

    /// Takes down how far the group is; returns its last delivered id and how many are pending.
    async fn look(&self, server: &RealServer, stream: &str) -> (EntryId, i64) {
        let Value::Array(groups) = server.ask(&format!("XINFO GROUPS {stream}")).await else { panic!("no groups") };
        let Value::Array(group) = &groups[0] else { panic!("no group") };
        let mut pairs = group.chunks_exact(2);
        let delivered = pairs.find(|pair| pair[0].as_bytes() == Some(b"last-delivered-id")).unwrap();
        let delivered = EntryId::parse(delivered[1].as_bytes().unwrap()).unwrap();
        // Asked second: what was delivered meanwhile is above.
        let pending = server.pending_entries(stream, "g").await;
        let oldest = pending.iter().map(|(id, _, _)| *id).min();
        let done = oldest.map_or(Some(delivered), EntryId::predecessor).map(|done| done.min(delivered));
        if let Some(entry) = done {
            self.note(stream, Instant::now(), What::DoneUpTo { entry });
        }
        (delivered, pending.len() as i64)
    }

    /// Judges a stream. What is on `server` is its end.
    pub(super) async fn verdict(&self, server: &RealServer, stream: &str, lease: Duration) -> Verdict {
        let (delivered, _) = self.look(server, stream).await;
        for (entry, _, _) in server.pending_entries(stream, "g").await {
            self.note(stream, Instant::now(), What::Pending { entry });
        }
        self.note(stream, Instant::now(), What::End { delivered });
        let history = self.with(stream, |notes| notes.history.clone());
        let verdict = history.check(&Expectations { lease, ..Expectations::default() });
        assert!(verdict.holds(), "{stream}:\n{}", verdict.complaints(5).join("\n"));
        verdict
    }
}

fn number_of(entry: &Entry) -> u64 {
    std::str::from_utf8(entry.get("data").unwrap()).unwrap().parse().unwrap()
}

/// A consumer whose runs are written down.
pub(super) struct Subject {
    process: u32,
    streams: Vec<String>,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), RunError>>,
}

impl Subject {
    /// Stops it; it has to have lived until now.
    pub(super) async fn stop(self, judged: &Judged) {
        assert!(!self.task.is_finished(), "process {} has ended by itself", self.process);
        let process = self.process;
        for stream in &self.streams {
            judged.note(stream, Instant::now(), What::Stopping { process });
        }
        self.shutdown.stop();
        self.task.await.unwrap().unwrap();
        for stream in &self.streams {
            judged.note(stream, Instant::now(), What::ProcessEnded { process, how: Ending::Stopped });
        }
    }
}

/// A publisher at work.
pub(super) struct Publishing {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Publishing {
    /// Ends it after the batch that it is at.
    pub(super) async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
    }
}
