//! [`Trimmer`]: deletes what every group is done with.
//!
//! What must stay true: the floor comes from [`TrimPolicy::plan`] and nothing else; entries go by `XTRIM MINID`, never by
//! number (`MAXLEN` would take what groups still need); and no single command deletes so much that the server stands
//! still. `XTRIM … ACKED` is not used: it looks at the pending lists of Redis 8.2 and later only, and the floor needs no
//! help from it.

mod builder;
mod every;
mod newest;
mod readers;
mod report;

use std::time::Duration;

use stream_core::{
    EntryId, GroupName, GroupState, GroupWatch, StreamKey, StreamState, TrimPlan, TrimPolicy, VanishedGroups,
};
use stream_redis::command::{Precision, Trim, TrimTo, XTrim};
use stream_redis::{Client, Error};

pub use builder::TrimmerBuilder;
pub use readers::Readers;
pub use report::{Exclusion, TrimReport, TrimTotals, Trimmed};

use crate::every::Schedule;
use crate::link::Link;
use crate::look::{Age, Look, mind_consumers};

/// Entries that one command deletes at most, so that it takes a millisecond or so.
const STEP: u64 = 10_000;

/// Trims one stream, once ([`run`](Self::run)) or for as long as a process lives ([`run_every`](Self::run_every)).
///
/// Keep the trimmer and run it again and again: one that has seen a group protects it for ten minutes after it is gone
/// ([`VanishedGroups`]), since it may have been destroyed by mistake, or lost by a failover, while its consumers paused. Reports
/// name it as what pins the floor, like one that is there.
///
/// ```
/// use stream_maint::{Trimmed, Trimmer};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # for item in 0..3 { server.add("orders", [("item", item.to_string())]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "2", "STREAMS", "orders", ">"])?;
/// # let done = server.entries("orders")[0].id().to_string();
/// # server.command(["XACK", "orders", "billing", &done])?;
/// # let client = server.client();
/// let mut trimmer = Trimmer::builder(&client).stream("orders").build()?;
/// let Trimmed::Stream(report) = trimmer.run().await? else { panic!("the stream is there") };
/// assert_eq!(report.removed, 1); // of three entries one is finished, one pending and one not delivered
/// println!("no more than that because of {:?}", report.plan.pinned_by);
/// # assert_eq!(server.len("orders"), 2);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct Trimmer {
    link: Link,
    policy: TrimPolicy,
    awaited: Vec<GroupName>,
    readers: Readers,
    schedule: Schedule,
    age: Age,
    watch: GroupWatch,
    vanished: VanishedGroups,
}

impl Trimmer {
    /// Starts to describe a trimmer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// use stream_maint::{Trimmed, Trimmer};
    /// let mut trimmer = Trimmer::builder(&client).stream("orders").build()?;
    /// assert_eq!(trimmer.run().await?, Trimmed::NoStream);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client) -> TrimmerBuilder {
        TrimmerBuilder::new(client)
    }

    /// Where readers without a group tell how far they are; see [`Readers`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
    /// use stream_core::{EntryId, GroupName, Pin};
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// trimmer.readers().set(&GroupName::new("dashboard")?, EntryId::ZERO);
    /// let plan = trimmer.plan().await?.expect("the stream is there");
    /// assert!(matches!(plan.pinned_by, Pin::Group { name, .. } if name == GroupName::new("dashboard")?));
    /// # Ok(())
    /// # }
    /// ```
    pub fn readers(&self) -> Readers {
        self.readers.clone()
    }

    /// The stream.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// assert_eq!(trimmer.stream().to_string(), "orders");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&self) -> &StreamKey {
        self.link.key()
    }

    /// How often [`run_every`](Self::run_every) trims.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_maint::Trimmer;
    /// assert_eq!(Trimmer::builder(&client).stream("orders").build()?.period(), Duration::from_secs(60));
    /// let hasty = Trimmer::builder(&client).stream("orders").trim_every(Duration::ZERO).build()?;
    /// assert_eq!(hasty.period(), Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn period(&self) -> Duration {
        self.schedule.period()
    }

    /// What the policy is applied to: the stream and its groups as the server shows them now, and the groups that are
    /// protected before they exist, or after they are gone. `None` where there is no stream.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// match trimmer.state().await? {
    ///     Some(state) => println!("{} entries, {} groups", state.length, state.groups.len()),
    ///     None => println!("there is no such stream yet"),
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server. Needs `XINFO`, `XPENDING` and `TIME`, and `XRANGE` where entries are kept by number.
    pub async fn state(&mut self) -> Result<Option<StreamState>, Error> {
        Ok(self.look().await?.map(|look| look.state))
    }

    /// What would be trimmed now and why no more than that; `None` where there is no stream. Changes nothing.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # server.add("orders", [("item", "1")]);
    /// # let client = server.client();
    /// use stream_core::Pin;
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// let plan = trimmer.plan().await?.expect("the stream is there");
    /// assert_eq!((plan.min_id, plan.pinned_by), (None, Pin::NoGroup)); // nobody has finished anything
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`state`](Self::state).
    pub async fn plan(&mut self) -> Result<Option<TrimPlan>, Error> {
        Ok(self.state().await?.map(|state| self.policy.plan(&state)))
    }

    /// Trims now, whoever trimmed last. Two at the same time take no more than one would, they only do the work twice; where
    /// entries are kept by number, the later of them may leave what is too many to the next run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
    /// use stream_maint::{Trimmed, Trimmer};
    /// let mut trimmer = Trimmer::builder(&client).stream("orders").build()?;
    /// let Trimmed::Stream(report) = trimmer.run().await? else { panic!("the stream is there") };
    /// assert_eq!(report.removed, 2); // the last entry always stays
    /// # assert_eq!(server.len("orders"), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server: those of [`state`](Self::state), or `XTRIM` is not allowed. What was trimmed until
    /// then is trimmed.
    pub async fn run(&mut self) -> Result<Trimmed, Error> {
        let Some(look) = self.look().await? else { return Ok(Trimmed::NoStream) };
        let plan = self.policy.plan(&look.state);
        let removed = match plan.min_id {
            Some(min_id) => self.trim(min_id, plan.approximate).await?,
            None => 0,
        };
        let report = TrimReport::new(&look, plan, removed);
        report.log(self.stream());
        Ok(Trimmed::Stream(report))
    }

    async fn look(&mut self) -> Result<Option<Look>, Error> {
        let Some(mut look) = self.watch().await? else { return Ok(None) };
        if let Some(keep) = self.policy.keeps_newest() {
            look.state.newest_from = newest::from(&mut self.link, &self.policy, &look.state, keep).await?;
        }
        Ok(Some(look))
    }

    /// The stream, all that need something of it, and what is known of them from before.
    async fn watch(&mut self) -> Result<Option<Look>, Error> {
        let Some(mut look) = Look::at(&mut self.link).await? else {
            self.vanished.forget();
            return Ok(None);
        };
        let state = &mut look.state;
        let now = self.age.at(state);
        self.watch.observe(&mut state.groups, now);
        if self.policy.needs_watch() {
            mind_consumers(&mut self.link, &mut state.groups).await?;
            self.watch.heard(&state.groups, now);
        }
        let gone = self.vanished.observe(state, &self.policy, now);
        let missing = |name: &&GroupName| state.groups.iter().all(|group| group.name != **name);
        let awaited: Vec<_> =
            self.awaited.iter().filter(missing).map(|name| needs_after(name, EntryId::ZERO)).collect();
        state.groups.extend(awaited);
        state.groups.extend(gone);
        // Readers without a group have no place on the server: what they told is all that is known of them.
        state.groups.extend(self.readers.cursors().iter().map(|(name, cursor)| needs_after(name, *cursor)));
        Ok(Some(look))
    }

    /// Deletes what is below `min_id`, in steps, for as long as nobody needs it. The stream is looked at before each of them,
    /// in full: a group that is where it was may have been given again what it had finished, and one that was stale may not
    /// be so any more.
    async fn trim(&mut self, min_id: EntryId, approximate: bool) -> Result<u64, Error> {
        let mut removed = 0;
        let mut precision = Precision::Approximate { limit: Some(STEP) };
        loop {
            let Some(now) = self.watch().await? else { return Ok(removed) };
            if self.policy.is_outdated(min_id, &now.state) {
                tracing::info!(stream = %self.stream(), "a group needs more of its stream than a moment ago: trimming goes on next time");
                return Ok(removed);
            }
            let exact = precision == Precision::Exact;
            let trim = Trim { to: TrimTo::MinId(min_id), precision };
            let went = self.link.run(&XTrim { key: self.link.key().clone(), trim }).await?;
            removed += went;
            if exact || (went == 0 && approximate) {
                return Ok(removed);
            }
            if went == 0 {
                precision = Precision::Exact;
            }
        }
    }
}

/// Somebody who is no group (yet) and needs what comes after `cursor`; at `0-0` everything.
fn needs_after(name: &GroupName, cursor: EntryId) -> GroupState {
    GroupState {
        name: name.clone(),
        last_delivered: cursor,
        pending: 0,
        oldest_pending: None,
        consumers: 0,
        unchanged: None,
    }
}
