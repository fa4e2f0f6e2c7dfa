//! The ledger, the lanes and the set of finished ids: any sequence of operations, against the simplest of models.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use stream_core::{ClaimCursor, EntryId, Finished, InOrder, Lanes, Ledger, Slot, Stage};

#[derive(Debug, Arbitrary)]
enum Step {
    Insert(u8),
    Remove(u8),
    Settle(u8),
    Confirm(u8, u16),
    Lose(u8),
    Orphan(u16),
    Due(u16, u16),
    Finish(u8),
    ForgetBelow(u8),
    Push(u8),
    FinishLane(u8),
    Order(u8),
    OrderFinished(u8),
    OrderRestart(u8),
    Claim(u8, u8),
}

fn id(n: u8) -> EntryId {
    EntryId::new(u64::from(n) + 1, 0)
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let (capacity, steps) = input;
    let start = Instant::now();
    let at = |ms: u16| start + Duration::from_millis(ms.into());
    let (mut ledger, mut held) = (Ledger::new(), BTreeMap::<u8, Slot>::new());
    let (mut finished, mut greatest) = (Finished::new(capacity.into()), BTreeSet::new());
    let (mut lanes, mut waiting, mut occupied) = (Lanes::<usize, u8>::new(), 0_usize, BTreeSet::new());
    // What was taken up before each that is unfinished, by its number.
    let (mut order, mut unfinished) = (InOrder::new(EntryId::ZERO), BTreeMap::<u64, EntryId>::new());
    let (mut numbers, mut last) = (Vec::new(), EntryId::ZERO);
    let mut cursor = ClaimCursor::new();
    for (nth, step) in steps.into_iter().enumerate() {
        match step {
            Step::Insert(n) => {
                if let std::collections::btree_map::Entry::Vacant(vacant) = held.entry(n) {
                    assert!(ledger.find(id(n)).is_none());
                    vacant.insert(ledger.insert(id(n), start, n));
                }
            }
            Step::Remove(n) => {
                if let Some(slot) = held.remove(&n) {
                    assert_eq!(ledger.remove(slot), Some((id(n), n)));
                    assert_eq!(ledger.remove(slot), None);
                }
            }
            Step::Settle(n) => held.get(&n).into_iter().for_each(|slot| ledger.set_stage(*slot, Stage::Settling)),
            Step::Confirm(n, ms) => held.get(&n).into_iter().for_each(|slot| ledger.confirm(*slot, at(ms))),
            Step::Lose(n) => held.get(&n).into_iter().for_each(|slot| drop(ledger.lose(*slot))),
            Step::Orphan(ms) => ledger.orphan_until(at(ms)),
            Step::Due(now, age) => {
                for (due, slot) in ledger.due(at(now), Duration::from_millis(age.into())) {
                    assert_eq!(ledger.id(slot), Some(due));
                }
            }
            Step::Finish(n) => {
                finished.insert(id(n));
                greatest.insert(id(n));
                while greatest.len() > usize::from(capacity) {
                    greatest.pop_first();
                }
            }
            Step::ForgetBelow(n) => {
                finished.forget_below(id(n));
                greatest = greatest.split_off(&id(n));
            }
            Step::Push(key) => match lanes.push(key, nth) {
                Some(item) => assert!(item == nth && occupied.insert(key)),
                None => waiting += 1,
            },
            Step::FinishLane(key) => match lanes.finish(&key) {
                Some(_) => waiting -= 1,
                None => drop(occupied.remove(&key)),
            },
            Step::Order(n) => {
                let number = order.push(id(n));
                assert!(numbers.last().is_none_or(|before| *before < number));
                numbers.push(number);
                unfinished.insert(number, std::mem::replace(&mut last, id(n)));
            }
            Step::OrderFinished(n) => {
                if let Some(number) = numbers.get(usize::from(n)) {
                    order.finish(*number);
                    unfinished.remove(number);
                }
            }
            Step::OrderRestart(n) => {
                order.restart(id(n));
                last = id(n);
            }
            Step::Claim(next, end) => {
                cursor.end_at(id(end));
                let pages = cursor.pages();
                cursor.advance(if next == 0 { EntryId::ZERO } else { id(next) });
                assert!(cursor.pages() >= pages || cursor.position() == EntryId::ZERO);
            }
        }
        assert_eq!(ledger.len(), held.len());
        assert_eq!(ledger.oldest(), held.keys().next().map(|n| id(*n)));
        assert!(finished.len() <= usize::from(capacity).max(greatest.len()));
        assert!(greatest.iter().all(|id| finished.contains(*id)));
        assert_eq!((lanes.held(), lanes.occupied()), (waiting, occupied.len()));
        assert_eq!(order.position(), unfinished.first_key_value().map_or(last, |(_, before)| *before));
    }
});
