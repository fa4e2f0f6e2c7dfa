//! [`Host`]: several consumers and the maintenance of their streams in one process.
//!
//! `member` is the life of one of them, `report` what is told. What must stay true: members disturb each other only where
//! the settings say so, each has connections of its own, and a host ends only when it is asked to or a consumer has failed
//! for good.

mod builder;
mod member;
mod report;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use stream_consumer::{Health, Shutdown};
use stream_core::RestartPolicy;
use tokio::task::{AbortHandle, JoinSet};

pub use builder::HostBuilder;
pub use report::{HostError, HostEvent, HostReport, Maintained, MemberEnd, MemberReport};

use member::{HealthSlot, Life, Surroundings};

/// What becomes of the others when a consumer has failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// They stop as well, gracefully, and the host ends: whoever supervises the process sees that it is not whole.
    #[default]
    StopAll,
    /// They go on. The process looks alive with a part of its work not done: have an alarm on [`HostEvent::Failed`].
    GoOn,
}

type Observe = Arc<dyn Fn(&HostEvent<'_>) + Send + Sync>;

struct Member {
    name: Arc<str>,
    restart: RestartPolicy,
    health: HealthSlot,
    is_consumer: bool,
    live: Box<dyn FnOnce(Surroundings) -> Life + Send>,
}

/// Several durable and ephemeral consumers and maintenance schedules in one process: one switch to stop them all, restarts
/// by policy, one report.
///
/// ```
/// use std::time::Duration;
/// use streamkeeper::host::Host;
/// use streamkeeper::maint::Trimmer;
/// use streamkeeper::{Client, Consumer, Data, RestartPolicy, Shutdown};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # server.add("events", [("data", "7")]);
/// # let client = server.client();
/// # #[cfg(any())]
/// let client = Client::open("redis://127.0.0.1/")?;
/// let shutdown = Shutdown::new(); // or `Shutdown::on_signals()?`
/// # let stop = shutdown.clone();
/// let host = Host::builder()
///     .durable("triggers", Consumer::durable(&client).stream("events").group("triggers"), move |Data(event): Data| {
/// #       stop.stop();
///         async move { println!("{} bytes", event.len()) }
///     })
///     .ephemeral("log", Consumer::ephemeral(&client).stream("events"), |Data(event): Data| async move {
///         println!("{event:?}");
///     })
///     .trim("trim", Trimmer::builder(&client).stream("events").build()?)
///     .restart(RestartPolicy::on_failure())
///     .build()?;
/// let health = host.health(); // for probes
/// let report = host.run_with(&shutdown).await.into_result()?;
/// for member in &report.members {
///     println!("{}: {:?} after {} restarts", member.name, member.end, member.restarts);
/// }
/// # assert_eq!(report.members.len(), 3);
/// # assert!(health.get().iter().all(|(_, health)| !health.is_live()));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[must_use = "a host does nothing until it runs"]
pub struct Host {
    members: Vec<Member>,
    on_failure: OnFailure,
    observer: Option<Observe>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.members.iter().map(|member| &*member.name).collect();
        f.debug_struct("Host").field("members", &names).field("on_failure", &self.on_failure).finish_non_exhaustive()
    }
}

/// Looks at the consumers of a host while it runs. Cheap to clone, and cheap to ask.
#[derive(Debug, Clone)]
pub struct HostHealth {
    consumers: Vec<(Arc<str>, HealthSlot)>,
}

impl HostHealth {
    /// Each consumer's name and how it is now, in the order in which they were added. One that has failed and waits to be
    /// started anew is shown as ended.
    pub fn get(&self) -> Vec<(&str, Health)> {
        let now = |slot: &HealthSlot| slot.get().map(|health| health.get()).unwrap_or_default();
        self.consumers.iter().map(|(name, slot)| (&**name, now(slot))).collect()
    }

    /// Whether every consumer runs: what a liveness probe asks. A server that is away does not make it false.
    pub fn is_live(&self) -> bool {
        self.get().iter().all(|(_, health)| health.is_live())
    }

    /// Whether every consumer takes up what comes now: what a readiness probe asks. `within` as in [`Health::is_ready`].
    pub fn is_ready(&self, within: std::time::Duration) -> bool {
        self.get().iter().all(|(_, health)| health.is_ready(within))
    }
}

impl Host {
    /// Starts to describe a host.
    pub fn builder() -> HostBuilder {
        HostBuilder::new()
    }

    /// A handle to how its consumers are, for probes.
    pub fn health(&self) -> HostHealth {
        let consumers = self.members.iter().filter(|member| member.is_consumer);
        HostHealth { consumers: consumers.map(|member| (Arc::clone(&member.name), member.health.clone())).collect() }
    }

    /// Runs until `signal` completes, then stops gracefully and reports.
    pub async fn run_until<S: Future>(self, signal: S) -> HostReport {
        let shutdown = Shutdown::new();
        let run = self.run_with(&shutdown);
        tokio::pin!(signal, run);
        tokio::select! {
            biased;
            report = &mut run => return report,
            _ = &mut signal => shutdown.stop(),
        }
        run.await
    }

    /// Runs until `shutdown` is turned, once to stop gracefully and twice to stop at once, or a consumer has failed for good
    /// and the settings stop all for that. Reports how each member has ended.
    ///
    /// Dropped before its end, it takes all members with it as a kill of the process would.
    pub async fn run_with(self, shutdown: &Shutdown) -> HostReport {
        // The failure of a member stops the others, and not whatever else hangs on the caller's switch.
        let shutdown = shutdown.child();
        let mut tasks = JoinSet::new();
        let mut handles: Vec<AbortHandle> = Vec::new();
        let mut reports: Vec<MemberReport> = Vec::new();
        for member in self.members {
            let around = Surroundings {
                name: Arc::clone(&member.name),
                shutdown: shutdown.clone(),
                restart: member.restart,
                observer: self.observer.clone(),
                health: member.health,
            };
            handles.push(tasks.spawn((member.live)(around)));
            let name = member.name.to_string();
            reports.push(MemberReport { name, end: MemberEnd::Panicked, restarts: 0 });
        }
        while let Some(joined) = tasks.join_next_with_id().await {
            let (id, lived) = match joined {
                Ok((id, lived)) => (id, Some(lived)),
                Err(error) => (error.id(), None),
            };
            let failed = !matches!(
                lived,
                Some((MemberEnd::Durable(_) | MemberEnd::Ephemeral(_) | MemberEnd::Maintenance(_), _))
            );
            if let Some(report) = handles.iter().position(|handle| handle.id() == id).map(|place| &mut reports[place])
                && let Some((end, restarts)) = lived
            {
                (report.end, report.restarts) = (end, restarts);
            } else if let Some(place) = handles.iter().position(|handle| handle.id() == id) {
                let member = reports[place].name.as_str();
                tracing::error!(member, "a member of the host has panicked and is not started anew");
                if let Some(observer) = &self.observer {
                    observer(&HostEvent::Panicked { member });
                }
            }
            if failed && self.on_failure == OnFailure::StopAll && !shutdown.is_stopping() {
                shutdown.stop();
            }
        }
        HostReport { members: reports }
    }
}
