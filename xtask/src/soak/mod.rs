//! `cargo xtask soak`: the library for as long as one likes, on real servers, with everything going wrong all the while.
//!
//! `plan` says what each message does, `publish` sends them, `worker` is the service, as processes of a fleet; `unrest`
//! disturbs the workers and `faults` the servers; `watch` looks at the servers meanwhile. All of them write down what
//! happens, and `stream_testkit::history` judges it.

mod drive;
mod faults;
mod log;
mod memory;
mod plan;
mod publish;
mod servers;
mod side_by_side;
mod table;
mod unrest;
mod watch;
mod worker;

use std::time::Duration;

use clap::Args;
use stream_testkit::ServerBinary;
use stream_testkit::history::Expectations;
use stream_testkit::matrix::Surroundings;

use self::drive::Drive;
use self::servers::Topology;
pub(crate) use self::worker::SoakWorker;
use crate::Failure;
use crate::asked::Names;

/// In one slot of a cluster.
const STREAM: &str = "{soak}:orders";
const GROUP: &str = "billing";
const LETTERS: &str = "{soak}:orders:dead";
const MARK: &str = "{soak}:mark";
const NAMES: Names = Names { stream: STREAM, group: GROUP, dead_letters: LETTERS };

const MAX_ATTEMPTS: u32 = 4;
/// Short, so that much can happen in a short soak.
const LEASE: Duration = Duration::from_secs(3);

/// Publishes and consumes on real servers for minutes or hours, disturbs both, and holds what happened against the
/// guarantees.
///
/// Workers are killed, frozen, stopped and cut off; servers are killed, frozen, kept busy and replaced; slots move,
/// connections are closed and groups destroyed; maintenance trims, cleans up and sends dead letters back all the while.
/// Then every message that was confirmed has to have come to its end, no two live owners may have run an entry at a time,
/// attempts and dead letters have to be exact, keys in order, and memory flat. Any of it that does not hold is told, with
/// the seed, and the journals are kept; the exit code is then 1.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// For how long. Default: 10.
    #[arg(long, value_name = "M", default_value_t = 10.0)]
    minutes: f64,

    /// Decides what goes wrong and when. Default: another one each time, which is printed. Times of a real machine are not
    /// repeated by it, but the kinds of faults and their order are.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Which servers. Default: all three topologies, at the same time.
    #[arg(long)]
    topology: Option<Topology>,

    /// The server, as in redis-8.0. Default: the newest of this machine.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,

    /// Messages a second, from all publishers together.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(20..=20_000))]
    rate: u64,

    /// Keeps the journals and logs in any case, and says where.
    #[arg(long)]
    keep: bool,
}

impl Soak {
    /// The soak that is part of the test of everything.
    pub(crate) fn short() -> Self {
        Self { minutes: 2.0, seed: None, topology: None, server: None, rate: 200, keep: false }
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        if !(0.5..=100_000.0).contains(&self.minutes) {
            return Err("a soak takes half a minute at least: before that, too little can happen".into());
        }
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        let Some(topology) = self.topology else { return side_by_side::run(&self, seed) };
        let time = Duration::from_secs_f64(self.minutes * 60.0);
        let server = self.binary()?;
        Drive { topology, server, time, seed, rate: self.rate, keep: self.keep }.run()
    }

    fn binary(&self) -> Result<ServerBinary, Failure> {
        let mut surroundings = Surroundings::from_env();
        surroundings.redis_url = None;
        if let Some(name) = &self.server {
            surroundings.selection = Some(name.clone());
        }
        surroundings.servers()?.pop().ok_or_else(|| "no server was found".into())
    }
}

/// What the workers are set to.
fn expectations() -> Expectations {
    Expectations {
        max_attempts: MAX_ATTEMPTS,
        lease: LEASE,
        settle: Duration::from_millis(500),
        stale: Duration::from_secs(3),
        told_within: Duration::from_secs(3),
        settled: true,
        messages: 0,
    }
}
