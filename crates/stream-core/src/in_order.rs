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
#[derive(Debug, Clone)]
pub struct InOrder {
    position: EntryId,
    /// The number of the first that is held.
    first: u64,
    held: VecDeque<(EntryId, bool)>,
}

impl InOrder {
    /// Everything up to `position` is handled.
    pub fn new(position: EntryId) -> Self {
        Self { position, first: 0, held: VecDeque::new() }
    }

    /// Takes up the entry that was read next; returns its number for [`finish`](Self::finish).
    pub fn push(&mut self, id: EntryId) -> u64 {
        self.held.push_back((id, false));
        self.first + self.held.len() as u64 - 1
    }

    /// The entry with this number is finished. A second time changes nothing.
    pub fn finish(&mut self, number: u64) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some((_, finished)) = place.and_then(|place| self.held.get_mut(place)) {
            *finished = true;
        }
        while let Some((id, true)) = self.held.front().copied() {
            self.held.pop_front();
            self.first += 1;
            self.position = id;
        }
    }

    /// What is read from here on comes after `position`, whatever was read before.
    pub fn restart(&mut self, position: EntryId) {
        let number = self.push(position);
        self.finish(number);
    }

    /// The last id up to which everything is finished.
    pub fn position(&self) -> EntryId {
        self.position
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
