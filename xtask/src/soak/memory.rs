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
    /// Over what `process` wrote down between two times; `None` where a quarter has nothing.
    pub(crate) fn of(history: &History, process: u32, from: u64, until: u64) -> Option<Self> {
        let mut began = None;
        let mut quarters: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for event in history.events() {
            let kib = match event.what {
                What::Resident { process: who, kib } if who == process => kib,
                _ => continue,
            };
            let old = event.at >= *began.get_or_insert(event.at) + micros(YOUNG);
            if old && (from..until).contains(&event.at) {
                let (sum, count) = quarters.entry((event.at - from) * 4 / (until - from)).or_default();
                (*sum, *count) = (*sum + kib, *count + 1);
            }
        }
        let mean = |quarter: u64| quarters.get(&quarter).map(|(sum, count)| sum / count);
        Some(Self { second_quarter: mean(1)?, last_quarter: mean(3)? })
    }

    /// At most a tenth more than before.
    pub(crate) fn is_flat(self) -> bool {
        self.last_quarter * 10 <= self.second_quarter * 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One sample a second over 80 seconds, of the size that `of` says.
    fn samples(of: impl Fn(u64) -> u64) -> Option<Memory> {
        let mut history = History::default();
        for second in 0..80 {
            history.add(second * 1_000_000, What::Resident { process: 1, kib: of(second) });
            history.add(second * 1_000_000, What::Resident { process: 2, kib: 9 * second });
        }
        Memory::of(&history, 1, 0, 80_000_000)
    }

    #[test]
    fn the_last_quarter_is_held_against_the_second() {
        let flat = samples(|second| if second < 20 { 0 } else { 1_000 + second % 2 }).unwrap();
        assert_eq!(flat, Memory { second_quarter: 1_000, last_quarter: 1_000 });
        assert!(flat.is_flat());
        assert!(samples(|second| if second < 60 { 1_000 } else { 1_099 }).unwrap().is_flat());
        assert!(!samples(|second| if second < 60 { 1_000 } else { 1_101 }).unwrap().is_flat());
        assert!(samples(|second| 2_000 - second).unwrap().is_flat(), "less is no leak");
    }

    #[test]
    fn a_quarter_without_samples_tells_nothing() {
        let mut history = History::default();
        history.add(0, What::Resident { process: 1, kib: 1 });
        history.add(70_000_000, What::Resident { process: 1, kib: 1 });
        assert_eq!(Memory::of(&history, 1, 0, 80_000_000), None);
    }
}
