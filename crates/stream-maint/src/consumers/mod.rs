//! [`ConsumerCleaner`]: removes consumers that are dead and hold nothing.
//!
//! What must stay true: a consumer that holds entries is never removed, since that would destroy them for good; whether it
//! does is checked in the same step as the removal. Whoever wants the entries of a dead consumer claims them, as every
//! running consumer of the group does by itself; after that it holds nothing and the next run removes it.

use std::future::Future;
use std::time::Duration;

use stream_core::{ConsumerAction, ConsumerName, ConsumerPolicy, ConsumerState, GroupName, NameError, StreamKey};
use stream_redis::command::{ConsumerInfo, XInfoConsumers};
use stream_redis::{Client, Error, ErrorKind, Fenced, Owner};

use crate::every::{CleanupTotals, Periodic, Schedule, run_every};
use crate::link::Link;

/// Removes the dead consumers of one group.
///
/// Names of consumers are for ever: a process that starts under a new name each time, and is killed rather than stopped,
/// leaves one behind each time.
///
/// ```
/// use stream_core::{ConsumerAction, ConsumerPolicy};
/// use stream_maint::ConsumerCleaner;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::time::pause();
/// # let server = stream_testkit::MemoryServer::new();
/// # server.add("orders", [("item", "1")]);
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "lost-pod", "STREAMS", "orders", ">"])?;
/// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
/// # let client = server.client();
/// let policy = ConsumerPolicy::default(); // dead after a day
/// let mut cleaner = ConsumerCleaner::new(&client, "orders", "billing", policy)?;
/// for (name, action) in cleaner.plan().await? {
///     println!("{name}: {action:?}"); // lost-pod: ClaimFirst, old-pod: Remove
/// }
/// let report = cleaner.run().await?;
/// assert_eq!((report.removed.len(), report.claim_first.len()), (1, 1));
/// # assert_eq!(server.consumers("orders", "billing"), ["lost-pod"]);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct ConsumerCleaner {
    link: Link,
    group: GroupName,
    policy: ConsumerPolicy,
    own: Option<ConsumerName>,
    fenced: Fenced,
    schedule: Schedule,
}

/// What became of the consumers of a group.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # server.add("orders", [("item", "1")]);
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "lost-pod", "STREAMS", "orders", ">"])?;
/// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
/// use stream_core::ConsumerPolicy;
/// use stream_maint::ConsumerCleaner;
/// let report = ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?.run().await?;
/// assert_eq!(report.removed[0].to_string(), "old-pod");
/// assert_eq!(report.claim_first[0].to_string(), "lost-pod"); // and if it stays here: nobody of the group claims
/// assert_eq!((report.spared.len(), report.kept), (0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Removed; they held nothing.
    pub removed: Vec<ConsumerName>,
    /// Dead, but entries are pending for them that nobody has claimed yet: they are still there.
    pub claim_first: Vec<ConsumerName>,
    /// Were to be removed, but had come back, or were gone, when it came to it; all of them where the server allows no
    /// scripts, without which a removal cannot be made safe.
    pub spared: Vec<ConsumerName>,
    /// Consumers that were left alone.
    pub kept: u64,
}

impl ConsumerCleaner {
    /// A cleaner of the group `group` of the stream `stream`. Connects to nothing yet.
    ///
    /// The idle time of the policy must be longer than the BLOCK period of the group's consumers, at least several times.
    /// Before Redis 7.2 a consumer that waits on a quiet stream looks idle. Consumers of this library show themselves there
    /// in each claim interval, and stay as long as the idle time of the policy is longer than that. One of another client
    /// that is removed holds nothing, loses nothing, and is there again with its next entry; the one that was active last
    /// always stays.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_core::ConsumerPolicy;
    /// use stream_maint::ConsumerCleaner;
    /// let policy = ConsumerPolicy::new(Duration::from_secs(6 * 3600))?; // BLOCK periods are of seconds
    /// assert!(ConsumerCleaner::new(&client, "orders", "billing", policy.clone()).is_ok());
    /// assert!(ConsumerCleaner::new(&client, "orders", "", policy).is_err()); // a group has a name
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a name is empty.
    pub fn new(
        client: &Client,
        stream: impl AsRef<[u8]>,
        group: impl AsRef<[u8]>,
        policy: ConsumerPolicy,
    ) -> Result<Self, Error> {
        let stream = StreamKey::new(stream).map_err(config)?;
        let group = GroupName::new(group).map_err(config)?;
        let name = [b":streamkeeper:consumers:", group.as_bytes()].concat();
        let schedule = Schedule::new(&stream, &name).map_err(config)?;
        Ok(Self { link: Link::new(client, stream), group, policy, own: None, fenced: Fenced::new(), schedule })
    }

    /// Never removes this consumer: that of the process that cleans up.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # server.add("orders", [("item", "1")]);
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
    /// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
    /// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
    /// use stream_core::{ConsumerAction, ConsumerName, ConsumerPolicy};
    /// let own = ConsumerName::new("old-pod")?;
    /// let cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?;
    /// assert_eq!(cleaner.own(own.clone()).plan().await?, [(own, ConsumerAction::KeepSelf)]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn own(mut self, consumer: ConsumerName) -> Self {
        self.own = Some(consumer);
        self
    }

    /// How often [`run_every`](Self::run_every) cleans up, counted over the whole fleet. 60 s by default; less than 1 s is
    /// raised to that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_core::ConsumerPolicy;
    /// let cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?;
    /// let cleaner = cleaner.every(Duration::from_secs(3600)); // names of dead processes do no harm for an hour
    /// assert_eq!(cleaner.period(), Duration::from_secs(3600));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn every(mut self, period: Duration) -> Self {
        self.schedule.set_period(period);
        self
    }

    /// How often [`run_every`](Self::run_every) cleans up.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_core::ConsumerPolicy;
    /// let cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?;
    /// assert_eq!(cleaner.period(), Duration::from_secs(60));
    /// assert_eq!(cleaner.every(Duration::ZERO).period(), Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn period(&self) -> Duration {
        self.schedule.period()
    }

    /// What would become of each consumer now; nothing where there is no such stream or group. Changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # server.add("orders", [("item", "1")]);
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
    /// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
    /// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
    /// use stream_core::{ConsumerAction, ConsumerPolicy};
    /// let mut cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?;
    /// let plan = cleaner.plan().await?;
    /// assert_eq!(plan[0].0.to_string(), "old-pod");
    /// assert!(matches!(plan[0].1, ConsumerAction::Remove { .. }));
    /// # assert_eq!(server.consumers("orders", "billing"), ["old-pod"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server. Needs `XINFO`.
    pub async fn plan(&mut self) -> Result<Vec<(ConsumerName, ConsumerAction)>, Error> {
        let command = XInfoConsumers { key: self.link.key().clone(), group: self.group.clone() };
        let infos = match self.link.run(&command).await {
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(Vec::new()),
            infos => infos?,
        };
        let polls_count = infos.iter().any(|info| info.polls_count);
        let states: Vec<_> = infos.into_iter().map(state).collect();
        Ok(self.policy.plan(&states, self.own.as_ref(), polls_count))
    }

    /// Removes what can be removed now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # server.add("orders", [("item", "1")]);
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
    /// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
    /// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
    /// # let policy = stream_core::ConsumerPolicy::default();
    /// let mut cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", policy)?;
    /// assert_eq!(cleaner.run().await?.removed.len(), 1);
    /// assert_eq!(cleaner.run().await?.removed.len(), 0);
    /// # assert!(server.consumers("orders", "billing").is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`plan`](Self::plan), or the script is refused for another reason than that scripts are not allowed. What
    /// was removed until then is removed.
    pub async fn run(&mut self) -> Result<ConsumerReport, Error> {
        let plan = self.plan().await?;
        self.carry_out(&plan).await
    }

    /// Cleans up unless somebody in the fleet has done so within the period; `None` then. They agree by a key that expires by
    /// itself, `{STREAM}:streamkeeper:consumers:GROUP`; who may not write it cleans up anyway.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # let policy = stream_core::ConsumerPolicy::default();
    /// use stream_maint::ConsumerCleaner;
    /// let mut here = ConsumerCleaner::new(&client, "orders", "billing", policy.clone())?;
    /// let mut there = ConsumerCleaner::new(&client, "orders", "billing", policy)?; // in another process
    /// assert!(here.run_if_due().await?.is_some());
    /// assert!(there.run_if_due().await?.is_none()); // it has been done
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_if_due(&mut self) -> Result<Option<ConsumerReport>, Error> {
        if self.schedule.is_due(&mut self.link).await? { self.run().await.map(Some) } else { Ok(None) }
    }

    /// Cleans up now and once in each period until `shutdown` is done, which ends it at once. `observe` gets the result of
    /// each try. A kind of failure is logged once, until cleaning up
    /// works again, and never ends this.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// # let shutdown = std::future::ready(());
    /// use std::time::Duration;
    /// use stream_core::ConsumerPolicy;
    /// let mut cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?
    ///     .every(Duration::from_secs(600));
    /// let totals = cleaner.run_every(shutdown, |_| {}).await;
    /// println!("{} consumers were removed", totals.removed);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub async fn run_every<S: Future>(
        &mut self,
        shutdown: S,
        mut observe: impl FnMut(&Result<Option<ConsumerReport>, Error>),
    ) -> CleanupTotals {
        let mut totals = CleanupTotals::default();
        let failures = run_every(self, shutdown, |result| {
            if let Ok(Some(report)) = result {
                totals.runs += 1;
                totals.removed += report.removed.len() as u64;
            }
            observe(result);
        });
        totals.failures = failures.await;
        totals
    }

    /// Carries out a plan that was made before. That it is old does no harm: each removal checks that the consumer still
    /// holds nothing and has been idle all the while, in the same step.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # server.add("orders", [("item", "1")]);
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
    /// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
    /// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
    /// # let policy = stream_core::ConsumerPolicy::default();
    /// let mut cleaner = stream_maint::ConsumerCleaner::new(&client, "orders", "billing", policy)?;
    /// let plan = cleaner.plan().await?; // to be shown to somebody who agrees
    /// // meanwhile it came back and read an entry
    /// # server.command(["XREADGROUP", "GROUP", "billing", "old-pod", "STREAMS", "orders", ">"])?;
    /// let report = cleaner.carry_out(&plan).await?;
    /// assert_eq!((report.removed.len(), report.spared.len()), (0, 1));
    /// # assert_eq!(server.consumers("orders", "billing"), ["old-pod"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn carry_out(&mut self, plan: &[(ConsumerName, ConsumerAction)]) -> Result<ConsumerReport, Error> {
        let mut report = ConsumerReport::default();
        for (name, action) in plan {
            match action {
                ConsumerAction::Remove { idle } if self.remove(name, *idle).await? => report.removed.push(name.clone()),
                ConsumerAction::Remove { .. } => report.spared.push(name.clone()),
                ConsumerAction::ClaimFirst => report.claim_first.push(name.clone()),
                _ => report.kept += 1,
            }
        }
        if !report.removed.is_empty() {
            let removed = report.removed.len();
            tracing::info!(stream = %self.link.key(), group = %self.group, removed, "removed dead consumers");
        }
        Ok(report)
    }

    async fn remove(&mut self, consumer: &ConsumerName, idle: Duration) -> Result<bool, Error> {
        let key = self.link.key().clone();
        let owner = Owner { key, group: self.group.clone(), consumer: consumer.clone() };
        let connection = self.link.connection().await?;
        let removed = self.fenced.remove_idle_consumer(&*connection, &owner, idle).await;
        match self.link.noted(removed) {
            Err(error) if error.kind() == ErrorKind::Missing => Ok(false),
            removed => removed,
        }
    }
}

impl Periodic for ConsumerCleaner {
    type Report = Option<ConsumerReport>;
    const TASK: &'static str = "the clean-up of consumers";

    fn stream(&self) -> &StreamKey {
        self.link.key()
    }

    fn period(&self) -> Duration {
        self.schedule.period()
    }

    fn is_done(report: &Self::Report) -> bool {
        report.is_some()
    }

    fn once(&mut self) -> impl Future<Output = Result<Self::Report, Error>> + Send {
        self.run_if_due()
    }
}

fn state(info: ConsumerInfo) -> ConsumerState {
    ConsumerState { name: info.name, pending: info.pending, idle: info.idle }
}

fn config(error: NameError) -> Error {
    Error::new(ErrorKind::Config, "a name given to the clean-up of consumers is refused").with_source(error)
}
