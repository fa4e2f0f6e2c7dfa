//! What goes wrong with the servers, one thing after the other, as the seed says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stream_testkit::RealServer;
use stream_testkit::history::{Cause, What};
use tokio::time::{Instant, sleep, sleep_until};

use super::log::Log;
use super::servers::Servers;
use super::{GROUP, STREAM};
use crate::Failure;
use crate::fleet::journal::{micros, now};

/// How long clients may take to come back when a server is there again: their longest pause between two attempts.
const COMING_BACK: Duration = Duration::from_secs(1);

/// How often each fault happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Tally {
    pub(crate) fn count(&self, what: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    pub(crate) fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A fault of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// All connections are closed.
    KillClients,
    /// The group is destroyed.
    DestroyGroup,
    /// The server is busy with itself.
    Sleep,
    /// The server's process is frozen.
    Freeze,
    /// The server is killed and started again; where there is a replica, that takes over.
    Kill,
    /// The master is frozen until the replica has taken over, and comes back as one that believes to be master.
    Usurp,
    /// A failover by order.
    FailOver,
    /// The slot of the stream moves.
    Migrate,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::KillClients => "connections killed",
            Self::DestroyGroup => "group destroyed",
            Self::Sleep => "server busy",
            Self::Freeze => "server frozen",
            Self::Kill => "server killed",
            Self::Usurp => "master frozen until replaced",
            Self::FailOver => "failover by order",
            Self::Migrate => "slot moved",
        }
    }
}

/// Disturbs the servers.
#[derive(Debug)]
pub(crate) struct Disturber<'a> {
    pub(crate) servers: &'a mut Servers,
    pub(crate) random: fastrand::Rng,
    pub(crate) log: Log,
    pub(crate) tally: Tally,
    /// The worst pauses of a server, in milliseconds, that are not yet a failover.
    pub(crate) longest_pause: u64,
}

impl Disturber<'_> {
    /// Disturbs until `end`; when it returns, the servers are whole.
    pub(crate) async fn run(mut self, end: Instant) -> Result<(), Failure> {
        let faults: &[Fault] = match self.servers {
            Servers::Standalone(_) => {
                &[Fault::KillClients, Fault::DestroyGroup, Fault::Sleep, Fault::Freeze, Fault::Kill, Fault::Kill]
            }
            Servers::Sentinel(_) => &[
                Fault::KillClients,
                Fault::DestroyGroup,
                Fault::Sleep,
                Fault::Freeze,
                Fault::Kill,
                Fault::Usurp,
                Fault::FailOver,
            ],
            Servers::Cluster(_) => &[
                Fault::KillClients,
                Fault::DestroyGroup,
                Fault::Sleep,
                Fault::Freeze,
                Fault::Kill,
                Fault::Usurp,
                Fault::Migrate,
                Fault::Migrate,
            ],
        };
        loop {
            sleep(Duration::from_millis(self.random.u64(2_500..8_000))).await;
            if Instant::now() + Duration::from_secs(5) > end {
                sleep_until(end).await;
                self.servers.until_whole().await;
                return Ok(());
            }
            let fault = faults[self.random.usize(..faults.len())];
            let since = now();
            self.happen(fault, since).await?;
            self.tally.count(fault.name());
            eprintln!("{:>12} us  {} ({:.1} s)", since, fault.name(), (now() - since) as f64 / 1e6);
        }
    }

    async fn happen(&mut self, fault: Fault, since: u64) -> Result<(), Failure> {
        let master = self.servers.master().await;
        match fault {
            Fault::KillClients => {
                for server in self.servers.data() {
                    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
                }
                self.silence(Cause::Network, since, now());
            }
            Fault::DestroyGroup => {
                self.servers.data()[master].cli(&["XGROUP", "DESTROY", STREAM, GROUP]).await?;
                self.log.write(What::GroupLost { since });
            }
            Fault::Sleep => {
                let pause = self.random.u64(200..self.longest_pause);
                let seconds = format!("{:.3}", pause as f64 / 1_000.0);
                self.servers.data()[master].cli(&["DEBUG", "SLEEP", &seconds]).await?;
                self.silence(Cause::Server, since, now() + micros(COMING_BACK));
            }
            Fault::Freeze => {
                let pause = self.random.u64(200..self.longest_pause);
                self.servers.data()[master].pause().await?;
                sleep(Duration::from_millis(pause)).await;
                self.servers.data()[master].resume().await?;
                self.silence(Cause::Server, since, now() + micros(COMING_BACK));
            }
            Fault::Kill => self.kill(master, since).await?,
            Fault::Usurp => {
                self.servers.data()[master].pause().await?;
                self.servers.until_other_than(master).await;
                self.servers.data()[master].resume().await?;
                self.replaced(since).await;
            }
            Fault::FailOver => {
                if let Servers::Sentinel(setup) = &self.servers {
                    setup.fail_over().await;
                }
                self.replaced(since).await;
            }
            Fault::Migrate => {
                let Servers::Cluster(cluster) = &self.servers else { return Ok(()) };
                let others: Vec<usize> = masters(&cluster.nodes).await.into_iter().filter(|it| *it != master).collect();
                if !others.is_empty() {
                    cluster.migrate(STREAM, others[self.random.usize(..others.len())]).await;
                }
                self.silence(Cause::Network, since, now());
            }
        }
        Ok(())
    }

    async fn kill(&mut self, master: usize, since: u64) -> Result<(), Failure> {
        self.servers.data_mut()[master].kill9().await?;
        if let Servers::Standalone(_) = self.servers {
            sleep(Duration::from_millis(self.random.u64(0..4_000))).await;
        } else {
            self.servers.until_other_than(master).await;
        }
        self.servers.data_mut()[master].restart().await?;
        if let Servers::Standalone(_) = self.servers {
            self.silence(Cause::Server, since, now() + micros(COMING_BACK));
        } else {
            self.replaced(since).await;
        }
        Ok(())
    }

    /// Another server has taken over. Until everybody agrees, what the old one still confirms is lost, but for entries that
    /// the publishers made sure of.
    async fn replaced(&self, since: u64) {
        self.servers.until_whole().await;
        self.log.write(What::GroupLost { since });
        self.silence(Cause::Server, since, now() + micros(COMING_BACK));
    }

    fn silence(&self, cause: Cause, since: u64, until: u64) {
        self.log.write_at(until, What::Silence { process: None, cause, since });
    }
}

/// The nodes that are masters.
async fn masters(nodes: &[RealServer]) -> Vec<usize> {
    let mut masters = Vec::new();
    for (place, node) in nodes.iter().enumerate() {
        let Ok(role) = node.cli(&["ROLE"]).await else { continue };
        if crate::asked::items(&role).first().and_then(|role| role.as_bytes()) == Some(b"master") {
            masters.push(place);
        }
    }
    masters
}
