//! [`Ledger`]: what this process holds of one stream, and since when its lease on each entry is certain.
//!
//! An entry is held from the moment it was delivered until its acknowledgement, its dead letter or its hand-back is
//! confirmed. Whatever is held is renewed, whether it runs, queues or waits for a retry; what is not held is nobody's
//! business here. The two things that must stay true: an id is held at most once, lost leases aside, and an entry whose
//! lease was lost can never become acknowledgeable again by itself.

use std::time::{Duration, Instant};

use crate::EntryId;

/// Where a held entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Delivered, its handler not started yet.
    Queued,
    /// Its handler runs.
    Running,
    /// It waits for a time: its next attempt, or another try to write its dead letter.
    Waiting,
    /// The outcome is decided, its confirmation by the server is awaited.
    Settling,
}

/// How sure this process is of its lease on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lease {
    /// The server confirmed it at this time.
    Held(Instant),
    /// The entry is in nobody's pending list: the group was lost and made anew, or it was acknowledged beforehand. Nobody
    /// else gets it until it is delivered again.
    Orphaned,
    /// Somebody else owns the entry, or it was deleted.
    Lost,
}

/// The place of one held entry; valid until [`Ledger::remove`] and never mistaken for a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    index: u32,
    generation: u32,
}

impl Slot {
    /// A small number, unique among the entries held at one time; for tables beside the ledger.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Debug)]
struct Record<T> {
    id: EntryId,
    generation: u32,
    held: Option<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    stage: Stage,
    lease: Lease,
    tag: T,
}

/// What one process holds of one stream. `T` is whatever the caller wants to find again when a lease is lost, for
/// example a cancellation token.
#[derive(Debug)]
pub struct Ledger<T> {
    records: Vec<Record<T>>,
    free: Vec<u32>,
    /// The greatest id ever inserted: whatever is greater cannot be held.
    greatest: EntryId,
    stages: [usize; 4],
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { records: Vec::new(), free: Vec::new(), greatest: EntryId::ZERO, stages: [0; 4] }
    }
}

impl<T> Ledger<T> {
    /// Nothing held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes up an entry delivered or claimed at `now`. The caller has made sure with [`find`](Self::find) or
    /// [`is_new`](Self::is_new) that it is not held.
    pub fn insert(&mut self, id: EntryId, now: Instant, tag: T) -> Slot {
        debug_assert!(self.is_new(id) || self.find(id).is_none(), "an id is held at most once");
        self.greatest = self.greatest.max(id);
        self.stages[Stage::Queued as usize] += 1;
        let held = Some(Held { stage: Stage::Queued, lease: Lease::Held(now), tag });
        if let Some(index) = self.free.pop() {
            let record = &mut self.records[index as usize];
            record.id = id;
            record.held = held;
            return Slot { index, generation: record.generation };
        }
        self.records.push(Record { id, generation: 0, held });
        Slot { index: (self.records.len() - 1) as u32, generation: 0 }
    }

    /// Whether `id` is greater than every id seen, which is the cheap proof that it is not held.
    pub fn is_new(&self, id: EntryId) -> bool {
        id > self.greatest
    }

    /// The place of `id`, if it is held and its lease was not lost: a handler that lost its lease may still run while the
    /// same entry, or another of the same id in a new stream, is held anew. Looks through all that is held; ask
    /// [`is_new`](Self::is_new) first.
    pub fn find(&self, id: EntryId) -> Option<Slot> {
        self.iter().find(|(_, held, lease)| *held == id && *lease != Lease::Lost).map(|(slot, ..)| slot)
    }

    /// Ends holding an entry; `None` if that had happened already. Gives the tag back.
    pub fn remove(&mut self, slot: Slot) -> Option<(EntryId, T)> {
        let record = self.records.get_mut(slot.index()).filter(|record| record.generation == slot.generation)?;
        let held = record.held.take()?;
        record.generation = record.generation.wrapping_add(1);
        self.stages[held.stage as usize] -= 1;
        self.free.push(slot.index);
        Some((record.id, held.tag))
    }

    /// Moves an entry to `stage`.
    pub fn set_stage(&mut self, slot: Slot, stage: Stage) {
        if let Some(held) = self.held_mut(slot) {
            let before = std::mem::replace(&mut held.stage, stage);
            self.stages[before as usize] -= 1;
            self.stages[stage as usize] += 1;
        }
    }

    /// Moves an entry to [`Stage::Settling`] and returns its lease; [`Lease::Lost`] for one that is not held any more.
    pub fn settling(&mut self, slot: Slot) -> Lease {
        let Some(held) = self.held_mut(slot) else { return Lease::Lost };
        let (lease, before) = (held.lease, std::mem::replace(&mut held.stage, Stage::Settling));
        self.stages[before as usize] -= 1;
        self.stages[Stage::Settling as usize] += 1;
        lease
    }

    /// Where an entry stands; `None` if it is not held any more.
    pub fn stage(&self, slot: Slot) -> Option<Stage> {
        self.held(slot).map(|held| held.stage)
    }

    /// The lease of an entry; [`Lease::Lost`] for one that is not held any more.
    pub fn lease(&self, slot: Slot) -> Lease {
        self.held(slot).map_or(Lease::Lost, |held| held.lease)
    }

    /// The id in a place.
    pub fn id(&self, slot: Slot) -> Option<EntryId> {
        self.held(slot)?;
        Some(self.records[slot.index()].id)
    }

    /// The tag of an entry.
    pub fn tag_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.held_mut(slot).map(|held| &mut held.tag)
    }

    /// The server confirmed the lease by an answer to a request of `at`. A lease that is known as lost stays lost, and an
    /// older confirmation never shortens a newer one.
    pub fn confirm(&mut self, slot: Slot, at: Instant) {
        if let Some(held) = self.held_mut(slot) {
            held.lease = match held.lease {
                Lease::Lost => Lease::Lost,
                Lease::Orphaned => Lease::Held(at),
                Lease::Held(before) => Lease::Held(before.max(at)),
            };
        }
    }

    /// Somebody else owns the entry: what its handler does from now on is not acknowledged. Gives access to the tag, so
    /// that the handler can be told; `None` if it was known or the entry is not held.
    pub fn lose(&mut self, slot: Slot) -> Option<&mut T> {
        let held = self.held_mut(slot)?;
        if held.lease == Lease::Lost {
            return None;
        }
        held.lease = Lease::Lost;
        Some(&mut held.tag)
    }

    /// The entry is not pending any more, and was not lost: it was acknowledged before its handler starts.
    pub fn orphan(&mut self, slot: Slot) {
        if let Some(held) = self.held_mut(slot)
            && held.lease != Lease::Lost
        {
            held.lease = Lease::Orphaned;
        }
    }

    /// The group was gone at `at`: nothing whose lease was confirmed by then is in a pending list now.
    pub fn orphan_until(&mut self, at: Instant) {
        for record in &mut self.records {
            if let Some(held) = &mut record.held
                && matches!(held.lease, Lease::Held(confirmed) if confirmed <= at)
            {
                held.lease = Lease::Orphaned;
            }
        }
    }

    /// The stream itself is a new one: what is held belongs to no entry of it, and ids may start anew.
    pub fn forget_stream(&mut self, mut tell: impl FnMut(&mut T)) {
        for record in &mut self.records {
            if let Some(held) = &mut record.held {
                if held.lease != Lease::Lost {
                    tell(&mut held.tag);
                }
                held.lease = Lease::Lost;
            }
        }
        self.greatest = EntryId::ZERO;
    }

    /// The entries whose lease was confirmed at least `age` before `now`: what is to be renewed, the oldest confirmation first,
    /// and of the same by ascending id.
    pub fn due(&self, now: Instant, age: Duration) -> Vec<(EntryId, Slot)> {
        let mut due: Vec<_> = self
            .iter()
            .filter_map(|(slot, id, lease)| match lease {
                Lease::Held(at) if now.saturating_duration_since(at) >= age => Some((at, id, slot)),
                _ => None,
            })
            .collect();
        due.sort_unstable_by_key(|(at, id, _)| (*at, *id));
        due.into_iter().map(|(_, id, slot)| (id, slot)).collect()
    }

    /// Everything held, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, EntryId, Lease)> + '_ {
        self.records.iter().enumerate().filter_map(|(index, record)| {
            let held = record.held.as_ref()?;
            Some((Slot { index: index as u32, generation: record.generation }, record.id, held.lease))
        })
    }

    /// The smallest id held: everything this process got below it is finished.
    pub fn oldest(&self) -> Option<EntryId> {
        self.iter().map(|(_, id, _)| id).min()
    }

    /// How many entries are held.
    pub fn len(&self) -> usize {
        self.stages.iter().sum()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries are in a stage.
    pub fn count(&self, stage: Stage) -> usize {
        self.stages[stage as usize]
    }

    fn held(&self, slot: Slot) -> Option<&Held<T>> {
        self.records.get(slot.index()).filter(|record| record.generation == slot.generation)?.held.as_ref()
    }

    fn held_mut(&mut self, slot: Slot) -> Option<&mut Held<T>> {
        self.records.get_mut(slot.index()).filter(|record| record.generation == slot.generation)?.held.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lost_lease_stays_lost() {
        let now = Instant::now_for_tests();
        let mut ledger = Ledger::new();
        let slot = ledger.insert(EntryId::new(1, 0), now, ());
        assert!(ledger.lose(slot).is_some());
        ledger.confirm(slot, now + Duration::from_secs(1));
        assert_eq!(ledger.lease(slot), Lease::Lost);
        assert!(ledger.lose(slot).is_none(), "told once");
    }

    #[test]
    fn a_place_is_not_mistaken_for_a_later_one() {
        let now = Instant::now_for_tests();
        let mut ledger = Ledger::new();
        let first = ledger.insert(EntryId::new(1, 0), now, 'a');
        assert_eq!(ledger.remove(first), Some((EntryId::new(1, 0), 'a')));
        let second = ledger.insert(EntryId::new(2, 0), now, 'b');
        assert_eq!(first.index(), second.index());
        assert_eq!(ledger.remove(first), None);
        assert_eq!(ledger.id(first), None);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn what_was_lost_does_not_stand_before_what_is_held_now() {
        let now = Instant::now_for_tests();
        let id = EntryId::new(5, 0);
        let mut ledger = Ledger::new();
        let old = ledger.insert(id, now, 'a');
        ledger.forget_stream(|_| {});
        assert_eq!((ledger.find(id), ledger.is_new(id)), (None, true));
        let new = ledger.insert(id, now, 'b');
        assert_eq!(ledger.find(id), Some(new));
        assert_eq!(ledger.remove(old), Some((id, 'a')));
        assert_eq!((ledger.find(id), ledger.len()), (Some(new), 1));
    }

    trait ForTests {
        fn now_for_tests() -> Self;
    }

    impl ForTests for Instant {
        #[allow(clippy::disallowed_methods)]
        fn now_for_tests() -> Self {
            Self::now()
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(u8),
        Remove(u8),
        Stage(u8, u8),
        Confirm(u8, u16),
        Lose(u8),
        OrphanUntil(u16),
        ForgetStream,
        Due(u16, u16),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => any::<u8>().prop_map(Op::Insert),
            2 => any::<u8>().prop_map(Op::Remove),
            2 => (any::<u8>(), 0..4u8).prop_map(|(id, stage)| Op::Stage(id, stage)),
            2 => (any::<u8>(), any::<u16>()).prop_map(|(id, at)| Op::Confirm(id, at)),
            1 => any::<u8>().prop_map(Op::Lose),
            1 => any::<u16>().prop_map(Op::OrphanUntil),
            1 => Just(Op::ForgetStream),
            2 => (any::<u16>(), any::<u16>()).prop_map(|(now, age)| Op::Due(now, age)),
        ]
    }

    proptest! {
        /// The ledger against a map from id to (stage, lease).
        #[test]
        fn any_sequence_of_operations_agrees_with_a_map(ops in prop::collection::vec(op(), 0..200)) {
            let start = Instant::now_for_tests();
            let at = |ms: u16| start + Duration::from_millis(u64::from(ms));
            let stages = [Stage::Queued, Stage::Running, Stage::Waiting, Stage::Settling];
            let mut ledger = Ledger::new();
            let mut model: BTreeMap<u8, (Slot, Stage, Lease)> = BTreeMap::new();
            let mut greatest = 0;
            for op in ops {
                match op {
                    Op::Insert(n) => {
                        let id = EntryId::new(u64::from(n) + 1, 0);
                        prop_assert_eq!(ledger.is_new(id), u64::from(n) + 1 > greatest);
                        if let std::collections::btree_map::Entry::Vacant(vacant) = model.entry(n) {
                            prop_assert_eq!(ledger.find(id), None);
                            let slot = ledger.insert(id, start, n);
                            vacant.insert((slot, Stage::Queued, Lease::Held(start)));
                            greatest = greatest.max(u64::from(n) + 1);
                        }
                    }
                    Op::Remove(n) => {
                        if let Some((slot, ..)) = model.remove(&n) {
                            prop_assert_eq!(ledger.remove(slot), Some((EntryId::new(u64::from(n) + 1, 0), n)));
                            prop_assert_eq!(ledger.remove(slot), None);
                            prop_assert_eq!(ledger.lease(slot), Lease::Lost);
                        }
                    }
                    Op::Stage(n, stage) => {
                        if let Some((slot, held, lease)) = model.get_mut(&n) {
                            *held = stages[stage as usize];
                            if *held == Stage::Settling {
                                prop_assert_eq!(ledger.settling(*slot), *lease);
                            } else {
                                ledger.set_stage(*slot, *held);
                            }
                        }
                    }
                    Op::Confirm(n, ms) => {
                        if let Some((slot, _, lease)) = model.get_mut(&n) {
                            ledger.confirm(*slot, at(ms));
                            *lease = match *lease {
                                Lease::Lost => Lease::Lost,
                                Lease::Orphaned => Lease::Held(at(ms)),
                                Lease::Held(before) => Lease::Held(before.max(at(ms))),
                            };
                        }
                    }
                    Op::Lose(n) => {
                        if let Some((slot, _, lease)) = model.get_mut(&n) {
                            prop_assert_eq!(ledger.lose(*slot).is_some(), *lease != Lease::Lost);
                            *lease = Lease::Lost;
                        }
                    }
                    Op::OrphanUntil(ms) => {
                        ledger.orphan_until(at(ms));
                        for (_, _, lease) in model.values_mut() {
                            if matches!(lease, Lease::Held(since) if *since <= at(ms)) {
                                *lease = Lease::Orphaned;
                            }
                        }
                    }
                    Op::ForgetStream => {
                        ledger.forget_stream(|_| {});
                        for (_, _, lease) in model.values_mut() {
                            *lease = Lease::Lost;
                        }
                        greatest = 0;
                    }
                    Op::Due(now, age) => {
                        let age = Duration::from_millis(u64::from(age));
                        let due: Vec<_> = ledger.due(at(now), age).into_iter().map(|(id, _)| id.ms() - 1).collect();
                        let mut expected: Vec<_> = model
                            .iter()
                            .filter_map(|(n, (_, _, lease))| match lease {
                                Lease::Held(since) if at(now).saturating_duration_since(*since) >= age => {
                                    Some((*since, u64::from(*n)))
                                }
                                _ => None,
                            })
                            .collect();
                        expected.sort_unstable();
                        prop_assert_eq!(due, expected.into_iter().map(|(_, n)| n).collect::<Vec<_>>());
                    }
                }
                prop_assert_eq!(ledger.len(), model.len());
                prop_assert_eq!(ledger.oldest(), model.keys().next().map(|n| EntryId::new(u64::from(*n) + 1, 0)));
                for stage in stages {
                    prop_assert_eq!(ledger.count(stage), model.values().filter(|(_, s, _)| *s == stage).count());
                }
                for (n, (slot, _, lease)) in &model {
                    prop_assert_eq!(ledger.lease(*slot), *lease);
                    let found = ledger.find(EntryId::new(u64::from(*n) + 1, 0));
                    prop_assert_eq!(found, (*lease != Lease::Lost).then_some(*slot));
                }
            }
        }
    }
}
