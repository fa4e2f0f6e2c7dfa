//! [`VanishedGroups`]: what groups needed that a stream had a moment ago and has no more.
//!
//! A group that is gone needs nothing, as far as its server knows. But one that was destroyed by mistake, or that a failover
//! lost, is made anew by its consumers where it was, as soon as they are back from their pauses, and what was trimmed until
//! then is lost to it. So what a group needed when it was seen last is kept for a while after it was first missed.

use std::collections::HashMap;
use std::time::Duration;

use crate::{GroupName, GroupState, StreamState, TrimPolicy};

/// For how long: consumers try again after a minute at most, and a process that is started anew is there within some; but a
/// group that was removed on purpose should not hold its stream for longer than nobody minds.
const GRACE: Duration = Duration::from_mins(10);

/// Remembers the groups of one stream that trimming protects.
#[derive(Debug, Clone, Default)]
pub struct VanishedGroups {
    known: HashMap<GroupName, Known>,
}

#[derive(Debug, Clone)]
struct Known {
    last: GroupState,
    missed_since_ms: Option<u64>,
}

impl VanishedGroups {
    /// For how long a group that is gone is still minded.
    pub const GRACE: Duration = GRACE;

    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers the groups of `stream` as they are `now`, in milliseconds since any beginning, and returns those that
    /// were there before and have been missed for less than [`GRACE`](Self::GRACE), as they were seen last. Groups that
    /// `policy` leaves out are not minded.
    ///
    /// A stream whose greatest id has gone back is minded as well: it may be a copy that lags behind.
    pub fn observe(&mut self, stream: &StreamState, policy: &TrimPolicy, now: u64) -> Vec<GroupState> {
        for known in self.known.values_mut() {
            known.missed_since_ms = match known.missed_since_ms {
                // A clock that went back says nothing about the time before.
                Some(since) if since <= now => Some(since),
                _ => Some(now),
            };
        }
        for group in &stream.groups {
            if policy.protects(group) {
                self.known.insert(group.name.clone(), Known { last: group.clone(), missed_since_ms: None });
            } else {
                self.known.remove(&group.name);
            }
        }
        let grace = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        self.known.retain(|_, known| known.missed_since_ms.is_none_or(|since| now - since < grace));
        let missed = self.known.values().filter(|known| known.missed_since_ms.is_some());
        let mut missed: Vec<_> = missed.map(|known| known.last.clone()).collect();
        missed.sort_by(|a, b| a.name.cmp(&b.name));
        missed
    }

    /// The stream itself is gone, and what its groups needed with it.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntryId, NamePattern};

    const MINUTE: u64 = 60_000;

    fn group(name: &str, last: u64) -> GroupState {
        GroupState {
            name: GroupName::new(name).unwrap(),
            last_delivered: EntryId::new(last, 0),
            pending: 0,
            oldest_pending: None,
            consumers: 0,
            unchanged: Some(Duration::from_hours(1)),
        }
    }

    fn stream(minute: u64, groups: &[GroupState]) -> StreamState {
        StreamState {
            first: Some(EntryId::new(1, 0)),
            last_generated: EntryId::new(100, 0),
            length: 100,
            newest_from: None,
            groups: groups.to_vec(),
            now_ms: 1_700_000_000_000 + minute * MINUTE,
        }
    }

    /// The groups that are there in each minute, and the names of those that are missed then.
    #[track_caller]
    fn check(policy: &TrimPolicy, seen: &[(u64, &[GroupState], &[GroupState])]) {
        let mut memory = VanishedGroups::new();
        for (minute, there, missed) in seen {
            let stream = stream(*minute, there);
            assert_eq!(memory.observe(&stream, policy, stream.now_ms), *missed, "in minute {minute}");
        }
    }

    #[test]
    fn a_group_that_is_gone_is_missed_as_it_was_seen_last_for_ten_minutes() {
        let (a, b, moved) = (group("a", 90), group("b", 20), group("b", 30));
        let both = [a.clone(), b];
        let (one, later, missed) = ([a.clone()], [a, moved.clone()], [moved]);
        let seen: &[(u64, &[_], &[_])] = &[
            (0, &both, &[]),
            (1, &later, &[]),
            // Nobody looked for an hour: the time runs from when it was first missed.
            (61, &one, &missed),
            (70, &one, &missed),
            (71, &one, &[]),
            (72, &one, &[]),
        ];
        check(&TrimPolicy::new(), seen);
    }

    #[test]
    fn one_that_is_back_is_missed_no_more_and_may_go_again() {
        let (b, anew) = ([group("b", 20)], [group("b", 0)]);
        let seen: &[(u64, &[_], &[_])] =
            &[(0, &b, &[]), (1, &[], &b), (9, &anew, &[]), (12, &[], &anew), (21, &[], &anew), (22, &[], &[])];
        check(&TrimPolicy::new(), seen);
    }

    #[test]
    fn a_clock_that_goes_back_lengthens_the_time_by_no_more_than_itself() {
        let b = [group("b", 20)];
        let seen: &[(u64, &[_], &[_])] = &[(50, &b, &[]), (51, &[], &b), (5, &[], &b), (14, &[], &b), (15, &[], &[])];
        check(&TrimPolicy::new(), seen);
    }

    #[test]
    fn who_is_not_protected_is_not_missed() {
        let stale = NamePattern::new("stale-*").unwrap();
        let policy = TrimPolicy::new().exclude_stale(stale, Duration::from_hours(1));
        let groups = [group("stale-1", 20), group("b", 20)];
        check(&policy, &[(0, &groups, &[]), (1, &[], &groups[1..])]);
    }

    #[test]
    fn with_the_stream_its_groups_are_forgotten() {
        let mut memory = VanishedGroups::new();
        memory.observe(&stream(0, &[group("b", 20)]), &TrimPolicy::new(), 0);
        memory.forget();
        assert_eq!(memory.observe(&stream(1, &[]), &TrimPolicy::new(), MINUTE), []);
    }
}
