//! [`TrimPolicy`]: from which id on a stream is kept, so that trimming takes only what every group is done with.
//!
//! A group needs its oldest pending entry and everything after what it was delivered last. The server knows nothing of
//! that when it trims, and leaves no trace of what a group lost; so the floor is computed here, as numbers, from what the
//! server says about all groups, and what is not known counts as needed. Leaving a group out must be asked for by name and
//! is reported each time, because it loses that group's entries.

use std::time::Duration;

use crate::{EntryId, GroupName, NamePattern, PolicyError};

/// Below this, a group in the middle of a deployment or on a quiet stream would be taken for stale.
const LEAST_STALE: Duration = Duration::from_mins(1);

/// What a server says about a group, as far as maintenance needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// Its name.
    pub name: GroupName,
    /// The id it was delivered last; `0-0` when it was created at the beginning and nothing was delivered yet.
    pub last_delivered: EntryId,
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// The smallest of their ids, deleted entries included.
    pub oldest_pending: Option<EntryId>,
    /// Consumers that the server knows of.
    pub consumers: u64,
    /// For how long nothing about the group has changed and none of its consumers has asked for entries. `None` when that
    /// is not known: then it is never taken for stale or abandoned.
    pub unchanged: Option<Duration>,
}

/// What a server says about a stream, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The id of the first entry; `None` when the stream is empty.
    pub first: Option<EntryId>,
    /// The greatest id that the stream ever gave.
    pub last_generated: EntryId,
    /// Number of entries.
    pub length: u64,
    /// The first id of the newest entries that are to be kept by number; asked for by [`TrimPolicy::keeps_newest`].
    pub newest_from: Option<EntryId>,
    /// All groups of the stream. One that is missing here is not protected.
    pub groups: Vec<GroupState>,
    /// The server's clock, in milliseconds since 1970: ids are compared with it.
    pub now_ms: u64,
}

/// What may be trimmed. By default whatever all groups have finished, exactly; nothing when there is no group.
///
/// Every further rule keeps more, never less, but for [`exclude_stale`](Self::exclude_stale). On a stream without groups,
/// which nobody can be known to have finished, entries go by age and by number only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrimPolicy {
    older_than: Option<Duration>,
    longer_than: Option<u64>,
    stale: Vec<(NamePattern, Duration)>,
    approximate: bool,
}

impl TrimPolicy {
    /// The default policy.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes only entries whose ids are older than `age`. Right for ids that the server gave.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// Takes only what the stream has beyond its newest `entries` entries.
    #[must_use]
    pub fn longer_than(mut self, entries: u64) -> Self {
        self.longer_than = Some(entries);
        self
    }

    /// Does not protect groups whose name matches `pattern` and about which nothing has changed for `unchanged`.
    ///
    /// **This loses data**: what such a group has not finished is deleted. It is for groups that will never come back but
    /// hold a stream's memory; each one that was left out is listed in [`TrimPlan::excluded`].
    #[must_use]
    pub fn exclude_stale(mut self, pattern: NamePattern, unchanged: Duration) -> Self {
        self.stale.push((pattern, unchanged));
        self
    }

    /// Lets the server trim whole blocks only (`~`): cheaper, but up to a block of finished entries (100 entries or 4 KiB
    /// as servers are set up by default) stays.
    #[must_use]
    pub fn approximate(mut self) -> Self {
        self.approximate = true;
        self
    }

    /// Whether the policy makes sense.
    ///
    /// # Errors
    /// [`PolicyError`] when groups are to be excluded after less than a minute: live ones would be.
    pub fn check(&self) -> Result<(), PolicyError> {
        match self.stale.iter().find(|(_, unchanged)| *unchanged < LEAST_STALE) {
            Some(&(_, given)) => {
                let what = "the time after which a stale group is no longer protected from trimming";
                Err(PolicyError::TooShort { what, given, least: LEAST_STALE })
            }
            None => Ok(()),
        }
    }

    /// The number of newest entries that are kept whatever their age: [`StreamState::newest_from`] must hold the id of
    /// their first for anything to be trimmed.
    pub fn keeps_newest(&self) -> Option<u64> {
        self.longer_than.filter(|entries| *entries > 0)
    }

    /// Whether [`GroupState::unchanged`] matters: then groups have to be watched to find the stale ones.
    pub fn needs_watch(&self) -> bool {
        !self.stale.is_empty()
    }

    /// What is to be trimmed from a stream in this state.
    #[must_use = "a plan does nothing until it is carried out"]
    pub fn plan(&self, stream: &StreamState) -> TrimPlan {
        let (excluded, protected): (Vec<_>, Vec<_>) =
            stream.groups.iter().partition(|group| self.excludes(group).is_some());
        let excluded = excluded.into_iter().filter_map(|group| self.excludes(group)).collect();
        let (floor, pinned_by) = self.floor(stream, &protected);
        let min_id = stream.first.filter(|first| floor > *first).map(|_| floor);
        TrimPlan { min_id, approximate: self.approximate, pinned_by, excluded }
    }

    /// Whether somebody needs of the stream, as it is `now`, what is below `min_id`: what was planned before takes too much
    /// then. A group may have been made anew, have gone back, or have shown that it is not stale.
    pub fn is_outdated(&self, min_id: EntryId, now: &StreamState) -> bool {
        let needs = |group: &GroupState| self.protects(group) && Need::of(group, now.last_generated).floor() < min_id;
        min_id > now.last_generated || now.groups.iter().any(needs)
    }

    /// The first id that is kept, and what keeps it.
    fn floor(&self, stream: &StreamState, groups: &[&GroupState]) -> (EntryId, Pin) {
        if stream.first.is_none() {
            return (EntryId::ZERO, Pin::Empty);
        }
        if groups.is_empty() && self.older_than.is_none() && self.longer_than.is_none() {
            return (EntryId::ZERO, Pin::NoGroup);
        }
        // The last entry stays in any case: a stream without entries looks like a new one to those who look at it.
        let mut lowest = (stream.last_generated, Pin::Newest);
        let mut lower = |floor: EntryId, pin: Pin| {
            if floor < lowest.0 {
                lowest = (floor, pin);
            }
        };
        for group in groups {
            let need = Need::of(group, stream.last_generated);
            let pin = Pin::Group { name: group.name.clone(), need, pending: group.pending, unchanged: group.unchanged };
            lower(need.floor(), pin);
        }
        if let Some(age) = self.older_than {
            let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            lower(EntryId::new(stream.now_ms.saturating_sub(age), 0), Pin::Age);
        }
        if let Some(entries) = self.keeps_newest() {
            let from = if stream.length <= entries { None } else { stream.newest_from };
            lower(from.unwrap_or(EntryId::ZERO), Pin::Length);
        }
        lowest
    }

    /// Whether what this group needs is kept.
    pub(crate) fn protects(&self, group: &GroupState) -> bool {
        self.excludes(group).is_none()
    }

    fn excludes(&self, group: &GroupState) -> Option<ExcludedGroup> {
        let unchanged = group.unchanged?;
        let (pattern, _) =
            self.stale.iter().find(|(pattern, limit)| unchanged >= *limit && pattern.matches(&group.name))?;
        Some(ExcludedGroup {
            name: group.name.clone(),
            pattern: pattern.clone(),
            unchanged,
            pending: group.pending,
            last_delivered: group.last_delivered,
        })
    }
}

/// What is to be trimmed, and why no more than that.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrimPlan {
    /// Entries with smaller ids go, this one and later ones stay (`MINID`). `None` when there is nothing to trim.
    pub min_id: Option<EntryId>,
    /// Whether the server may leave part of it (`~`).
    pub approximate: bool,
    /// What keeps the floor from being higher.
    pub pinned_by: Pin,
    /// Groups that were not protected, each of which may lose entries: say so loudly.
    pub excluded: Vec<ExcludedGroup>,
}

/// What keeps a stream from being trimmed further.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pin {
    /// A group that has not finished.
    Group {
        /// The group.
        name: GroupName,
        /// What it needs.
        need: Need,
        /// Its pending entries.
        pending: u64,
        /// For how long nothing about it has changed, where that is known.
        unchanged: Option<Duration>,
    },
    /// The policy keeps entries of this age.
    Age,
    /// The policy keeps this number of entries, or the first of them is not known.
    Length,
    /// Everything but the last entry may go.
    Newest,
    /// No protected group exists that could have finished anything, and no other rule is set.
    NoGroup,
    /// The stream is empty.
    Empty,
}

/// What a group needs of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// This entry on, the oldest that is pending.
    Pending(EntryId),
    /// What comes after the last delivered entry, from this id on.
    Undelivered(EntryId),
    /// Everything: nothing was delivered to it yet.
    Everything,
    /// Everything: it has pending entries, and the oldest is not known.
    UnknownPending,
    /// Everything: it was delivered an id that the stream has not given yet, so the stream is another one than it was.
    AheadOfStream,
}

impl Need {
    /// What `group` needs of a stream whose greatest id is `last_generated`.
    pub fn of(group: &GroupState, last_generated: EntryId) -> Self {
        let undelivered = match group.last_delivered.successor() {
            _ if group.last_delivered == EntryId::ZERO => return Self::Everything,
            _ if group.last_delivered > last_generated => return Self::AheadOfStream,
            // Nothing can follow the greatest id that exists, so nothing after it is needed.
            None => EntryId::MAX,
            Some(next) => next,
        };
        match group.oldest_pending {
            Some(oldest) if oldest < undelivered => Self::Pending(oldest),
            None if group.pending > 0 => Self::UnknownPending,
            _ => Self::Undelivered(undelivered),
        }
    }

    /// The first id that is needed.
    pub fn floor(self) -> EntryId {
        match self {
            Self::Pending(id) | Self::Undelivered(id) => id,
            Self::Everything | Self::UnknownPending | Self::AheadOfStream => EntryId::ZERO,
        }
    }
}

/// A group that trimming does not protect, because the policy says so.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExcludedGroup {
    /// The group.
    pub name: GroupName,
    /// The pattern that matched it.
    pub pattern: NamePattern,
    /// For how long nothing about it has changed.
    pub unchanged: Duration,
    /// Its pending entries, which may be lost.
    pub pending: u64,
    /// The id it was delivered last; what follows may be lost.
    pub last_delivered: EntryId,
}

#[cfg(test)]
#[path = "trim_tests.rs"]
mod tests;
