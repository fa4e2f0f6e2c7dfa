//! What a trimmer tells: [`Trimmed`], [`TrimReport`] and the totals.

use std::time::Duration;

use stream_core::{EntryId, ExcludedGroup, Need, Pin, StreamKey, StreamState, TrimPlan};

use crate::look::Look;

/// What came of one call to trim.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// use stream_maint::{Trimmed, Trimmer};
/// let mut trimmer = Trimmer::builder(&client).stream("orders").build()?;
/// let removed = match trimmer.run_if_due().await? {
///     Trimmed::Stream(report) => report.removed,
///     Trimmed::NoStream | Trimmed::NotDue => 0, // neither is a failure
///     _ => 0,
/// };
/// assert_eq!(removed, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trimmed {
    /// There is no such stream (yet): a state, not a failure.
    NoStream,
    /// Somebody in the fleet has trimmed within the period, or does so now.
    NotDue,
    /// The stream was looked at, and trimmed if there was something to trim.
    Stream(TrimReport),
}

/// What was trimmed, and what kept it from being more.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "3", "STREAMS", "orders", ">"])?;
/// # let done = server.entries("orders")[0].id().to_string();
/// # server.command(["XACK", "orders", "billing", &done])?;
/// use stream_core::{Need, Pin};
/// use stream_maint::{Trimmed, Trimmer};
/// let mut trimmer = Trimmer::builder(&client).stream("orders").build()?;
/// let Trimmed::Stream(report) = trimmer.run().await? else { panic!("the stream is there") };
/// assert_eq!((report.removed, report.length), (1, 3));
/// let Pin::Group { name, need, pending, .. } = report.plan.pinned_by else { panic!("a group holds it") };
/// assert_eq!((name.to_string().as_str(), pending), ("billing", 2));
/// assert!(matches!(need, Need::Pending(_)));
/// assert!(report.pinned_age.is_some()); // an alarm asks whether it is too old
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrimReport {
    /// Entries that were deleted.
    pub removed: u64,
    /// Entries in the stream before.
    pub length: u64,
    /// The floor ([`TrimPlan::min_id`]) and what pins it: the group, what it needs, how much is pending for it.
    pub plan: TrimPlan,
    /// How old the first entry is that the pinning group needs, by its id: what an alarm looks at. `None` where no group
    /// pins the floor.
    pub pinned_age: Option<Duration>,
    /// Groups that were not protected, because the policy says so, and what it cost them.
    pub excluded: Vec<Exclusion>,
}

/// A group that was left out, and what it lost.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
/// # server.command(["XGROUP", "CREATE", "orders", "preview-7", "0"])?;
/// use std::time::Duration;
/// use stream_core::{NamePattern, TrimPolicy};
/// use stream_maint::{Trimmed, Trimmer};
/// let stale = TrimPolicy::new().exclude_stale(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600));
/// let mut trimmer = Trimmer::builder(&client).stream("orders").policy(stale).build()?;
/// trimmer.run().await?; // sees the groups for the first time
/// # tokio::time::advance(Duration::from_secs(24 * 3600)).await;
/// let Trimmed::Stream(report) = trimmer.run().await? else { panic!("the stream is there") }; // a day later
/// let lost = &report.excluded[0];
/// assert_eq!((lost.group.name.to_string().as_str(), lost.lag, report.removed), ("preview-7", Some(3), 2));
/// assert!(lost.lost_from.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exclusion {
    /// The group, with its pending entries.
    pub group: ExcludedGroup,
    /// Entries it had not been delivered, where the server knew; those below the floor are lost to it.
    pub lag: Option<u64>,
    /// The first id that it still needed; everything from here to the floor is lost to it. `None` where it lost nothing.
    pub lost_from: Option<EntryId>,
}

/// What [`Trimmer::run_every`](super::Trimmer::run_every) did in all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
/// use std::time::Duration;
/// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
/// let ten_minutes = tokio::time::sleep(Duration::from_secs(599));
/// let totals = trimmer.run_every(ten_minutes, |_| {}).await;
/// assert_eq!((totals.runs, totals.removed, totals.failures), (10, 2, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TrimTotals {
    /// How often the stream was looked at and trimmed.
    pub runs: u64,
    /// Entries that were deleted.
    pub removed: u64,
    /// Runs that failed.
    pub failures: u64,
}

impl TrimReport {
    pub(super) fn new(look: &Look, plan: TrimPlan, removed: u64) -> Self {
        let state = &look.state;
        let floor = plan.min_id.filter(|_| removed > 0);
        let excluded = plan.excluded.iter().map(|group| exclusion(look, group, floor)).collect();
        let pinned_age = pinned_age(&plan.pinned_by, state);
        Self { removed, length: state.length, plan, pinned_age, excluded }
    }

    /// Says loudly which groups lost entries, and quietly the rest.
    pub(super) fn log(&self, stream: &StreamKey) {
        for exclusion in &self.excluded {
            if let (Some(from), Some(floor)) = (exclusion.lost_from, self.plan.min_id) {
                tracing::warn!(
                    %stream,
                    group = %exclusion.group.name,
                    pending = exclusion.group.pending,
                    lag = exclusion.lag,
                    %from,
                    %floor,
                    "trimmed entries that a stale group had not finished, as the policy says"
                );
            }
        }
        tracing::debug!(%stream, removed = self.removed, pinned_by = ?self.plan.pinned_by, "trimmed");
    }
}

fn exclusion(look: &Look, group: &ExcludedGroup, floor: Option<EntryId>) -> Exclusion {
    let need = look
        .state
        .groups
        .iter()
        .find(|state| state.name == group.name)
        .map(|state| Need::of(state, look.state.last_generated).floor());
    let info = look.groups.iter().find(|(info, _)| info.name == group.name);
    Exclusion {
        group: group.clone(),
        lag: info.and_then(|(info, _)| info.lag),
        lost_from: need.filter(|need| floor.is_some_and(|floor| floor > *need)),
    }
}

fn pinned_age(pin: &Pin, state: &StreamState) -> Option<Duration> {
    let Pin::Group { need, .. } = pin else { return None };
    let first = need.floor().max(state.first?);
    Some(Duration::from_millis(state.now_ms.saturating_sub(first.ms())))
}
