//! The worker: an ordinary service that consumes orders through the public API of `streamkeeper`, as a process of its own.
//!
//! Only the journal, and the orders that ask for trouble, tell it from a service of a user. It ends by itself when the
//! process that started it is gone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use stream_testkit::history::{Returned, What};
use streamkeeper::{Client, Consumer, Context, Entry, Json, RetryPolicy, Shutdown, StartFrom};

use super::plan::Kind;
use crate::Failure;
use crate::asked::Names;
use crate::fleet::begin_worker;
use crate::fleet::journal::Journal;

pub(crate) const STREAM: &str = "demo:orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const DEAD_LETTERS: &str = "demo:orders:dead";
pub(crate) const NAMES: Names = Names { stream: STREAM, group: GROUP, dead_letters: DEAD_LETTERS };
/// The fields of an entry, beside the payload in `data`.
pub(crate) const NUMBER_FIELD: &str = "number";
pub(crate) const ACT_FIELD: &str = "act";

pub(crate) const MAX_ATTEMPTS: u32 = 3;
/// Short, so that the demo is short: what a dead worker had comes back after this time and a third.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const RETRY: Duration = Duration::from_millis(200);

/// Consumes orders until it is told to stop. Started by `cargo xtask demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    #[arg(long)]
    url: String,
    #[arg(long)]
    journal: PathBuf,
    #[arg(long)]
    number: u32,
    /// Take any JSON for an order.
    #[arg(long)]
    any_json: bool,
}

/// An order as the demo publishes it.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "an order that lacks any of these cannot be decoded, which is all that is done with them")]
pub(crate) struct Order {
    pub(crate) number: u64,
    customer: String,
    item: String,
    cents: u64,
}

/// How a worker is started, but for its number and journal.
pub(crate) fn arguments(url: &str, any_json: bool) -> Vec<String> {
    let mut arguments = ["demo-worker", "--url", url].map(str::to_owned).to_vec();
    arguments.extend(any_json.then(|| "--any-json".to_owned()));
    arguments
}

impl DemoWorker {
    pub(crate) fn run(self) -> Result<(), Failure> {
        begin_worker();
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.consume())
    }

    async fn consume(self) -> Result<(), Failure> {
        let client = Client::open(&self.url)?;
        let consumer = Consumer::durable(&client)
            .stream(STREAM)
            .group(GROUP)
            .start(StartFrom::Beginning)
            .concurrency(64)
            .lease(LEASE)
            .retry(RetryPolicy::fixed(RETRY).max_attempts(MAX_ATTEMPTS))
            .dead_letter(DEAD_LETTERS)
            .backoff(Duration::from_millis(50), Duration::from_secs(1))
            .block(Duration::from_secs(1))
            .grace(Duration::from_secs(10))
            .build()?;
        // Before the journal: who has begun that listens.
        let shutdown = Shutdown::on_signals()?;
        let journal = Journal::create(&self.journal, self.number, &consumer.name().to_string())
            .map_err(|error| format!("cannot write the journal {}: {error}", self.journal.display()))?;
        let desk = Arc::new(Desk { journal, process: self.number });
        let report = if self.any_json {
            let handler =
                move |Json(_): Json<serde_json::Value>, entry: Entry, cx: Context| Arc::clone(&desk).bill(entry, cx);
            consumer.run_with(&shutdown, handler).await?
        } else {
            let handler = move |Json(_): Json<Order>, entry: Entry, cx: Context| Arc::clone(&desk).bill(entry, cx);
            consumer.run_with(&shutdown, handler).await?
        };
        eprintln!("stopped: {report:?}");
        let clean = report.unconfirmed + report.left_pending + report.aborted == 0;
        if clean { Ok(()) } else { Err("the stop was not clean; the report is above".into()) }
    }
}

/// Where orders are billed.
struct Desk {
    journal: Journal,
    process: u32,
}

impl Desk {
    async fn bill(self: Arc<Self>, entry: Entry, cx: Context) -> Result<(), &'static str> {
        let number = entry.get(NUMBER_FIELD).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let (process, number, id, attempt) = (self.process, number.unwrap_or(0), cx.id(), cx.attempt());
        self.journal.write(What::Started { process, entry: id, number, attempt });
        // The work: a call to somewhere that takes its time.
        tokio::time::sleep(Duration::from_millis(1 + number % 3)).await;
        let result = match Kind::of_act(entry.get(ACT_FIELD)) {
            Kind::FailsTwice if attempt < 3 => Err("the bank does not answer"),
            Kind::Poison => Err("no such customer"),
            Kind::Abort => std::process::abort(),
            _ => Ok(()),
        };
        let returned = if result.is_ok() { Returned::Done } else { Returned::Failed };
        self.journal.write(What::Finished { process, entry: id, attempt, result: returned });
        result
    }
}
