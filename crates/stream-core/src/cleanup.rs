//! [`ConsumerPolicy`] and [`GroupPolicy`]: which consumers and groups are left over and may be removed.
//!
//! Removing a consumer destroys what is pending for it, and removing a group destroys its place in the stream, without a
//! trace and for good. So a consumer goes only when it holds nothing, a group only when nobody reads it, nothing is
//! pending, it has been read before, its name says that it may go, and nothing has changed for long. A plan is made from
//! what was true a moment ago: whoever carries it out checks the same again, in the same step as the removal.

use std::collections::HashMap;
use std::time::Duration;

use crate::{ConsumerName, EntryId, GroupName, GroupState, NamePattern, PolicyError};

const LEAST_IDLE: Duration = Duration::from_mins(1);

/// What a server says about a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerState {
    /// Its name.
    pub name: ConsumerName,
    /// Entries that are pending for it.
    pub pending: u64,
    /// The server's `idle`: time since it last asked for entries, or on servers before 7.2 since it was last given some.
    pub idle: Duration,
}

/// When a consumer is taken for dead. By default after a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerPolicy {
    idle: Duration,
}

impl Default for ConsumerPolicy {
    fn default() -> Self {
        Self { idle: Duration::from_hours(24) }
    }
}

/// What is to become of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerAction {
    /// Dead and holding nothing: remove it, if it holds nothing and has been idle for no less than this in the same step.
    Remove {
        /// For how long it had been idle.
        idle: Duration,
    },
    /// Dead, but entries are pending for it: they must be claimed first.
    ClaimFirst,
    /// Not idle for long enough.
    KeepActive,
    /// It is the consumer on whose behalf the plan is made.
    KeepSelf,
    /// It is the one of its group that was active last, and this server does not say whether it still asks for entries: a
    /// group without consumers would look abandoned though it may be read.
    KeepLast,
}

impl ConsumerPolicy {
    /// Takes consumers for dead that have been idle for `idle`.
    ///
    /// # Errors
    /// [`PolicyError`] when that is less than a minute: consumers that wait for entries would come and go.
    pub fn new(idle: Duration) -> Result<Self, PolicyError> {
        let what = "the idle time after which a consumer is removed";
        at_least(what, idle, LEAST_IDLE)?;
        Ok(Self { idle })
    }

    /// What is to become of each consumer of a group, in the order given.
    ///
    /// `own` is the name of the consumer that asks, if any. `polls_count` says whether the server counts asking for entries
    /// as activity even when there are none (7.2 and later).
    pub fn plan(
        &self,
        consumers: &[ConsumerState],
        own: Option<&ConsumerName>,
        polls_count: bool,
    ) -> Vec<(ConsumerName, ConsumerAction)> {
        let last = consumers.iter().min_by_key(|consumer| consumer.idle).filter(|_| !polls_count);
        let action = |consumer: &ConsumerState| {
            if Some(&consumer.name) == own {
                ConsumerAction::KeepSelf
            } else if consumer.idle < self.idle {
                ConsumerAction::KeepActive
            } else if consumer.pending > 0 {
                ConsumerAction::ClaimFirst
            } else if last.is_some_and(|last| last.name == consumer.name) {
                ConsumerAction::KeepLast
            } else {
                ConsumerAction::Remove { idle: consumer.idle }
            }
        };
        consumers.iter().map(|consumer| (consumer.name.clone(), action(consumer))).collect()
    }
}

/// Which groups may be removed: those whose names match one of the patterns and that have been abandoned for long. There
/// is no default, since it is never safe to guess that a group has no owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPolicy {
    patterns: Vec<NamePattern>,
    unchanged: Duration,
}

/// What is to become of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupAction {
    /// Abandoned: remove it, if it has no consumers and nothing pending and was delivered this id last in the same step.
    Remove {
        /// The id it was delivered last.
        last_delivered: EntryId,
    },
    /// Its name matches no pattern.
    KeepUnnamed,
    /// It has consumers.
    KeepConsumers,
    /// Entries are pending.
    KeepPending,
    /// Nothing was delivered to it yet: it is a new one.
    KeepNew,
    /// It changed lately, or it is not known for how long it has not.
    KeepChanged,
}

impl GroupPolicy {
    /// Removes abandoned groups whose names match `pattern`, once nothing about them has changed for `unchanged`.
    ///
    /// # Errors
    /// [`PolicyError`] when that is less than a minute: a group between two processes of its owner would be removed.
    pub fn new(pattern: NamePattern, unchanged: Duration) -> Result<Self, PolicyError> {
        at_least("the time after which an abandoned group is removed", unchanged, LEAST_IDLE)?;
        Ok(Self { patterns: vec![pattern], unchanged })
    }

    /// Removes groups with names like this as well.
    #[must_use]
    pub fn or(mut self, pattern: NamePattern) -> Self {
        self.patterns.push(pattern);
        self
    }

    /// The patterns, in the order in which they were given.
    pub fn patterns(&self) -> &[NamePattern] {
        &self.patterns
    }

    /// What is to become of each group of a stream, in the order given.
    pub fn plan(&self, groups: &[GroupState]) -> Vec<(GroupName, GroupAction)> {
        groups.iter().map(|group| (group.name.clone(), self.action(group))).collect()
    }

    fn action(&self, group: &GroupState) -> GroupAction {
        if !self.patterns.iter().any(|pattern| pattern.matches(&group.name)) {
            GroupAction::KeepUnnamed
        } else if group.consumers > 0 {
            GroupAction::KeepConsumers
        } else if group.pending > 0 || group.oldest_pending.is_some() {
            GroupAction::KeepPending
        } else if group.last_delivered == EntryId::ZERO {
            GroupAction::KeepNew
        } else if group.unchanged.is_none_or(|unchanged| unchanged < self.unchanged) {
            GroupAction::KeepChanged
        } else {
            GroupAction::Remove { last_delivered: group.last_delivered }
        }
    }
}

/// Since when groups have looked the same: the source of [`GroupState::unchanged`] where the server has none.
///
/// A server does not say when a group changed last, so it must be watched. What is seen for the first time counts as
/// changed now.
#[derive(Debug, Clone, Default)]
pub struct GroupWatch {
    seen: HashMap<GroupName, (Mark, u64)>,
}

/// What of a group is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    last_delivered: EntryId,
    pending: u64,
    oldest_pending: Option<EntryId>,
    consumers: u64,
}

impl GroupWatch {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`GroupState::unchanged`] of all groups of one stream, at `now_ms` in milliseconds since any beginning (see
    /// [`Elapsed`](crate::Elapsed)), and forgets groups that are not there any more. Where the server says how long a group's consumers have
    /// been idle, the caller lowers the value to the least of that, and has it kept by [`heard`](Self::heard).
    pub fn observe(&mut self, groups: &mut [GroupState], now_ms: u64) {
        let mut seen = HashMap::with_capacity(groups.len());
        for group in groups {
            let mark = Mark {
                last_delivered: group.last_delivered,
                pending: group.pending,
                oldest_pending: group.oldest_pending,
                consumers: group.consumers,
            };
            let since = match self.seen.get(&group.name) {
                // A clock that went back says nothing about the time before.
                Some((before, since)) if *before == mark && *since <= now_ms => *since,
                _ => now_ms,
            };
            group.unchanged = Some(Duration::from_millis(now_ms - since));
            seen.insert(group.name.clone(), (mark, since));
        }
        self.seen = seen;
    }

    /// Keeps what the caller has lowered [`GroupState::unchanged`] to since these groups were observed, at the same
    /// `now_ms`. A server that takes over from another, or starts from its disk, does not know who has asked for entries
    /// lately, and a live group of a quiet stream shows nothing else. What is not known counts as heard now.
    pub fn heard(&mut self, groups: &[GroupState], now_ms: u64) {
        for group in groups {
            let Some((_, since)) = self.seen.get_mut(&group.name) else { continue };
            let ago = group.unchanged.map_or(0, |unchanged| u64::try_from(unchanged.as_millis()).unwrap_or(u64::MAX));
            *since = (*since).max(now_ms.saturating_sub(ago));
        }
    }
}

fn at_least(what: &'static str, given: Duration, least: Duration) -> Result<(), PolicyError> {
    if given < least { Err(PolicyError::TooShort { what, given, least }) } else { Ok(()) }
}

#[cfg(test)]
#[path = "cleanup_tests.rs"]
mod tests;
