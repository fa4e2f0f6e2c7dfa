//! [`Lanes`]: items with the same key one at a time and in the order of their arrival.
//!
//! A key whose item is running has a lane; items that arrive meanwhile wait in it. A lane is gone as soon as nothing of
//! its key runs or waits, so memory follows what is held and not how many keys there ever were.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Items waiting behind a running one of the same key.
///
/// ```
/// use stream_core::Lanes;
/// let mut lanes: Lanes<&str> = Lanes::new();
/// assert_eq!(lanes.push(7, "first"), Some("first")); // may start now
/// assert_eq!(lanes.push(7, "second"), None); // waits for the first
/// assert_eq!(lanes.finish(&7), Some("second")); // may start now
/// assert_eq!(lanes.finish(&7), None); // the lane is free
/// ```
#[derive(Debug, Clone)]
pub struct Lanes<T, K = u64> {
    /// A lane for each key of which an item runs, with the items that wait behind it and the order of their arrival.
    by_key: HashMap<K, VecDeque<(u64, T)>>,
    held: usize,
    arrivals: u64,
}

impl<T, K> Default for Lanes<T, K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), held: 0, arrivals: 0 }
    }
}

impl<T, K: Eq + Hash> Lanes<T, K> {
    /// No lanes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an item: returned, it may start now and occupies its lane until [`finish`](Self::finish); else it waits.
    #[must_use = "an item that is returned may start now; dropped, its lane stays occupied"]
    pub fn push(&mut self, key: K, item: T) -> Option<T> {
        use std::collections::hash_map::Entry;
        match self.by_key.entry(key) {
            Entry::Vacant(lane) => {
                lane.insert(VecDeque::new());
                Some(item)
            }
            Entry::Occupied(mut lane) => {
                lane.get_mut().push_back((self.arrivals, item));
                self.arrivals += 1;
                self.held += 1;
                None
            }
        }
    }

    /// The running item of `key` has ended: returns the lane's next item, which may start now, or frees the lane.
    #[must_use = "an item that is returned may start now; dropped, its lane stays occupied"]
    pub fn finish(&mut self, key: &K) -> Option<T> {
        if let Some((_, item)) = self.by_key.get_mut(key)?.pop_front() {
            self.held -= 1;
            return Some(item);
        }
        self.by_key.remove(key);
        if self.by_key.is_empty() {
            // The table keeps the size of its fullest moment otherwise.
            self.by_key.shrink_to(64);
        }
        None
    }

    /// Whether an item of `key` runs, so that another would have to wait.
    pub fn is_occupied(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// Items that wait. Those that run are not among them.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Keys of which an item runs.
    pub fn occupied(&self) -> usize {
        self.by_key.len()
    }

    /// The items that wait, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.by_key.values_mut().flatten().map(|(_, item)| item)
    }

    /// Takes out all items that wait, in the order of their arrival, to be handed back. The lanes stay occupied by what
    /// runs.
    pub fn drain(&mut self) -> Vec<T> {
        let mut waiting: Vec<(u64, T)> = self.by_key.values_mut().flat_map(std::mem::take).collect();
        waiting.sort_unstable_by_key(|(arrival, _)| *arrival);
        self.held = 0;
        waiting.into_iter().map(|(_, item)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn other_keys_do_not_wait() {
        let mut lanes: Lanes<u32, &str> = Lanes::new();
        assert_eq!(lanes.push("a", 1), Some(1));
        assert_eq!(lanes.push("a", 2), None);
        assert_eq!(lanes.push("b", 3), Some(3));
        assert_eq!((lanes.held(), lanes.occupied()), (1, 2));
        assert!(lanes.is_occupied(&"b") && !lanes.is_occupied(&"c"));
    }

    #[test]
    fn what_waits_can_be_reached_and_what_runs_is_not_among_it() {
        let mut lanes: Lanes<u32> = Lanes::new();
        for item in [1, 2, 3, 4] {
            let _ = lanes.push(u64::from(item % 2), item);
        }
        lanes.iter_mut().for_each(|item| *item *= 10);
        assert_eq!(lanes.drain(), [30, 40]);
    }

    #[test]
    fn a_key_that_does_not_run_has_nothing_to_finish() {
        let mut lanes: Lanes<u32> = Lanes::new();
        assert_eq!(lanes.finish(&1), None);
        assert_eq!(lanes.occupied(), 0);
    }

    #[test]
    fn memory_does_not_follow_the_number_of_keys() {
        let mut lanes: Lanes<u64> = Lanes::new();
        for key in 0..100_000 {
            assert_eq!(lanes.push(key, key), Some(key));
            assert_eq!(lanes.finish(&key), None);
        }
        assert!(lanes.by_key.capacity() <= 128);
        for key in 0..100_000 {
            assert_eq!(lanes.push(key, key), Some(key));
        }
        for key in 0..100_000 {
            assert_eq!(lanes.finish(&key), None);
        }
        assert!(lanes.by_key.capacity() <= 128);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8),
        Finish(u8),
        Drain,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            10 => (0_u8..6).prop_map(Step::Push),
            9 => (0_u8..6).prop_map(Step::Finish),
            1 => Just(Step::Drain),
        ];
        proptest::collection::vec(step, 0..300)
    }

    proptest! {
        /// Against a plain list of what waits: per key in order, never two at once, and nothing is lost or doubled.
        #[test]
        fn lanes_behave_like_a_plain_list(steps in steps()) {
            let mut lanes: Lanes<(u8, usize), u8> = Lanes::new();
            let mut running: BTreeMap<u8, usize> = BTreeMap::new();
            let mut waiting: Vec<(u8, usize)> = Vec::new();
            let mut seen = 0;
            let mut pushed = 0;
            for step in steps {
                match step {
                    Step::Push(key) => {
                        let item = (key, pushed);
                        pushed += 1;
                        if let Some(started) = lanes.push(key, item) {
                            prop_assert_eq!(started, item);
                            prop_assert_eq!(running.insert(key, item.1), None);
                        } else {
                            prop_assert!(running.contains_key(&key));
                            waiting.push(item);
                        }
                    }
                    Step::Finish(key) => {
                        let ran = running.remove(&key);
                        seen += usize::from(ran.is_some());
                        let next = waiting.iter().position(|item| item.0 == key).filter(|_| ran.is_some());
                        let expected = next.map(|at| waiting.remove(at));
                        prop_assert_eq!(lanes.finish(&key), expected);
                        running.extend(expected);
                    }
                    Step::Drain => {
                        let drained = lanes.drain();
                        seen += drained.len();
                        prop_assert_eq!(drained, std::mem::take(&mut waiting));
                    }
                }
                prop_assert_eq!(lanes.held(), waiting.len());
                prop_assert_eq!(lanes.occupied(), running.len());
                prop_assert_eq!(seen + running.len() + waiting.len(), pushed);
            }
        }
    }
}
