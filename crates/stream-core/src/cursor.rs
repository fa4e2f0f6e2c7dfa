//! [`StartFrom`]: where a group begins; and [`ClaimCursor`]: where the search for abandoned entries goes on.
//!
//! One `XAUTOCLAIM` looks at no more than ten times `COUNT` pending entries. A search that always starts at the beginning
//! never gets past a head of entries that are in use, however long the tail has been abandoned: the cursor must be carried
//! on until the server returns `0-0`, across pages in which nothing was claimed.

use std::borrow::Cow;

use crate::EntryId;

/// Where a group begins to read, decided once, when the group is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StartFrom {
    /// With the first entry that the stream still holds. The default: it skips nothing.
    #[default]
    Beginning,
    /// With the first entry added after the group was created. What is in the stream already is never delivered.
    End,
    /// With the first entry after this id.
    Id(EntryId),
    /// With the first entry whose id is of this time or later, in milliseconds since 1970. Right for ids that the server
    /// gave; where publishers choose ids, it is compared with their first number, whatever that means.
    Time(u64),
}

impl StartFrom {
    /// The id after which reading begins, as `XGROUP CREATE` takes it: the id itself is not delivered.
    ///
    /// ```
    /// use stream_core::StartFrom;
    /// assert_eq!(StartFrom::Beginning.create_id(), "0");
    /// assert_eq!(StartFrom::End.create_id(), "$");
    /// assert_eq!(StartFrom::Time(5).create_id(), "4-18446744073709551615");
    /// ```
    pub fn create_id(&self) -> Cow<'static, str> {
        match (self, self.after()) {
            (Self::Beginning, _) => Cow::Borrowed("0"),
            (_, None) => Cow::Borrowed("$"),
            (_, Some(id)) => Cow::Owned(id.to_string()),
        }
    }

    /// The id after which reading begins; `None` for [`StartFrom::End`], which only the server can resolve.
    pub fn after(&self) -> Option<EntryId> {
        match *self {
            Self::Beginning => Some(EntryId::ZERO),
            Self::End => None,
            Self::Id(id) => Some(id),
            Self::Time(ms) => Some(EntryId::new(ms, 0).predecessor().unwrap_or(EntryId::ZERO)),
        }
    }
}

/// Where the next `XAUTOCLAIM` starts.
///
/// Use [`position`](Self::position) for the call and [`advance`](Self::advance) with the cursor of its reply. After an
/// error do neither: the same page is asked for again, and no part of the pending list is passed over.
#[derive(Debug, Clone, Default)]
pub struct ClaimCursor {
    position: EntryId,
    /// Where the present pass ends at the latest.
    until: Option<EntryId>,
    pages: u64,
    passes: u64,
}

impl ClaimCursor {
    /// A cursor at the beginning of the pending list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the next call starts.
    pub fn position(&self) -> EntryId {
        self.position
    }

    /// Lets a pass that begins now end behind `last`, the greatest id that was delivered when it began.
    ///
    /// Under a steady backlog the pending list grows at its end as fast as it is searched, and a pass would never come
    /// back to the beginning, where a dead owner's entries are. What is delivered after the pass began cannot be idle for
    /// long enough, so nothing is missed. Without effect in the middle of a pass.
    pub fn end_at(&mut self, last: EntryId) {
        if self.position == EntryId::ZERO {
            self.until = (last > EntryId::ZERO).then_some(last);
        }
    }

    /// Takes the cursor of a reply; `true` when the pass over the pending list has ended with it.
    ///
    /// A cursor that does not move forward ends the pass as well, so that no server makes the search run in a circle.
    pub fn advance(&mut self, next: EntryId) -> bool {
        let ended = next <= self.position || self.until.is_some_and(|until| next > until);
        if ended {
            self.position = EntryId::ZERO;
            self.until = None;
            self.pages = 0;
            self.passes += 1;
        } else {
            self.position = next;
            self.pages += 1;
        }
        ended
    }

    /// Goes back to the beginning without counting a pass, for when the group was created anew.
    pub fn restart(&mut self) {
        self.position = EntryId::ZERO;
        self.until = None;
        self.pages = 0;
    }

    /// Passes over the whole pending list that have ended.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Pages of the pass that is under way.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_pass_ends_behind_what_had_been_delivered_when_it_began() {
        let id = |ms| EntryId::new(ms, 0);
        let mut cursor = ClaimCursor::new();
        cursor.end_at(id(50));
        assert!(!cursor.advance(id(40)));
        cursor.end_at(id(90));
        assert!(!cursor.advance(id(50)), "the end of a pass under way stays where it was");
        assert!(cursor.advance(id(60)));
        assert_eq!(cursor.position(), EntryId::ZERO);
        assert!(!cursor.advance(id(1_000)), "a pass without an end goes on to 0-0");
    }

    #[test]
    fn times_begin_with_their_first_entry() {
        assert_eq!(StartFrom::Time(7).after(), Some(EntryId::new(6, u64::MAX)));
        assert_eq!(StartFrom::Time(0).after(), Some(EntryId::ZERO));
        assert_eq!(StartFrom::Id(EntryId::new(3, 4)).create_id(), "3-4");
        assert_eq!(StartFrom::End.after(), None);
        assert_eq!(StartFrom::default().after(), Some(EntryId::ZERO));
    }

    #[test]
    fn a_cursor_that_stands_still_ends_the_pass() {
        let mut cursor = ClaimCursor::new();
        assert!(!cursor.advance(EntryId::new(5, 0)));
        assert_eq!((cursor.position(), cursor.pages()), (EntryId::new(5, 0), 1));
        assert!(cursor.advance(EntryId::new(5, 0)));
        assert_eq!((cursor.position(), cursor.pages(), cursor.passes()), (EntryId::ZERO, 0, 1));
        assert!(!cursor.advance(EntryId::new(5, 0)));
        cursor.restart();
        assert_eq!((cursor.position(), cursor.passes()), (EntryId::ZERO, 1));
    }

    /// A pending list as the server keeps it: which entries are idle.
    struct Pending(BTreeMap<EntryId, bool>);

    impl Pending {
        /// `XAUTOCLAIM` from `start`: looks at ten times `count` entries and takes up to `count` idle ones.
        fn claim(&mut self, start: EntryId, count: usize) -> (EntryId, Vec<EntryId>) {
            let mut claimed = Vec::new();
            for (examined, (id, idle)) in self.0.range_mut(start..).enumerate() {
                if examined == count * 10 || claimed.len() == count {
                    return (*id, claimed);
                }
                if std::mem::take(idle) {
                    claimed.push(*id);
                }
            }
            (EntryId::ZERO, claimed)
        }
    }

    #[test]
    fn an_idle_tail_behind_a_busy_head_is_reached() {
        let mut pending = Pending((1..=150).map(|ms| (EntryId::new(ms, 0), ms > 100)).collect());
        let mut cursor = ClaimCursor::new();
        let (next, claimed) = pending.claim(cursor.position(), 10);
        assert_eq!((next, claimed.len()), (EntryId::new(101, 0), 0));
        let mut taken = 0;
        let mut next = next;
        while !cursor.advance(next) {
            let (after, claimed) = pending.claim(cursor.position(), 10);
            taken += claimed.len();
            next = after;
            assert!(cursor.pages() < 10, "{cursor:?}");
        }
        assert_eq!(taken, 50);
    }

    proptest! {
        /// Calls fail at random; the search must still take every idle entry once, within the calls that one pass needs.
        #[test]
        fn every_idle_entry_is_claimed_within_one_pass(
            list in proptest::collection::btree_map((0_u64..500, 0_u64..4), any::<bool>(), 0..400),
            count in 1_usize..20,
            failures in proptest::collection::vec(any::<bool>(), 0..50),
        ) {
            let list: BTreeMap<EntryId, bool> =
                list.into_iter().map(|((ms, seq), idle)| (EntryId::new(ms + 1, seq), idle)).collect();
            let expected: Vec<EntryId> = list.iter().filter(|(_, idle)| **idle).map(|(id, _)| *id).collect();
            let bound = list.len() / (count * 10) + expected.len() / count + 1;
            let mut pending = Pending(list);
            let mut cursor = ClaimCursor::new();
            let mut failures = failures.into_iter();
            let (mut taken, mut calls) = (Vec::new(), 0);
            loop {
                let at = cursor.position();
                if failures.next() == Some(true) {
                    prop_assert_eq!(cursor.position(), at);
                    continue;
                }
                let (next, claimed) = pending.claim(at, count);
                calls += 1;
                taken.extend(claimed);
                prop_assert!(calls <= bound, "{} calls, at most {} expected", calls, bound);
                if cursor.advance(next) {
                    break;
                }
            }
            prop_assert_eq!(taken, expected);
            prop_assert_eq!((cursor.position(), cursor.passes()), (EntryId::ZERO, 1));
        }

        #[test]
        fn any_sequence_of_replies_keeps_moving(replies in proptest::collection::vec((0_u64..20, 0_u64..3), 0..200)) {
            let mut cursor = ClaimCursor::new();
            let mut ended = 0;
            for (ms, seq) in replies {
                let before = cursor.position();
                if cursor.advance(EntryId::new(ms, seq)) {
                    ended += 1;
                    prop_assert_eq!(cursor.position(), EntryId::ZERO);
                } else {
                    prop_assert!(cursor.position() > before);
                }
            }
            prop_assert_eq!(cursor.passes(), ended);
        }
    }
}
