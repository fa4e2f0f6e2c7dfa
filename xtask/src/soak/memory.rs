//! Whether memory stays flat: the last quarter of a soak against the second.

use std::collections::BTreeMap;

use stream_testkit::history::{History, What};

use crate::fleet::journal::micros;

/// What a process holds when it is so young tells of its start and not of its work.
const YOUNG: std::time::Duration = std::time::Duration::from_secs(10);

/// Mean resident memory in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) second_quarter: u64,
    pub(crate) last_quarter: u64,
}

impl Memory {
    /// Of each process that lived through all between two times: at least of the one that no fault ends. What began later
    /// still grows into its work.
    pub(crate) fn of(history: &History, from: u64, until: u64) -> BTreeMap<u32, Self> {
        let mut began = BTreeMap::new();
        let mut quarters: BTreeMap<(u32, u64), (u64, u64)> = BTreeMap::new();
        for event in history.events() {
            let What::Resident { process, kib } = event.what else { continue };
            let old = event.at >= *began.entry(process).or_insert(event.at) + micros(YOUNG);
            if old && (from..until).contains(&event.at) {
                let quarter = (event.at - from) * 4 / (until - from);
                let (sum, count) = quarters.entry((process, quarter)).or_default();
                (*sum, *count) = (*sum + kib, *count + 1);
            }
        }
        let mean = |process: u32, quarter: u64| quarters.get(&(process, quarter)).map(|(sum, count)| sum / count);
        let through = |process: u32| {
            mean(process, 0).and(mean(process, 2))?;
            Some(Self { second_quarter: mean(process, 1)?, last_quarter: mean(process, 3)? })
        };
        began.keys().filter_map(|process| Some((*process, through(*process)?))).collect()
    }

    /// At most a tenth more than before.
    pub(crate) fn is_flat(self) -> bool {
        self.last_quarter * 10 <= self.second_quarter * 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample a second over 80 seconds, of the size that `of` says, beside a process that grows and does not live long.
    fn samples(of: impl Fn(u64) -> u64) -> Memory {
        let mut history = History::default();
        for second in 0..80 {
            history.add(second * 1_000_000, What::Resident { process: 1, kib: of(second) });
            if second < 60 {
                history.add(second * 1_000_000, What::Resident { process: 2, kib: 9 * second });
            }
        }
        let found = Memory::of(&history, 0, 80_000_000);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&1]);
        found[&1]
    }

    #[test]
    fn the_last_quarter_is_held_against_the_second() {
        let flat = samples(|second| if second < 20 { 0 } else { 1_000 + second % 2 });
        assert_eq!(flat, Memory { second_quarter: 1_000, last_quarter: 1_000 });
        assert!(flat.is_flat());
        assert!(samples(|second| if second < 60 { 1_000 } else { 1_099 }).is_flat());
        assert!(!samples(|second| if second < 60 { 1_000 } else { 1_101 }).is_flat());
        assert!(samples(|second| 2_000 - second).is_flat(), "less is no leak");
    }

    #[test]
    fn a_quarter_without_samples_tells_nothing() {
        let mut history = History::default();
        history.add(0, What::Resident { process: 1, kib: 1 });
        history.add(70_000_000, What::Resident { process: 1, kib: 1 });
        assert!(Memory::of(&history, 0, 80_000_000).is_empty());
    }
}
