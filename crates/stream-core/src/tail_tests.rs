//! Tests of [`Tail`]: single cases by name, and histories against a model stream that knows what was really missed.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

/// A stream as the server keeps it, and what its reader was never given.
#[derive(Debug, Clone, Default)]
struct Model {
    entries: BTreeSet<EntryId>,
    last: EntryId,
    added: u64,
    deleted: EntryId,
}

impl Model {
    fn with(count: u64) -> Self {
        let mut model = Self::default();
        model.add(count);
        model
    }

    fn add(&mut self, count: u64) {
        for _ in 0..count {
            self.last = id(self.last.ms() + 1);
            self.entries.insert(self.last);
            self.added += 1;
        }
    }

    fn trim(&mut self, keep: usize) -> Vec<EntryId> {
        let mut gone = Vec::new();
        while self.entries.len() > keep {
            gone.extend(self.entries.pop_first());
        }
        gone
    }

    fn delete(&mut self, nth: usize) -> Option<EntryId> {
        let id = self.entries.iter().nth(nth % self.entries.len().max(1)).copied()?;
        self.entries.remove(&id);
        self.deleted = self.deleted.max(id);
        Some(id)
    }

    fn facts(&self, counts: bool) -> StreamFacts {
        StreamFacts {
            length: self.entries.len() as u64,
            last_generated: self.last,
            first: self.entries.first().copied(),
            entries_added: counts.then_some(self.added),
            max_deleted: counts.then_some(self.deleted),
        }
    }

    fn read(&self, tail: &mut Tail, count: usize) -> (usize, Option<TailBreak>) {
        let read: Vec<_> = self.entries.range((tail.cursor().successor().unwrap())..).take(count).copied().collect();
        match (read.first(), read.last()) {
            (Some(first), Some(last)) => (read.len(), tail.read(*first, *last, read.len() as u64, false)),
            _ => (0, None),
        }
    }
}

fn gap(after: u64, before: u64, missed: Option<u64>) -> Option<TailBreak> {
    Some(TailBreak::Gap { after: id(after), before: id(before), missed })
}

#[test]
fn a_reader_that_follows_a_trimmed_stream_misses_nothing_and_is_told_nothing() {
    for counts in [true, false] {
        let mut model = Model::with(3);
        let mut tail = Tail::new(model.last);
        assert_eq!(tail.compare(Some(&model.facts(counts))), None);
        for _ in 0..50 {
            model.add(1);
            model.trim(1);
            assert_eq!(model.read(&mut tail, 10), (1, None));
            assert_eq!(tail.compare(Some(&model.facts(counts))), None, "counts: {counts}");
        }
    }
}

#[test]
fn what_was_trimmed_past_the_cursor_is_counted_where_the_server_counts() {
    let check = |counts, missed| {
        let mut model = Model::with(100);
        let mut tail = Tail::new(EntryId::ZERO);
        assert_eq!(tail.compare(Some(&model.facts(counts))), None);
        assert_eq!(model.read(&mut tail, 10), (10, None));
        model.trim(51);
        assert_eq!(tail.compare(Some(&model.facts(counts))), gap(10, 50, missed));
        assert_eq!(tail.compare(Some(&model.facts(counts))), None, "told once");
    };
    check(true, Some(39));
    check(false, None);
}

#[test]
fn a_gap_that_was_jumped_over_is_found_afterwards() {
    let mut model = Model::with(100);
    let mut tail = Tail::new(EntryId::ZERO);
    tail.compare(Some(&model.facts(true)));
    model.read(&mut tail, 10);
    model.trim(51);
    assert_eq!(model.read(&mut tail, 10), (10, None));
    // 41 are still unread, so it is not by being at the end that it is found.
    assert_eq!(tail.compare(Some(&model.facts(true))), gap(10, 50, Some(39)));
}

#[test]
fn without_counts_a_known_next_entry_that_is_gone_is_found_at_the_read() {
    let mut model = Model::with(100);
    let mut tail = Tail::new(EntryId::ZERO);
    tail.compare(Some(&model.facts(false)));
    model.trim(51);
    assert_eq!(model.read(&mut tail, 10), (10, gap(0, 50, None)));
}

#[test]
fn without_counts_an_absent_reader_is_told_that_it_may_have_missed_something() {
    let mut model = Model::with(10);
    let mut tail = Tail::new(model.last);
    tail.compare(Some(&model.facts(false)));
    tail.was_absent();
    model.add(20);
    model.trim(5);
    assert_eq!(tail.compare(Some(&model.facts(false))), gap(10, 26, None));
}

#[test]
fn a_reader_that_comes_back_knows_its_stream_by_the_id_that_it_has_read() {
    for counts in [true, false] {
        let mut model = Model::with(5);
        let reset = |now| Some(TailBreak::Reset { last: id(6), now, read_already: false });
        let mut tail = Tail::resumed(id(6));
        assert_eq!(tail.clone().compare(None), reset(None));
        assert_eq!(tail.compare(Some(&model.facts(counts))), reset(Some(id(5))));
        assert_eq!(Tail::new(id(6)).compare(Some(&model.facts(counts))), None, "that one may lie ahead");
        assert_eq!(Tail::resumed(id(5)).compare(Some(&model.facts(counts))), None);
        model.trim(1);
        assert_eq!(Tail::resumed(id(3)).compare(Some(&model.facts(counts))), None, "nobody knows what was there");
        model.delete(0);
        assert_eq!(Tail::resumed(id(5)).compare(Some(&model.facts(counts))), None);
        assert_eq!(Tail::resumed(EntryId::ZERO).compare(None), None, "it had seen nothing of it");
    }
}

#[test]
fn a_stream_made_anew_is_noticed_by_its_ids_or_its_count() {
    let mut tail = Tail::new(EntryId::ZERO);
    let old = Model::with(100);
    tail.compare(Some(&old.facts(true)));
    old.read(&mut tail, 100);
    let smaller = Model::with(3);
    let reset = TailBreak::Reset { last: id(100), now: Some(id(3)), read_already: false };
    for counts in [true, false] {
        assert_eq!(tail.clone().compare(Some(&smaller.facts(counts))), Some(reset));
    }
    // With greater ids it was read as it came.
    let mut greater = Model { last: id(1_000), ..Model::default() };
    greater.add(2);
    assert_eq!(greater.read(&mut tail, 10), (2, None));
    let reset = TailBreak::Reset { last: id(1_002), now: Some(id(1_002)), read_already: true };
    assert_eq!(tail.compare(Some(&greater.facts(true))), Some(reset));
    let gone = TailBreak::Reset { last: id(1_002), now: None, read_already: false };
    assert_eq!(tail.compare(None), Some(gone));
    tail.restart(EntryId::ZERO, None);
    assert_eq!((tail.compare(None), tail.is_known()), (None, false));
}

#[test]
fn a_stream_that_was_never_there_is_not_missed() {
    let mut tail = Tail::new(EntryId::ZERO);
    assert_eq!((tail.compare(None), tail.is_known()), (None, false));
    let mut model = Model::with(5);
    model.trim(2);
    // Seen for the first time: three of what was added since are gone already.
    assert_eq!(tail.compare(Some(&model.facts(true))), gap(0, 4, Some(3)));
}

#[derive(Debug, Clone)]
enum Step {
    Add(u64),
    Trim(usize),
    Delete(usize),
    Read(usize),
    Compare,
    Absent,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_u64..20).prop_map(Step::Add),
        2 => (0_usize..30).prop_map(Step::Trim),
        1 => (0_usize..30).prop_map(Step::Delete),
        5 => (1_usize..15).prop_map(Step::Read),
        3 => Just(Step::Compare),
        1 => Just(Step::Absent),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// With counts: never more is reported than is missing, each gap holds a missing entry, and once the reader has caught
    /// up a missing entry has been reported.
    #[test]
    fn what_is_missing_is_reported_and_nothing_else(steps in steps(), before in 0_u64..30, live: bool) {
        let mut model = Model::with(before);
        let mut tail = Tail::new(if live { model.last } else { EntryId::ZERO });
        prop_assert_eq!(tail.compare(Some(&model.facts(true))), None);
        let mut missing: BTreeSet<EntryId> = BTreeSet::new();
        let (mut reported, mut told) = (0, 0);
        let mut judge = |found: Option<TailBreak>, missing: &BTreeSet<EntryId>| -> Result<(), TestCaseError> {
            match found {
                None => {}
                Some(TailBreak::Gap { after, before, missed }) => {
                    told += 1;
                    reported += missed.unwrap_or(0);
                    prop_assert!(after < before);
                    prop_assert!(missing.iter().any(|id| *id > after && *id <= before), "{after} to {before}: {missing:?}");
                }
                Some(other) => prop_assert!(false, "{other:?}"),
            }
            Ok(())
        };
        for step in steps {
            let cursor = tail.cursor();
            match step {
                Step::Add(count) => model.add(count),
                Step::Trim(keep) => missing.extend(model.trim(keep).into_iter().filter(|id| *id > cursor)),
                Step::Delete(nth) => missing.extend(model.delete(nth).filter(|id| *id > cursor)),
                Step::Read(count) => {
                    let found = model.read(&mut tail, count).1;
                    judge(found, &missing)?;
                }
                Step::Compare => judge(tail.compare(Some(&model.facts(true))), &missing)?,
                Step::Absent => tail.was_absent(),
            }
        }
        // The last entry of all is read, so that the reader is known to have caught up.
        model.add(1);
        while let (1.., found) = model.read(&mut tail, 10) {
            judge(found, &missing)?;
        }
        judge(tail.compare(Some(&model.facts(true))), &missing)?;
        prop_assert!(reported <= missing.len() as u64, "{reported} reported, {} missing", missing.len());
        prop_assert_eq!(told > 0, !missing.is_empty(), "{:?}", missing);
    }

    /// Without counts: a stream from which nothing is taken never has a gap, whatever the reader does.
    #[test]
    fn an_untouched_stream_has_no_gap(steps in steps(), before in 0_u64..30, counts: bool) {
        let mut model = Model::with(before);
        let mut tail = Tail::new(EntryId::ZERO);
        tail.compare(Some(&model.facts(counts)));
        for step in steps {
            match step {
                Step::Add(count) => model.add(count),
                Step::Read(count) => prop_assert_eq!(model.read(&mut tail, count).1, None),
                Step::Compare => prop_assert_eq!(tail.compare(Some(&model.facts(counts))), None),
                Step::Absent => tail.was_absent(),
                Step::Trim(_) | Step::Delete(_) => {}
            }
        }
        // And when it is deleted and made anew with smaller ids, that is always noticed.
        if tail.cursor() > EntryId::ZERO {
            let reset = matches!(tail.compare(Some(&Model::default().facts(counts))), Some(TailBreak::Reset { .. }));
            prop_assert!(reset);
        }
    }
}
