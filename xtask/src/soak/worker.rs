//! The worker: a service as a user would write it, with a consumer, the maintenance of its stream, and sometimes a reader
//! without a group beside it, in one [`Host`].
//!
//! Only the journal, and the messages that ask for trouble, tell it from a service of a user.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stream_redis::{Request, Value};
use stream_testkit::history::{Cause, Returned, What};
use streamkeeper::maint::{ConsumerCleaner, ConsumerPolicy, DeadLetters, LetterFilter, Redrive, Trimmer};
use streamkeeper::{
    Client, Consumer, Context, DurableBuilder, Entry, EntryId, EphemeralBuilder, Event, Host, Json, Outcome,
    RetryPolicy, Shutdown, StartFrom, StreamKey,
};

use super::plan::{Act, Message};
use super::watch::LOOKED;
use super::{GROUP, LEASE, LETTERS, MAX_ATTEMPTS, STREAM};
use crate::Failure;
use crate::fleet::begin_worker;
use crate::fleet::journal::{Journal, micros, now};

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(500);
/// A process that did not get to run for so long was silent.
const STALL: Duration = Duration::from_millis(700);
/// Letters go back when they were so old as the watcher last looked at them: it has cured what is in them.
const OLD_ENOUGH: Duration = Duration::from_secs(8);

/// Consumes until it is told to stop. Started by `cargo xtask soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakWorker {
    #[arg(long)]
    url: String,
    #[arg(long)]
    journal: PathBuf,
    #[arg(long)]
    number: u32,
    /// A folder with a file for each message that fails no more.
    #[arg(long)]
    cured: PathBuf,
    /// Fail where others abort, to live through all of the soak.
    #[arg(long)]
    veteran: bool,
    /// Also read without a group.
    #[arg(long)]
    reader: bool,
    /// Also send dead letters back.
    #[arg(long)]
    redrive: bool,
}

impl SoakWorker {
    pub(crate) fn run(self) -> Result<(), Failure> {
        begin_worker();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Failure> {
        let client = Client::open(&self.url)?;
        // Before the journal: who has begun that listens.
        let shutdown = Shutdown::on_signals()?;
        let name = format!("worker-{}", self.number);
        let journal = Journal::create(&self.journal, self.number, &name)
            .map_err(|error| format!("cannot write the journal {}: {error}", self.journal.display()))?;
        let desk = Arc::new(Desk { journal, process: self.number, cured: self.cured.clone(), veteran: self.veteran });
        watch_over(Arc::clone(&desk));
        let work = Arc::clone(&desk);
        let handler =
            move |Json(message): Json<Message>, entry: Entry, cx: Context| Arc::clone(&work).handle(message, entry, cx);
        let mut host = Host::builder()
            .durable("work", consumer(&client, &name, &desk), handler)
            .trim("trim", Trimmer::builder(&client).stream(STREAM).trim_every(Duration::from_secs(3)).build()?)
            .clean_consumers("clean", {
                let policy = ConsumerPolicy::new(Duration::from_mins(1))?;
                ConsumerCleaner::new(&client, STREAM, GROUP, policy)?.every(Duration::from_secs(5))
            });
        if self.reader {
            let after = last_published(&client).await;
            desk.write(What::ReaderReady { process: self.number, after });
            let reads = Arc::clone(&desk);
            host = host.ephemeral("reader", reader(&client, after, &desk), move |entry: Entry| {
                reads.write(What::ReaderGot { process: reads.process, entry: entry.id() });
                std::future::ready(())
            });
        }
        let redrive = self.redrive.then(|| tokio::spawn(send_back(client.clone(), self.cured.clone())));
        let report = host.build()?.run_with(&shutdown).await;
        if let Some(task) = redrive {
            task.abort();
        }
        eprintln!("stopped: {report:?}");
        report.into_result()?;
        Ok(())
    }
}

fn consumer(client: &Client, name: &str, desk: &Arc<Desk>) -> DurableBuilder {
    let told = Arc::clone(desk);
    Consumer::durable(client)
        .stream(STREAM)
        .group(GROUP)
        .consumer(name)
        .start(StartFrom::Beginning)
        .concurrency(32)
        .prefetch(200)
        .lease(LEASE)
        .retry(RetryPolicy::fixed(RETRY).max_attempts(MAX_ATTEMPTS))
        .dead_letter(LETTERS)
        .order_by_field("key")
        .backoff(Duration::from_millis(50), Duration::from_secs(1))
        .block(Duration::from_secs(1))
        .grace(Duration::from_secs(10))
        .observer(move |_: &StreamKey, event: &Event<'_>| {
            if let Event::LeaseLost { id } = event {
                told.write(What::LeaseLost { process: told.process, entry: *id });
            }
        })
}

fn reader(client: &Client, after: EntryId, desk: &Arc<Desk>) -> EphemeralBuilder {
    let told = Arc::clone(desk);
    Consumer::ephemeral(client)
        .stream(STREAM)
        .start(StartFrom::Id(after))
        .concurrency(1)
        .backoff(Duration::from_millis(50), Duration::from_secs(1))
        .block(Duration::from_secs(1))
        .observer(move |_: &StreamKey, event: &Event<'_>| {
            let process = told.process;
            match *event {
                Event::Gap { after, before, .. } => told.write(What::ReaderGap { process, after, before }),
                Event::StreamReset { from, .. } => told.write(What::ReaderReset { process, from }),
                _ => {}
            }
        })
}

/// The last id of the stream, once a server says it.
async fn last_published(client: &Client) -> EntryId {
    loop {
        if let Some(id) = ask_last_published(client).await {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn ask_last_published(client: &Client) -> Option<EntryId> {
    let key = StreamKey::new(STREAM).ok()?;
    let connection = client.connector().connect(&key).await.ok()?;
    let info = connection.call(&Request::new("XREVRANGE").key(&key).arg("+").arg("-").arg("COUNT").arg("1")).await;
    match info.ok()? {
        Value::Array(entries) => match entries.first() {
            Some(Value::Array(parts)) => EntryId::parse(parts.first()?.as_bytes()?).ok(),
            _ => Some(EntryId::ZERO),
        },
        _ => None,
    }
}

/// Sends exhausted letters back, again and again. A failure is one that the next round mends.
async fn send_back(client: Client, cured: PathBuf) {
    loop {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let Some(looked) = std::fs::read_to_string(cured.join(LOOKED)).ok().and_then(|ms| ms.parse().ok()) else {
            continue;
        };
        let seen = Duration::from_millis(looked).saturating_sub(OLD_ENOUGH);
        let filter = LetterFilter::all().reason("exhausted").until(seen);
        let Ok(mut letters) = DeadLetters::new(&client, LETTERS) else { return };
        if let Err(error) = letters.redrive(&Redrive::new().filter(filter).batch(20)).await {
            eprintln!("the re-drive was cut short: {error}");
        }
    }
}

/// Writes down, on a thread of its own, how much memory the process holds and when it did not get to run.
fn watch_over(desk: Arc<Desk>) {
    const PAUSE: Duration = Duration::from_millis(50);
    std::thread::spawn(move || {
        let mut before = now();
        for tick in 0_u64.. {
            std::thread::sleep(PAUSE);
            let process = desk.process;
            let since = std::mem::replace(&mut before, now());
            if before - since > micros(STALL) {
                desk.write(What::Silence { process: Some(process), cause: Cause::Frozen, since });
            }
            if tick % 20 == 0
                && let Some(kib) = resident()
            {
                desk.write(What::Resident { process, kib });
            }
        }
    });
}

/// Resident memory in KiB, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

struct Desk {
    journal: Journal,
    process: u32,
    cured: PathBuf,
    veteran: bool,
}

impl Desk {
    fn write(&self, what: What) {
        self.journal.write(what);
    }

    async fn handle(self: Arc<Self>, message: Message, entry: Entry, cx: Context) -> Outcome {
        let (process, attempt, entry) = (self.process, cx.attempt(), entry.id());
        self.write(What::Started { process, entry, number: message.number, attempt });
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(message.ms)) => {}
            // What is no longer ours had better stop.
            () = cx.cancelled() => {}
        }
        let (result, outcome) = match message.act {
            Act::FailTwice if attempt < 3 => (Returned::Failed, Outcome::failed("it does not work yet")),
            Act::Abort | Act::Fail if self.cured.join(message.number.to_string()).exists() => {
                (Returned::Done, Outcome::Done)
            }
            Act::Abort if !self.veteran => std::process::abort(),
            Act::Abort | Act::Fail => (Returned::Failed, Outcome::failed("it does not work")),
            Act::Reject => (Returned::Rejected, Outcome::reject("not for us")),
            _ => (Returned::Done, Outcome::Done),
        };
        self.write(What::Finished { process, entry, attempt, result });
        outcome
    }
}
