//! [`GroupCleaner`]: removes groups that were abandoned.
//!
//! What must stay true: a group goes only when its name says that it may, nobody reads it, nothing is pending, it has been
//! read before and has not moved for long; and all of that is checked again in the same step as the removal. Destroying a
//! group destroys its place in the stream, and nothing tells afterwards where that was.

use std::future::Future;
use std::time::Duration;

use stream_core::{GroupAction, GroupName, GroupPolicy, GroupWatch, NameError, StreamKey};
use stream_redis::{Client, Error, ErrorKind, Fenced};

use crate::every::{CleanupTotals, Periodic, Schedule, run_every};
use crate::link::Link;
use crate::look::{Age, Look};

/// Removes the abandoned groups of one stream.
///
/// No server says since when a group has not changed, so it is watched: nothing is removed before this cleaner has seen
/// the group unchanged for the time of the policy. Keep the cleaner and run it again and again; one that is made anew for
/// each run removes nothing.
///
/// Servers before Redis 7.2 do not list a consumer that waits and was never given an entry, so that a group which is read
/// looks abandoned. Consumers of this library make themselves known when they start and are safe; do not let the pattern
/// match groups of other clients there.
///
/// ```
/// use std::time::Duration;
/// use stream_core::{GroupPolicy, NamePattern};
/// use stream_maint::GroupCleaner;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::time::pause();
/// # let server = stream_testkit::MemoryServer::new();
/// # let id = server.add("events", [("n", "1")]).to_string();
/// # server.command(["XGROUP", "CREATE", "events", "preview-7", &id])?;
/// # server.command(["XGROUP", "CREATE", "events", "billing", &id])?;
/// # let client = server.client();
/// let policy = GroupPolicy::new(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
/// let mut cleaner = GroupCleaner::new(&client, "events", policy)?;
/// assert!(cleaner.run().await?.removed.is_empty()); // seen for the first time
/// # tokio::time::advance(Duration::from_secs(24 * 3600)).await;
/// // a day later
/// let report = cleaner.run().await?;
/// assert_eq!(report.removed[0].to_string(), "preview-7");
/// # assert_eq!(server.groups("events"), ["billing"]);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct GroupCleaner {
    link: Link,
    policy: GroupPolicy,
    age: Age,
    watch: GroupWatch,
    fenced: Fenced,
    schedule: Schedule,
}

/// What became of the groups of a stream.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # use std::time::Duration;
/// # let id = server.add("events", [("n", "1")]).to_string();
/// # server.command(["XGROUP", "CREATE", "events", "preview-7", &id])?;
/// # let policy = stream_core::GroupPolicy::new(stream_core::NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
/// # server.command(["XGROUP", "CREATE", "events", "billing", "0"])?;
/// let mut cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?;
/// cleaner.run().await?; // sees them for the first time
/// # tokio::time::advance(Duration::from_secs(24 * 3600)).await;
/// let report = cleaner.run().await?; // a day later
/// assert_eq!(report.removed[0].to_string(), "preview-7");
/// assert_eq!((report.spared.len(), report.kept), (0, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GroupReport {
    /// Removed.
    pub removed: Vec<GroupName>,
    /// Were to be removed, but were in use again, or gone, when it came to it; all of them where the server allows no
    /// scripts, without which a removal cannot be made safe.
    pub spared: Vec<GroupName>,
    /// Groups that were left alone.
    pub kept: u64,
}

impl GroupCleaner {
    /// A cleaner of the groups of the stream `stream`. Connects to nothing yet.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_core::{GroupPolicy, NamePattern};
    /// use stream_maint::GroupCleaner;
    /// let policy = GroupPolicy::new(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// assert!(GroupCleaner::new(&client, "events", policy.clone()).is_ok());
    /// assert!(GroupCleaner::new(&client, "", policy).is_err()); // a stream has a name
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the name is empty.
    pub fn new(client: &Client, stream: impl AsRef<[u8]>, policy: GroupPolicy) -> Result<Self, Error> {
        let config =
            |error: NameError| Error::new(ErrorKind::Config, "the name of the stream is refused").with_source(error);
        let stream = StreamKey::new(stream).map_err(config)?;
        // A cleaner of other groups has turns of its own.
        let patterns: Vec<_> = policy.patterns().iter().map(ToString::to_string).collect();
        let name = format!(":streamkeeper:groups:{}", patterns.join(","));
        let schedule = Schedule::new(&stream, name.as_bytes()).map_err(config)?;
        let (watch, fenced) = (GroupWatch::new(), Fenced::new());
        Ok(Self { link: Link::new(client, stream), policy, age: Age::default(), watch, fenced, schedule })
    }

    /// How often [`run_every`](Self::run_every) cleans up, counted over the whole fleet. 60 s by default; less than 1 s is
    /// raised to that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_core::{GroupPolicy, NamePattern};
    /// let policy = GroupPolicy::new(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// let cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?.every(Duration::from_secs(3600));
    /// assert_eq!(cleaner.period(), Duration::from_secs(3600)); // a day of watching is seen in steps of an hour
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
    /// use stream_core::{GroupPolicy, NamePattern};
    /// let policy = GroupPolicy::new(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// let cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?;
    /// assert_eq!(cleaner.period(), Duration::from_secs(60));
    /// assert_eq!(cleaner.every(Duration::ZERO).period(), Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn period(&self) -> Duration {
        self.schedule.period()
    }

    /// What would become of each group now; nothing where there is no stream. Changes nothing on the server, and counts as
    /// having seen the groups.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # use std::time::Duration;
    /// # let id = server.add("events", [("n", "1")]).to_string();
    /// # server.command(["XGROUP", "CREATE", "events", "preview-7", &id])?;
    /// # let policy = stream_core::GroupPolicy::new(stream_core::NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// use stream_core::GroupAction;
    /// let mut cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?;
    /// assert_eq!(cleaner.plan().await?[0].1, GroupAction::KeepChanged); // it was never seen before
    /// # tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    /// let (name, action) = cleaner.plan().await?.remove(0); // a day later
    /// assert_eq!(name.to_string(), "preview-7");
    /// assert!(matches!(action, GroupAction::Remove { .. }));
    /// # assert_eq!(server.groups("events"), ["preview-7"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server. Needs `XINFO`, `XPENDING` and `TIME`.
    pub async fn plan(&mut self) -> Result<Vec<(GroupName, GroupAction)>, Error> {
        let Some(mut look) = Look::at(&mut self.link).await? else { return Ok(Vec::new()) };
        let now = self.age.at(&look.state);
        self.watch.observe(&mut look.state.groups, now);
        Ok(self.policy.plan(&look.state.groups))
    }

    /// Removes what can be removed now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # use std::time::Duration;
    /// # let id = server.add("events", [("n", "1")]).to_string();
    /// # server.command(["XGROUP", "CREATE", "events", "preview-7", &id])?;
    /// # let policy = stream_core::GroupPolicy::new(stream_core::NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// let mut cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?;
    /// assert!(cleaner.run().await?.removed.is_empty());
    /// # tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    /// assert_eq!(cleaner.run().await?.removed.len(), 1); // a day later, by the cleaner that has watched
    /// # assert!(server.groups("events").is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`plan`](Self::plan), or the script is refused for another reason than that scripts are not allowed. What
    /// was removed until then is removed.
    pub async fn run(&mut self) -> Result<GroupReport, Error> {
        let plan = self.plan().await?;
        self.carry_out(&plan).await
    }

    /// Cleans up unless somebody in the fleet has done so within the period; `None` then, but the groups are looked at, since
    /// how long they have not changed is known only to who has watched them. Cleaners with the same patterns agree by a key that
    /// expires by itself, `{STREAM}:streamkeeper:groups:PATTERNS` (with commas between them); who may not write it cleans up anyway.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # use std::time::Duration;
    /// # let id = server.add("events", [("n", "1")]).to_string();
    /// # server.command(["XGROUP", "CREATE", "events", "preview-7", &id])?;
    /// # let policy = stream_core::GroupPolicy::new(stream_core::NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// use stream_maint::GroupCleaner;
    /// let mut here = GroupCleaner::new(&client, "events", policy.clone())?;
    /// let mut there = GroupCleaner::new(&client, "events", policy)?; // in another process
    /// assert!(here.run_if_due().await?.is_some());
    /// assert!(there.run_if_due().await?.is_none()); // it has been done
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn run_if_due(&mut self) -> Result<Option<GroupReport>, Error> {
        if self.schedule.is_due(&mut self.link).await? {
            return self.run().await.map(Some);
        }
        self.plan().await?;
        Ok(None)
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
    /// use stream_core::{GroupPolicy, NamePattern};
    /// let policy = GroupPolicy::new(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// let mut cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?;
    /// let totals = cleaner.run_every(shutdown, |_| {}).await;
    /// println!("{} groups were removed", totals.removed);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub async fn run_every<S: Future>(
        &mut self,
        shutdown: S,
        mut observe: impl FnMut(&Result<Option<GroupReport>, Error>),
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

    /// Carries out a plan that was made before. That it is old does no harm: each removal checks that nobody reads the
    /// group, that nothing is pending and that it has not moved, in the same step.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # use std::time::Duration;
    /// # let id = server.add("events", [("n", "1")]).to_string();
    /// # server.command(["XGROUP", "CREATE", "events", "preview-7", &id])?;
    /// # let policy = stream_core::GroupPolicy::new(stream_core::NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600))?;
    /// let mut cleaner = stream_maint::GroupCleaner::new(&client, "events", policy)?;
    /// cleaner.plan().await?;
    /// # tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    /// let plan = cleaner.plan().await?; // a day later, to be shown to somebody who agrees
    /// // meanwhile a consumer has joined
    /// # server.command(["XGROUP", "CREATECONSUMER", "events", "preview-7", "c"])?;
    /// let report = cleaner.carry_out(&plan).await?;
    /// assert_eq!((report.removed.len(), report.spared.len()), (0, 1));
    /// # assert_eq!(server.groups("events"), ["preview-7"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub async fn carry_out(&mut self, plan: &[(GroupName, GroupAction)]) -> Result<GroupReport, Error> {
        let mut report = GroupReport::default();
        for (group, action) in plan {
            let &GroupAction::Remove { last_delivered } = action else {
                report.kept += 1;
                continue;
            };
            let key = self.link.key().clone();
            let connection = self.link.connection().await?;
            let destroyed = self.fenced.destroy_group(&*connection, &key, group, last_delivered).await;
            match self.link.noted(destroyed) {
                Ok(true) => {
                    tracing::info!(stream = %key, %group, %last_delivered, "removed an abandoned group");
                    report.removed.push(group.clone());
                }
                Ok(false) => report.spared.push(group.clone()),
                Err(error) if error.kind() == ErrorKind::Missing => report.spared.push(group.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }
}

impl Periodic for GroupCleaner {
    type Report = Option<GroupReport>;
    const TASK: &'static str = "the clean-up of groups";

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
