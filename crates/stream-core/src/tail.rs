//! [`Tail`]: the position of a reader without a group, and whether the stream under it is still whole.
//!
//! Such a reader has nothing on the server that would miss an entry for it. So whatever was trimmed, deleted or recreated
//! before it was read is found by comparison: what was read against what the server says of the stream ([`StreamFacts`],
//! from `XINFO STREAM`), each time the reader asks. What cannot be known is said to be unknown, never to be nothing.

use crate::EntryId;

/// So many reads since the last comparison are told apart; more are taken together, which makes counts lower bounds.
const MOST_RUNS: usize = 1_024;

/// What a server says of a stream at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamFacts {
    /// Entries in it.
    pub length: u64,
    /// The greatest id it ever gave.
    pub last_generated: EntryId,
    /// The smallest id in it; `None` when it is empty.
    pub first: Option<EntryId>,
    /// Entries it ever had, where the server counts them (since Redis 7.0).
    pub entries_added: Option<u64>,
    /// The greatest id that `XDEL` took, where the server remembers it (since Redis 7.0). Trimming does not count.
    pub max_deleted: Option<EntryId>,
}

/// The stream is not what a reader would have gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TailBreak {
    /// Entries were trimmed or deleted before they were read.
    Gap {
        /// Up to this id all is well.
        after: EntryId,
        /// What is missing lies before this id, or at it where only `XDEL` knows.
        before: EntryId,
        /// How many are missing, at least; `None` when the server cannot tell, and then perhaps none is.
        missed: Option<u64>,
    },
    /// The stream is another one: deleted, or deleted and made anew.
    Reset {
        /// The greatest id known of the old one.
        last: EntryId,
        /// The greatest id of the new one; `None` while there is none.
        now: Option<EntryId>,
        /// Whether all of the new one was read already, because its ids went on growing.
        read_already: bool,
    },
}

/// Entries that one reply brought, which were neighbours when it was made.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: EntryId,
    last: EntryId,
    count: u64,
}

/// Where a reader stands, and what it knows of its stream.
///
/// ```
/// use stream_core::{EntryId, StreamFacts, Tail, TailBreak};
/// let id = |ms| EntryId::new(ms, 0);
/// let facts = |first, length| StreamFacts {
///     length, last_generated: id(100), first: Some(id(first)), entries_added: Some(100), max_deleted: None,
/// };
/// let mut tail = Tail::new(EntryId::ZERO);
/// assert_eq!(tail.compare(Some(&facts(1, 100))), None);
/// tail.read(id(1), id(10), 10, false);
/// // Paused at 10-0, and trimmed up to 50-0 meanwhile.
/// let gap = TailBreak::Gap { after: id(10), before: id(50), missed: Some(39) };
/// assert_eq!(tail.compare(Some(&facts(50, 51))), Some(gap));
/// assert_eq!(tail.compare(Some(&facts(50, 51))), None);
/// ```
#[derive(Debug, Clone)]
pub struct Tail {
    cursor: EntryId,
    /// The greatest id that is known of the stream; `None` as long as it was never seen.
    last: Option<EntryId>,
    added: Option<u64>,
    /// Entries ever added up to the cursor.
    passed: Option<u64>,
    /// Up to here everything was judged.
    judged: EntryId,
    /// Up to here nothing was trimmed before it was read, as far as it has not been told.
    clean: EntryId,
    /// What was read since.
    runs: Vec<Run>,
    /// The entry that has to come next, if one is known.
    next: Option<EntryId>,
    /// Whether there was an entry at or before the cursor, so that a beginning behind it is a sign of trimming.
    anchored: bool,
    /// Whether the reader has not stood by the stream all the time since the last comparison.
    absent: bool,
}

impl Tail {
    /// A reader that goes on after `cursor`.
    pub fn new(cursor: EntryId) -> Self {
        Self {
            cursor,
            last: None,
            added: None,
            passed: None,
            judged: cursor,
            clean: cursor,
            runs: Vec::new(),
            next: None,
            anchored: false,
            absent: false,
        }
    }

    /// A reader that comes back and goes on after `cursor`, the last id that it had read or the last there was: a stream
    /// that never gave that id is another one.
    pub fn resumed(cursor: EntryId) -> Self {
        Self { last: Some(cursor), ..Self::new(cursor) }
    }

    /// The id after which the next read begins.
    pub fn cursor(&self) -> EntryId {
        self.cursor
    }

    /// Whether a comparison could find anything: a stream that was never seen cannot have changed.
    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// The reader did not stand by the stream: its connection was gone, or it had no room for more while there was more.
    pub fn was_absent(&mut self) {
        self.absent = true;
    }

    /// `count` entries were read, from `first` to `last`; `more` when they belong to the same reply as the ones before.
    /// Says so when the entry that had to come first is missing, where no later comparison would find it.
    pub fn read(&mut self, first: EntryId, last: EntryId, count: u64, more: bool) -> Option<TailBreak> {
        let next = self.next.take();
        let expected = next.or(self.last).filter(|expected| *expected > self.cursor);
        let after = self.cursor;
        self.cursor = last;
        self.anchored = true;
        self.last = Some(self.last.map_or(last, |known| known.max(last)));
        self.passed = self.passed.map(|passed| passed.saturating_add(count));
        let full = self.runs.len() >= MOST_RUNS;
        match self.runs.last_mut() {
            Some(run) if more || full => {
                run.last = last;
                run.count += count;
            }
            // Nothing lies between what was clean and the entry that was known to come next.
            _ if more || next == Some(first) => self.clean = last,
            _ => self.runs.push(Run { first, last, count }),
        }
        if self.passed.is_none() && !more && expected.is_some_and(|expected| expected < first) {
            self.settled(None);
            return Some(TailBreak::Gap { after, before: first, missed: None });
        }
        None
    }

    /// Compares with what the server says now, `None` when it says that there is no stream. No read may be under way.
    ///
    /// The first comparison is what later ones are held against, unless the reader has [come back](Self::resumed). A
    /// [`TailBreak::Gap`] needs no answer: the next read goes on behind it. After a [`TailBreak::Reset`] say where to go on
    /// with [`restart`](Self::restart).
    pub fn compare(&mut self, facts: Option<&StreamFacts>) -> Option<TailBreak> {
        let Some(facts) = facts else {
            if self.cursor == EntryId::ZERO {
                // Whatever is added from now on is to be read.
                self.passed = Some(0);
            }
            // A stream that never had an entry is none that anybody could miss.
            let last = self.last.filter(|last| *last > EntryId::ZERO);
            self.last = last;
            return last.map(|last| TailBreak::Reset { last, now: None, read_already: false });
        };
        if let Some(last) = self.last.filter(|last| self.is_another(facts, *last)) {
            let read_already = facts.last_generated >= self.cursor
                && facts
                    .first
                    .is_some_and(|first| first > self.cursor || self.runs.iter().any(|run| run.first == first));
            return Some(TailBreak::Reset { last, now: Some(facts.last_generated), read_already });
        }
        let found = match facts.entries_added {
            Some(added) if self.passed.is_some() => self.by_count(facts, added),
            _ => self.by_id(facts),
        };
        self.last = Some(self.last.map_or(facts.last_generated, |known| known.max(facts.last_generated)));
        self.added = facts.entries_added.or(self.added);
        found
    }

    /// Goes on after `cursor`, as in a stream that is seen for the first time; `facts` are those that were compared.
    pub fn restart(&mut self, cursor: EntryId, facts: Option<&StreamFacts>) {
        *self = Self::new(cursor);
        self.compare(facts);
    }

    fn is_another(&self, facts: &StreamFacts, last: EntryId) -> bool {
        let fewer = matches!((facts.entries_added, self.added), (Some(now), Some(before)) if now < before);
        facts.last_generated < last || fewer
    }

    /// Whatever was added and was neither read nor is still to be read is missing.
    fn by_count(&mut self, facts: &StreamFacts, added: u64) -> Option<TailBreak> {
        let passed = self.passed?;
        let untouched = facts.max_deleted.is_none_or(|deleted| deleted <= self.judged);
        if untouched && facts.first.is_some_and(|first| first <= self.clean) {
            // Trimming takes the oldest first, and has not come past what was clean.
            self.settled(facts.first);
            return None;
        }
        let (least, most) = self.unread(facts)?;
        let missed = added.saturating_sub(passed.saturating_add(most));
        let after = if untouched { self.clean } else { self.judged };
        let before = facts.first.filter(|first| untouched && *first > after).unwrap_or(facts.last_generated);
        self.passed = Some(if least == most { added.saturating_sub(least) } else { passed.saturating_add(missed) });
        if least == most || added <= passed.saturating_add(least) {
            self.settled(facts.first);
        }
        // Otherwise more may be missing than is certain now, which a later comparison will tell.
        (missed > 0).then_some(TailBreak::Gap { after, before, missed: Some(missed) })
    }

    /// How many entries of the stream are still to be read, at least and at most; `None` when it cannot be told.
    fn unread(&self, facts: &StreamFacts) -> Option<(u64, u64)> {
        let Some(first) = facts.first.filter(|_| facts.last_generated != self.cursor) else { return Some((0, 0)) };
        if first > self.cursor {
            return Some((facts.length, facts.length));
        }
        if first <= self.clean || facts.last_generated < self.cursor || facts.max_deleted.is_some_and(|id| id >= first)
        {
            return None;
        }
        let (mut least, mut most) = (0, 0);
        for run in &self.runs {
            if run.first >= first {
                (least, most) = (least + run.count, most + run.count);
            } else if run.last >= first {
                (least, most) = (least + 1, most + run.count.saturating_sub(1).max(1));
            }
        }
        Some((facts.length.saturating_sub(most), facts.length.saturating_sub(least)))
    }

    /// Without counts: an entry that was known to come next and is gone, or a beginning that has moved past the cursor
    /// while nobody was looking.
    fn by_id(&mut self, facts: &StreamFacts) -> Option<TailBreak> {
        let before_was_known = self.last;
        let absent = self.absent && self.anchored;
        let caught_up = facts.last_generated == self.cursor;
        let first = facts.first.filter(|first| *first > self.cursor);
        let expected = self.next.or(before_was_known.filter(|last| *last > self.cursor));
        let known_next = self.next;
        // From here on counting is possible, where the server counts at all.
        self.passed = match facts.entries_added {
            Some(added) if caught_up => Some(added),
            Some(added) if first.is_some() => Some(added.saturating_sub(facts.length)),
            _ => None,
        };
        let after = self.cursor;
        self.settled(facts.first);
        before_was_known?;
        let Some(first) = first else {
            // Nothing is left to read, although something was.
            let gone = known_next.is_some_and(|next| next > after) && facts.first.is_none();
            return gone.then_some(TailBreak::Gap { after, before: facts.last_generated, missed: None });
        };
        let moved = match known_next {
            Some(next) => first > next,
            None => absent || expected.is_some(),
        };
        moved.then_some(TailBreak::Gap { after, before: first, missed: None })
    }

    /// All that was read so far has been judged.
    fn settled(&mut self, first: Option<EntryId>) {
        (self.judged, self.clean) = (self.cursor, self.cursor);
        self.runs.clear();
        self.next = first.filter(|first| *first > self.cursor);
        self.anchored = first.is_some() && self.next.is_none();
        self.absent = false;
    }
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;
