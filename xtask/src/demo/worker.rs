//! The worker: an ordinary service that consumes orders through the public API of `streamkeeper`, as a process of its own.
//!
//! Only the journal, and the orders that ask for trouble, tell it from a service of a user. It ends by itself when the
//! process that started it is gone.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use streamkeeper::{Client, Consumer, Context, Entry, Json, RetryPolicy, Shutdown, StartFrom};

use super::journal::{Start, Writer};
use super::plan::Kind;
use crate::Failure;

pub(crate) const STREAM: &str = "demo:orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const DEAD_LETTERS: &str = "demo:orders:dead";
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

impl DemoWorker {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // An aborting process would leave a core file each time.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(LEVEL).init();
        end_with_parent();
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
        let journal = Writer::create(&self.journal, self.number, &consumer.name().to_string())
            .map_err(|error| format!("cannot write the journal {}: {error}", self.journal.display()))?;
        let shutdown = Shutdown::on_signals()?;
        let desk = Arc::new(Desk { journal });
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

const LEVEL: tracing_subscriber::filter::LevelFilter = tracing_subscriber::filter::LevelFilter::WARN;

/// Where orders are billed.
struct Desk {
    journal: Writer,
}

impl Desk {
    async fn bill(self: Arc<Self>, entry: Entry, cx: Context) -> Result<(), &'static str> {
        let number = entry.get(NUMBER_FIELD).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let what = Start { entry: cx.id(), order: number.unwrap_or(0), attempt: cx.attempt() };
        or_die(self.journal.started(what));
        // The work: a call to somewhere that takes its time.
        tokio::time::sleep(Duration::from_millis(1 + what.order % 3)).await;
        let result = match Kind::of_act(entry.get(ACT_FIELD)) {
            Kind::FailsTwice if what.attempt < 3 => Err("the bank does not answer"),
            Kind::Poison => Err("no such customer"),
            Kind::Abort => std::process::abort(),
            _ => Ok(()),
        };
        or_die(self.journal.ended(what, result.is_ok()));
        result
    }
}

/// Without a journal nothing can be proven, so a worker that cannot write it must not go on.
fn or_die(written: std::io::Result<()>) {
    if let Err(error) = written {
        eprintln!("cannot write the journal: {error}");
        std::process::exit(2);
    }
}

/// Nobody else would end this process if the one that started it were killed.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        eprintln!("the process that started this one is gone");
        std::process::exit(3);
    });
}
