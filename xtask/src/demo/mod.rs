//! `cargo xtask demo`: the library on a real server, with everything going wrong that it promises to survive, and a proof
//! from what was written down meanwhile that nothing was lost.
//!
//! `plan` says what is published and `publish` does it; `worker` is the service under test, as processes of a fleet;
//! `scenario` lets things go wrong; `check` puts together what the judge of histories has to know.

mod check;
mod plan;
mod progress;
mod publish;
mod scenario;
mod table;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use clap::Args;
use stream_testkit::history::Verdict;
use stream_testkit::matrix::Surroundings;
use stream_testkit::{AppendFsync, RealServer, ServerBinary, ServerOptions};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use self::check::{busiest_second, check};
use self::plan::Plan;
use self::scenario::Scenario;
use self::table::{Outcome, shown};
pub(crate) use self::worker::DemoWorker;
use self::worker::NAMES;
use crate::Failure;
use crate::asked::Asked;
use crate::fleet::Fleet;

/// So many examples of what does not hold.
const EXAMPLES: usize = 5;
const DEFAULT_MESSAGES: u64 = 100_000;
/// More would be a test of the machine's memory: the proof holds all of them.
const MOST_MESSAGES: u64 = 10_000_000;

/// Publishes orders on a real server, consumes them with three processes of one group, and proves that nothing was lost.
///
/// Meanwhile one worker is killed with SIGKILL when a quarter is handled, another is stopped with SIGTERM, the server is
/// killed (kill -9) and started again, 1 order in 1,000 fails twice before it succeeds, 20 are poison (2 of them abort
/// their process at every attempt; 3 attempts are allowed) and 10 cannot be decoded. Workers that end are replaced.
/// Then the journals that the handlers wrote are held against what was published and what the server has: nothing lost,
/// exactly the poison and undecodable orders in the dead letters, no order run twice at a time, attempts exact, nothing
/// pending. The exit code is 1 if any of it does not hold.
///
/// An order whose third and last attempt was cut short by the death of its process is started once more, alone: only a
/// process that dies with nothing else in it can be blamed on an order. That start is no attempt of its own in `max_attempt`.
///
/// The server is one of its own, with the append-only file on (see `cargo xtask servers` for where it is found;
/// `REDIS_URL` is not used). On a machine without any, one is fetched.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How many orders. Default: 100,000. Less than 1,000 have fewer that go wrong: 1 in 50 is poison, 1 in 100 cannot be
    /// decoded, and one aborts its process; below 50 orders there is no poison, below 10 nothing fails.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_MESSAGES))]
    messages: Option<u64>,

    /// Publishes the lines of this file instead, one JSON document each; blank lines are left out, and with --messages only
    /// the first N are taken. Lines that are no JSON have to end in the dead letters as undecodable. No poison is added; 1
    /// line in 1,000 fails twice before it succeeds.
    #[arg(long, value_name = "FILE.jsonl")]
    input: Option<PathBuf>,

    /// The server, as in redis-8.0. Default: the newest of this machine.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,

    /// Prints the outcome as one JSON object in the last line.
    #[arg(long)]
    json: bool,

    /// Keeps the journals, the logs and the server's files, and says where they are. They are always kept if the outcome
    /// is not as it has to be.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// The demo as a test of the whole.
    pub(crate) fn with_messages(messages: u64) -> Self {
        Self { messages: Some(messages), input: None, server: None, json: false, keep: false }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = match &self.input {
            Some(path) => Plan::of_file(path, self.messages)?,
            None => Plan::generated(self.messages.unwrap_or(DEFAULT_MESSAGES)),
        };
        let server = self.server()?;
        let folder = tempfile::Builder::new().prefix("streamkeeper-demo-").tempdir()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let result = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            // What is dropped here ends the workers and the server.
            tokio::select! {
                result = self.play(&server, plan, folder.path()) => result,
                _ = terminate.recv() => Err(Failure::from("stopped by SIGTERM; the workers and the server were ended")),
                _ = interrupt.recv() => Err(Failure::from("stopped by Ctrl-C; the workers and the server were ended")),
            }
        });
        self.conclude(result, folder)
    }

    fn server(&self) -> Result<ServerBinary, Failure> {
        let mut surroundings = Surroundings::from_env();
        surroundings.redis_url = None;
        if let Some(name) = &self.server {
            surroundings.selection = Some(name.clone());
        }
        surroundings.servers()?.pop().ok_or_else(|| "no server was found".into())
    }

    async fn play(&self, binary: &ServerBinary, plan: Plan, folder: &Path) -> Result<(Verdict, Outcome), Failure> {
        let options = ServerOptions::new().aof(AppendFsync::Always);
        let mut server = RealServer::start(binary, &options).await?;
        let version = server.version().to_string();
        eprintln!("server: {} {version} ({}), append-only file on", binary.name(), binary.location());
        eprintln!("publishing {}", plan.summary());
        let asked = Asked::new(server.address(), NAMES);
        let plan = Arc::new(plan);
        let mut fleet = Fleet::new(folder);
        let worker = worker::arguments(&server.url(), plan.is_input());
        let took = Scenario::new(&mut server, asked.clone(), Arc::clone(&plan), &mut fleet, worker).run().await;
        if self.keep || took.is_err() {
            keep_server_files(&server, folder);
        }
        let took = took?;
        let found = asked.all().await?;
        let verdict = check(&plan, &mut fleet.history, &found);
        if !verdict.holds() {
            keep_server_files(&server, folder);
        }
        let busiest = busiest_second(&fleet.history);
        let outcome = Outcome::new(&verdict, &plan, took, busiest, binary.name().to_owned(), version);
        Ok((verdict, outcome))
    }

    fn conclude(&self, result: Result<(Verdict, Outcome), Failure>, folder: TempDir) -> Result<(), Failure> {
        let holds = result.as_ref().is_ok_and(|(verdict, _)| verdict.holds());
        if self.keep || !holds {
            println!("journals, logs and the server's files are kept in {}", folder.keep().display());
        }
        let (verdict, outcome) = result?;
        print!("{}", shown(&verdict, &outcome));
        for complaint in verdict.complaints(EXAMPLES) {
            println!("NOT OK: {complaint}");
        }
        if self.json {
            println!("{}", serde_json::to_string(&outcome)?);
        }
        if holds { Ok(()) } else { Err("the outcome is not as it has to be; see above".into()) }
    }
}

/// Copies the server's files next to the journals. That none can be had is no reason to end without the outcome.
fn keep_server_files(server: &RealServer, folder: &Path) {
    if let Some(from) = server.folder()
        && let Err(error) = copy(from, &folder.join("server"))
    {
        eprintln!("cannot keep the server's files: {error}");
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
