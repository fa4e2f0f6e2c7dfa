//! [`Finished`]: the ids that this process has finished, in bounded memory.
//!
//! When a group is lost and created anew at an older place, its entries are delivered again. What this process remembers
//! to have finished is acknowledged then without a second run. It must never claim to know an id that was not given to it;
//! forgetting one costs a second run, which at-least-once allows.

use std::collections::VecDeque;

use crate::EntryId;

/// How many ids are remembered by default: 1 MiB of memory.
pub const DEFAULT_FINISHED_CAPACITY: usize = 65_536;

/// Ids that arrive out of order are put in place directly when fewer than this many greater ones are known.
const NEAR: usize = 64;
/// Ids that arrive further out of order are collected, and put in place when there are this many.
const LATE: usize = 256;

/// A bounded set of ids. When it is full, the smallest ids are forgotten first.
///
/// It takes 16 bytes an id. Ids that come in ascending order, which is the rule, cost an append.
///
/// ```
/// use stream_core::{EntryId, Finished};
/// let mut finished = Finished::new(2);
/// finished.extend(&[EntryId::new(1, 0), EntryId::new(2, 0), EntryId::new(3, 0)]);
/// assert!(!finished.contains(EntryId::new(1, 0)));
/// assert!(finished.contains(EntryId::new(3, 0)));
/// ```
#[derive(Clone)]
pub struct Finished {
    capacity: usize,
    /// Ascending, without duplicates.
    ids: VecDeque<EntryId>,
    /// Ascending, without duplicates, none of them in `ids`; shorter than [`LATE`].
    late: Vec<EntryId>,
}

impl Default for Finished {
    fn default() -> Self {
        Self::new(DEFAULT_FINISHED_CAPACITY)
    }
}

impl Finished {
    /// A set of at most `capacity` ids. With 0 nothing is ever remembered. Memory is taken as it is needed.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ids: VecDeque::new(), late: Vec::new() }
    }

    /// Adds an id.
    pub fn insert(&mut self, id: EntryId) {
        if self.ids.back().is_none_or(|last| *last < id) {
            self.ids.push_back(id);
        } else {
            self.insert_late(id);
        }
        self.forget_excess();
    }

    /// Adds ids. In strictly ascending order and beyond all known ones they are appended at once.
    pub fn extend(&mut self, ids: &[EntryId]) {
        let ascending = ids.is_sorted_by(|a, b| a < b);
        let beyond = ids.first().is_some_and(|first| self.ids.back().is_none_or(|last| last < first));
        if !(ascending && beyond) {
            for id in ids {
                self.insert(*id);
            }
            return;
        }
        let ids = &ids[ids.len().saturating_sub(self.capacity)..];
        self.shrink_to(self.capacity - ids.len());
        self.ids.extend(ids.iter().copied());
    }

    /// Whether the id was added and not forgotten since.
    pub fn contains(&self, id: EntryId) -> bool {
        self.ids.binary_search(&id).is_ok() || self.late.binary_search(&id).is_ok()
    }

    /// Forgets all ids below `floor`, which can never be delivered again.
    pub fn forget_below(&mut self, floor: EntryId) {
        self.ids.drain(..self.ids.partition_point(|id| *id < floor));
        self.late.drain(..self.late.partition_point(|id| *id < floor));
    }

    /// Forgets all ids above `last`, which may be given to other entries: the server has forgotten that it gave them.
    pub fn forget_above(&mut self, last: EntryId) {
        self.put_in_place();
        self.ids.truncate(self.ids.partition_point(|id| *id <= last));
    }

    /// Forgets everything and gives the memory back: for when the stream itself is a new one, whose ids mean other entries.
    pub fn clear(&mut self) {
        self.ids = VecDeque::new();
        self.late = Vec::new();
    }

    /// How many ids are remembered.
    pub fn len(&self) -> usize {
        self.ids.len() + self.late.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most ids that are remembered.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn insert_late(&mut self, id: EntryId) {
        // What is in `late` has more than `NEAR` greater ids in `ids`, now as when it came: an id near the end is not there.
        let tail = self.ids.len().saturating_sub(NEAR);
        if tail == 0 || self.ids[tail - 1] < id {
            let greater = self.ids.iter().rev().take_while(|known| **known >= id).count();
            let place = self.ids.len() - greater;
            if self.ids.get(place) != Some(&id) {
                self.ids.insert(place, id);
            }
            return;
        }
        let (Err(_), Err(late_place)) = (self.ids.binary_search(&id), self.late.binary_search(&id)) else {
            return;
        };
        self.late.insert(late_place, id);
        if self.late.len() >= LATE {
            self.put_in_place();
        }
    }

    fn put_in_place(&mut self) {
        self.ids.extend(self.late.drain(..));
        // Two ascending runs: a stable sort merges them in one go.
        self.ids.make_contiguous().sort();
    }

    fn forget_excess(&mut self) {
        if self.len() > self.capacity {
            self.shrink_to(self.capacity);
        }
    }

    /// Forgets the smallest ids until no more than `most` are left.
    fn shrink_to(&mut self, most: usize) {
        let mut excess = self.len().saturating_sub(most);
        while excess > 0 && !self.late.is_empty() {
            if self.ids.front().is_some_and(|id| *id < self.late[0]) {
                self.ids.pop_front();
            } else {
                self.late.remove(0);
            }
            excess -= 1;
        }
        if excess == 1 {
            self.ids.pop_front();
        } else {
            self.ids.drain(..excess);
        }
    }
}

impl std::fmt::Debug for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Finished").field("len", &self.len()).field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn id(number: u64) -> EntryId {
        EntryId::new(number / 4, number % 4)
    }

    #[test]
    fn nothing_is_remembered_without_room() {
        let mut finished = Finished::new(0);
        finished.insert(id(1));
        finished.extend(&[id(2), id(3)]);
        assert!(finished.is_empty() && !finished.contains(id(3)));
    }

    #[test]
    fn more_ids_than_fit_leave_the_greatest() {
        let mut finished = Finished::new(3);
        finished.extend(&(0..10).map(id).collect::<Vec<_>>());
        assert_eq!(finished.len(), 3);
        assert!((7..10).all(|number| finished.contains(id(number))));
    }

    #[test]
    fn ids_take_sixteen_bytes_each() {
        let mut finished = Finished::default();
        for number in 0..200_000 {
            finished.insert(id(number));
        }
        assert_eq!(finished.len(), DEFAULT_FINISHED_CAPACITY);
        assert!(finished.ids.capacity() * size_of::<EntryId>() <= 2 * 16 * DEFAULT_FINISHED_CAPACITY);
    }

    #[test]
    fn ids_far_out_of_order_are_put_in_place_when_there_are_many() {
        let mut finished = Finished::default();
        finished.extend(&(10_000..20_000).map(id).collect::<Vec<_>>());
        for number in (0..1000).rev() {
            finished.insert(id(number));
            assert!(finished.late.len() < LATE);
        }
        assert_eq!(finished.len(), 11_000);
        assert!((0..1000).chain(10_000..20_000).all(|number| finished.contains(id(number))));
        assert!(!finished.contains(id(1000)));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Extend(Vec<u64>),
        /// Ids that ascend from the greatest known one.
        Ascend(u64, u64),
        ForgetBelow(u64),
        ForgetAbove(u64),
        Clear,
    }

    fn steps(numbers: u64) -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            20 => (0..numbers).prop_map(Step::Insert),
            4 => proptest::collection::vec(0..numbers, 0..40).prop_map(Step::Extend),
            6 => (0..4_u64, 0..100_u64).prop_map(|(gap, count)| Step::Ascend(gap, count)),
            2 => (0..numbers).prop_map(Step::ForgetBelow),
            2 => (0..numbers).prop_map(Step::ForgetAbove),
            1 => Just(Step::Clear),
        ];
        proptest::collection::vec(step, 0..200)
    }

    fn check(capacity: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
        let mut finished = Finished::new(capacity);
        let mut model = BTreeSet::new();
        let count = steps.len();
        for (at, step) in steps.into_iter().enumerate() {
            let added: Vec<EntryId> = match step {
                Step::Insert(number) => {
                    finished.insert(id(number));
                    vec![id(number)]
                }
                Step::Extend(numbers) => numbers.into_iter().map(id).collect(),
                Step::Ascend(gap, count) => {
                    let mut last = model.last().copied().unwrap_or(id(0));
                    (0..count * (gap + 1)).map(|_| (last = last.successor().unwrap(), last).1).collect()
                }
                Step::ForgetBelow(number) => {
                    finished.forget_below(id(number));
                    model = model.split_off(&id(number));
                    vec![]
                }
                Step::ForgetAbove(number) => {
                    finished.forget_above(id(number));
                    model.retain(|known| *known <= id(number));
                    vec![]
                }
                Step::Clear => {
                    finished.clear();
                    model.clear();
                    vec![]
                }
            };
            finished.extend(&added);
            for id in added {
                model.insert(id);
                while model.len() > capacity {
                    model.pop_first();
                }
            }
            prop_assert_eq!(finished.len(), model.len());
            if at % 8 == 0 || at + 1 == count {
                prop_assert!(model.iter().all(|id| finished.contains(*id)));
            }
            if let (Some(first), Some(last)) = (model.first(), model.last()) {
                for neighbour in [first.predecessor(), last.successor()].into_iter().flatten() {
                    prop_assert!(!finished.contains(neighbour));
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_is_the_set_of_the_greatest_ids(capacity in 0_usize..300, steps in steps(400)) {
            check(capacity, steps)?;
        }

        #[test]
        fn it_is_the_set_of_the_greatest_ids_over_a_wide_range(capacity in 500_usize..2000, steps in steps(100_000)) {
            check(capacity, steps)?;
        }
    }
}
