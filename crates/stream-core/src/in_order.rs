//! [`InOrder`]: up to which id everything was handled, when handlers finish in another order than they start.

use std::collections::VecDeque;

use crate::EntryId;

/// Entries in the order in which they were read, and the last of them before which nothing is unfinished.
///
/// ```
/// use stream_core::{EntryId, InOrder};
/// let mut order = InOrder::new(EntryId::ZERO);
/// let (first, second) = (order.push(EntryId::new(1, 0)), order.push(EntryId::new(2, 0)));
/// order.finish(second);
/// assert_eq!(order.position(), EntryId::ZERO);
/// order.finish(first);
/// assert_eq!(order.position(), EntryId::new(2, 0));
/// ```
///
/// It takes memory for what is unfinished and for nothing else, however much is finished behind it.
#[derive(Debug, Clone)]
pub struct InOrder {
    /// The last that was taken up.
    last: EntryId,
    /// The number of the next.
    next: u64,
    /// The unfinished ones: their numbers, which ascend, and what was taken up before each.
    unfinished: VecDeque<(u64, EntryId)>,
}

impl InOrder {
    /// Everything up to `position` is handled.
    pub fn new(position: EntryId) -> Self {
        Self { last: position, next: 0, unfinished: VecDeque::new() }
    }

    /// Takes up the entry that was read next; returns its number for [`finish`](Self::finish).
    pub fn push(&mut self, id: EntryId) -> u64 {
        let number = self.next;
        self.next += 1;
        self.unfinished.push_back((number, std::mem::replace(&mut self.last, id)));
        number
    }

    /// The entry with this number is finished. A second time changes nothing.
    pub fn finish(&mut self, number: u64) {
        match self.unfinished.front() {
            Some((first, _)) if *first == number => {
                self.unfinished.pop_front();
            }
            _ => {
                if let Ok(place) = self.unfinished.binary_search_by_key(&number, |(number, _)| *number) {
                    self.unfinished.remove(place);
                }
            }
        }
    }

    /// What is read from here on comes after `position`, whatever was read before.
    pub fn restart(&mut self, position: EntryId) {
        self.last = position;
    }

    /// The last id up to which everything is finished.
    pub fn position(&self) -> EntryId {
        self.unfinished.front().map_or(self.last, |(_, before)| *before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_restart_counts_once_everything_before_it_is_finished() {
        let mut order = InOrder::new(EntryId::new(9, 0));
        let old = order.push(EntryId::new(10, 0));
        order.restart(EntryId::ZERO);
        assert_eq!(order.position(), EntryId::new(9, 0));
        order.finish(old);
        order.finish(old);
        assert_eq!(order.position(), EntryId::ZERO);
    }

    #[test]
    fn one_that_hangs_takes_no_memory_for_those_behind_it() {
        let mut order = InOrder::new(EntryId::ZERO);
        let hangs = order.push(EntryId::new(1, 0));
        for n in 2..100_000 {
            let number = order.push(EntryId::new(n, 0));
            order.finish(number);
        }
        assert!(order.unfinished.capacity() < 100, "{}", order.unfinished.capacity());
        assert_eq!(order.position(), EntryId::ZERO);
        order.finish(hangs);
        assert_eq!(order.position(), EntryId::new(99_999, 0));
    }

    proptest! {
        #[test]
        fn the_position_is_the_finished_prefix(order_of_ends in Just((0_usize..40).collect::<Vec<_>>()).prop_shuffle()) {
            let mut order = InOrder::new(EntryId::ZERO);
            let numbers: Vec<u64> = (0..40).map(|n| order.push(EntryId::new(n + 1, 0))).collect();
            let mut finished = [false; 40];
            for end in order_of_ends {
                order.finish(numbers[end]);
                finished[end] = true;
                let prefix = finished.iter().take_while(|finished| **finished).count() as u64;
                prop_assert_eq!(order.position(), EntryId::new(prefix, 0));
            }
        }
    }
}
