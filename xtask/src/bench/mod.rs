//! `cargo xtask bench`: how near the library is to what the server allows.
//!
//! Racers are processes of their own (`programs`, `racer`): the floor, which is a raw client that reads, looks and
//! acknowledges, the library, and loops on the `redis` crate. `workload` says who races over what, `race` runs one and
//! watches it from outside (`running`, `process`, `group`), `summary` pairs the rounds, `report` and `picture` show them. `growth`
//! measures what must not grow: with the backlog, with what is held, with streams and consumers.
//!
//! What must stay true: nothing is compared but runs of one round on one server, because machines drift; and every figure
//! of a racer is taken from outside in the same way for all.

mod group;
mod growth;
mod picture;
mod process;
mod programs;
mod race;
mod racer;
mod report;
mod running;
mod summary;
mod workload;

use std::path::PathBuf;

use clap::Args;
use stream_testkit::matrix::Surroundings;
use stream_testkit::{RealServer, ServerBinary, ServerOptions};
use tokio::signal::unix::{SignalKind, signal};

use self::growth::Growth;
use self::programs::Programs;
pub(crate) use self::programs::release;
use self::report::{Report, Setup};
use self::summary::Summary;
use self::workload::Workload;
use crate::Failure;
use crate::steps::root;

/// The server that figures are known of.
const USUAL_SERVER: &str = "redis-7.0";

/// Races the library against the floor: a raw client that does nothing but read, look at each payload and acknowledge in
/// batches of 1,000.
///
/// Needs nothing but this repository and a server (see `cargo xtask servers`). All racers are built in release and run one
/// after the other, as processes of their own, in rounds; a ratio is the median over the rounds of the ratio within one.
/// Close what else uses the machine: with two processors, the racer and the server need both.
///
/// Writes results.json and pictures (SVG) into target/bench, or where --out says.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The server, as in redis-8.0. Default: redis-7.0 if there is one, else the newest of this machine.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,

    /// How many rounds. Default: 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Only this workload or check; may be given several times. Default: all.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,

    /// A tenth of the entries and one round, to see that everything works. Its figures mean little.
    #[arg(long)]
    quick: bool,

    /// Adds 5,000,000 entries to the sizes of backlog.
    #[arg(long)]
    large: bool,

    /// Adds the other clients that are built in this folder.
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,

    /// Where results and pictures go. Default: target/bench.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Shows the workloads and checks, and runs nothing.
    #[arg(long)]
    list: bool,
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let workloads = Workload::all(self.quick);
        let checks = Growth::all();
        let names: Vec<&str> =
            workloads.iter().map(|workload| workload.name).chain(checks.iter().map(|check| check.name())).collect();
        if self.list {
            println!("{}", names.join("\n"));
            return Ok(());
        }
        if let Some(unknown) = self.workload.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(format!("no workload is called {unknown}; there are: {}", names.join(", ")).into());
        }
        let programs = Programs::build(self.peers.clone())?;
        let server = self.server()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let report = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            // What is dropped here ends the racers and the server.
            tokio::select! {
                report = self.measure(&server, &programs, &workloads, &checks) => report,
                _ = terminate.recv() => Err(Failure::from("stopped by SIGTERM; what was measured before is written")),
                _ = interrupt.recv() => Err(Failure::from("stopped by Ctrl-C; what was measured before is written")),
            }
        })?;
        println!("\n{}results and pictures: {}", report.verdict(), self.folder().display());
        report.outcome()
    }

    /// Where results and pictures go.
    fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| root().join("target").join("bench"))
    }

    /// Everything that is wanted; what is known is written after each workload.
    async fn measure(
        &self,
        server: &ServerBinary,
        programs: &Programs,
        workloads: &[Workload],
        checks: &[Growth],
    ) -> Result<Report, Failure> {
        let wanted = |name: &str| self.workload.is_empty() || self.workload.iter().any(|wanted| wanted == name);
        let out = self.folder();
        let mut report = Report::new(Setup::of(server, self.quick));
        for workload in workloads.iter().filter(|workload| wanted(workload.name)) {
            match self.race(server, programs, workload).await {
                Ok(summary) => {
                    print!("{}", summary.shown());
                    report.add(summary);
                }
                // What the others measured is not lost for that.
                Err(error) => report.failed(workload.name, &error),
            }
            report.write(&out)?;
        }
        for check in checks.iter().filter(|check| wanted(check.name())) {
            let running = start(server).await?;
            match check.run(&running, programs, self.quick, self.large).await {
                Ok(found) => {
                    print!("{}", found.shown());
                    report.add_check(found);
                }
                Err(error) => report.failed(check.name(), &error),
            }
            report.write(&out)?;
        }
        Ok(report)
    }

    fn server(&self) -> Result<ServerBinary, Failure> {
        let mut surroundings = Surroundings::from_env();
        if let Some(name) = &self.server {
            surroundings.selection = Some(name.clone());
        }
        let mut servers = surroundings.servers()?;
        let usual = servers.iter().position(|server| server.name() == USUAL_SERVER);
        let chosen = match usual {
            Some(place) => Some(servers.swap_remove(place)),
            None => servers.pop(),
        };
        chosen.ok_or_else(|| "no server was found".into())
    }

    /// All rounds of one workload, on a server of its own.
    async fn race(&self, binary: &ServerBinary, programs: &Programs, workload: &Workload) -> Result<Summary, Failure> {
        let server = start(binary).await?;
        let racers = workload.racers(programs);
        let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { 5 });
        println!("\n== {}: {}, on {} {}", workload.name, workload.what, binary.name(), server.version());
        let mut runs = Vec::new();
        for round in 0..rounds {
            for racer in &racers {
                let run = race::run(&server, workload, racer, round).await?;
                eprintln!("{}", run.line());
                runs.push(run);
            }
        }
        let mut summary = Summary::of(workload, &racers, runs);
        if let Some(counted) = workload.counted(programs) {
            let run = race::run(&server, workload, &counted, rounds).await?;
            summary.allocations_per_entry = run.allocations.map(|count| count as f64 / workload.entries as f64);
        }
        Ok(summary)
    }
}

/// A server of its own, without persistence, unless `REDIS_URL` names one that runs already.
async fn start(binary: &ServerBinary) -> Result<RealServer, Failure> {
    Ok(RealServer::start(binary, &ServerOptions::new()).await?)
}
