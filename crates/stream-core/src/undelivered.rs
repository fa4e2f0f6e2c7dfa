//! [`Undelivered`]: whether entries that a group was never given were trimmed or deleted.
//!
//! The server moves a group over such a hole and leaves no trace of it. So it is found by comparison, each time somebody
//! looks: where the group stands against where the stream begins. What must stay true: a gap is told only where something
//! is surely gone that the group was not given; where the counts of the server do not prove it, an entry must have been
//! seen that is gone now. What was cut and passed between two looks is not found on every server.

use crate::{EntryId, StreamFacts};

/// What a server says at one moment of a stream and of one of its groups. The stream must have been asked about before the
/// group: what is delivered and deleted between the two then looks delivered, and not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupFacts {
    /// The stream.
    pub stream: StreamFacts,
    /// The greatest id in the stream; `None` when it is empty.
    pub last: Option<EntryId>,
    /// The id that was delivered to the group last.
    pub delivered: EntryId,
    /// How many entries the stream had ever got up to that id, where the server says so (since Redis 7.0).
    pub read: Option<u64>,
    /// Whether `read` can be relied on: Redis 7.0 does not count what it skips, and loses count when it is restarted.
    pub exact: bool,
}

impl GroupFacts {
    /// The smallest id that the stream has or will have.
    fn begin(&self) -> EntryId {
        self.stream.first.or_else(|| self.stream.last_generated.successor()).unwrap_or(EntryId::MAX)
    }

    /// How many entries there were before the first one, where the server's counts tell: not if one further on was deleted.
    fn removed(&self) -> Option<u64> {
        let whole = self.stream.max_deleted.is_some_and(|deleted| deleted < self.begin());
        self.stream.entries_added.filter(|_| whole)?.checked_sub(self.stream.length)
    }

    /// Whether everything was delivered, and the counts of the group and its stream agree.
    fn is_caught_up(&self) -> bool {
        self.delivered == self.stream.last_generated && self.read.is_some() && self.read == self.stream.entries_added
    }

    /// Whether something can be gone between the group's position and the beginning of the stream.
    fn is_behind(&self) -> bool {
        self.begin().predecessor().is_some_and(|end| self.delivered < end)
    }
}

/// Entries that a group was never given, and that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndeliveredGap {
    /// They have ids greater than this one.
    pub after: EntryId,
    /// The first id that is there again; the greatest that the stream ever gave where it is empty, which may be one of them.
    pub before: EntryId,
    /// How many; `None` when the server's counts do not tell: at least one.
    pub missed: Option<u64>,
}

/// A position of the group, and how many entries the stream had ever got up to there.
#[derive(Debug, Clone, Copy)]
struct Position {
    delivered: EntryId,
    passed: u64,
    /// What the server counted there; `None` when steps from there cannot be told by its count.
    read: Option<u64>,
}

/// What one process knows of a group and its stream from the last look.
///
/// ```
/// use stream_core::{EntryId, GroupFacts, StreamFacts, Undelivered, UndeliveredGap};
/// let id = |ms| EntryId::new(ms, 0);
/// let facts = |first, length| GroupFacts {
///     stream: StreamFacts {
///         length, last_generated: id(9), first: Some(id(first)), entries_added: Some(9), max_deleted: Some(EntryId::ZERO),
///     },
///     last: Some(id(9)), delivered: id(2), read: Some(2), exact: true,
/// };
/// let mut undelivered = Undelivered::new();
/// assert_eq!(undelivered.look(&facts(1, 9)), None);
/// // Somebody trims to the newest three, and the group was given no more than two of the nine.
/// let gap = UndeliveredGap { after: id(2), before: id(7), missed: Some(4) };
/// assert_eq!(undelivered.look(&facts(7, 3)), Some(gap));
/// assert_eq!(undelivered.look(&facts(7, 3)), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Undelivered {
    before: Option<GroupFacts>,
    position: Option<Position>,
    /// The smallest id that was seen in the stream and was not delivered yet, as far as is known.
    waits: Option<EntryId>,
    /// Up to here everything that is gone was told.
    told: EntryId,
    /// Whether the counts of the stream were set by hand, and cannot be held against the group's.
    set: bool,
    /// Where the group stood when a gap was told whose number was not known: what is counted there was told in part.
    vague: Option<EntryId>,
}

impl Undelivered {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The connection was lost: the server that answers next may have other counts.
    pub fn was_away(&mut self) {
        let exact = self.before.is_some_and(|before| before.exact);
        if let Some(position) = self.position.as_mut().filter(|_| !exact) {
            position.read = None;
        }
    }

    /// Takes up what the server says now; returns what is gone and was not told before.
    ///
    /// A stream or a group that is not the one it was (smaller ids, smaller counts) is taken as it is found: what it lacks
    /// by then is not told.
    pub fn look(&mut self, facts: &GroupFacts) -> Option<UndeliveredGap> {
        let another = self.before.is_some_and(|before| is_another(&before, facts));
        if another {
            *self = Self::new();
        }
        self.set = (self.set || self.are_set(facts)) && !facts.is_caught_up();
        let (begin, behind) = (facts.begin(), facts.is_behind());
        let removed = facts.removed().filter(|_| !self.set);
        let gone = self.waits.is_some_and(|id| id > facts.delivered && id < begin);
        let passed = self.passed(facts);
        let missed = match (removed, passed) {
            (Some(removed), Some(passed)) if behind && !another && self.vague != Some(facts.delivered) => {
                removed.saturating_sub(passed)
            }
            _ => 0,
        };
        // What a server skipped that does not count it may lie before the group's position of today.
        let skips = !facts.exact && missed > 0 && self.position.is_some();
        let gap = (missed > 0 || gone).then(|| UndeliveredGap {
            after: if skips { self.told } else { facts.delivered.max(self.told) },
            before: facts.stream.first.unwrap_or(facts.stream.last_generated),
            missed: Some(missed).filter(|missed| *missed > 0),
        });
        // Whatever is gone behind the group is told by now, or nobody can tell: from here on it counts as passed.
        let judged = removed.filter(|_| facts.delivered < begin);
        if gap.is_some() || judged.is_some() {
            self.told = begin.predecessor().unwrap_or_default();
        } else if facts.exact || self.position.is_none() || facts.delivered == facts.stream.last_generated {
            self.told = self.told.max(facts.delivered);
        }
        self.vague = match gap {
            Some(UndeliveredGap { missed: None, .. }) if judged.is_none() => Some(facts.delivered),
            _ => self.vague.filter(|at| judged.is_none() && *at == facts.delivered),
        };
        self.position = judged.or(passed).map(|passed| Position {
            delivered: facts.delivered,
            passed,
            // Where the server does not know the count, it will estimate it, which gives the whole position.
            read: Some(facts.read.unwrap_or(passed)),
        });
        let seen = [self.waits, facts.stream.first, facts.last].into_iter().flatten();
        self.waits = seen.filter(|id| *id > facts.delivered && *id >= begin).min();
        self.before = Some(*facts);
        gap
    }

    /// How many entries the stream had ever got up to where the group stands, or up to where its losses were told.
    fn passed(&self, facts: &GroupFacts) -> Option<u64> {
        let added = facts.stream.entries_added?;
        match self.position {
            Some(position) if position.delivered == facts.delivered => Some(position.passed),
            _ if facts.delivered == EntryId::ZERO => Some(facts.read.unwrap_or(0)),
            _ if facts.delivered == facts.stream.last_generated => Some(added),
            _ if facts.exact => facts.read,
            Some(position) => {
                // Deletions ahead of a group make the server give up or estimate its count.
                let deleted = facts.stream.max_deleted.is_none_or(|deleted| deleted > position.delivered);
                let steps = facts.read?.checked_sub(position.read?)?;
                (!deleted).then(|| position.passed.saturating_add(steps))
            }
            None => None,
        }
    }

    /// Whether the counts have changed without a cut: they were set, and do not go with what the group has counted.
    fn are_set(&self, facts: &GroupFacts) -> bool {
        self.before.is_some_and(|before| {
            before.begin() == facts.begin()
                && matches!((before.removed(), facts.removed()), (Some(before), Some(now)) if before != now)
        })
    }
}

/// Whether the stream or the group was made anew, or set to what it was not.
fn is_another(before: &GroupFacts, facts: &GroupFacts) -> bool {
    let fewer =
        |before: Option<u64>, now: Option<u64>| matches!((before, now), (Some(before), Some(now)) if now < before);
    facts.stream.last_generated < before.stream.last_generated
        || facts.begin() < before.begin()
        || facts.delivered < before.delivered
        || fewer(before.stream.entries_added, facts.stream.entries_added)
        || fewer(before.read, facts.read)
        || before.stream.entries_added.is_some() != facts.stream.entries_added.is_some()
}

#[cfg(test)]
#[path = "undelivered_tests.rs"]
mod tests;
