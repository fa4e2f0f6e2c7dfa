//! What is found by comparison: gaps under a reader, gaps of a group, groups that vanished. A stream that is kept here knows
//! what was really lost; and whatever a server claims, nothing overflows.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use stream_core::{
    EntryId, GroupFacts, GroupName, GroupState, StreamFacts, StreamState, Tail, TailBreak, TrimPolicy, Undelivered,
    VanishedGroups,
};

#[derive(Debug, Arbitrary)]
enum Input {
    Tail(bool, u8, Vec<Step>),
    Undelivered(bool, bool, u8, Vec<Step>),
    Vanished(Vec<(u8, u32)>),
    Claims(Vec<(Claim, bool)>),
}

#[derive(Debug, Arbitrary)]
enum Step {
    Add(u8),
    Trim(u8),
    Delete(u8),
    Read(u8),
    Look,
    Absent,
}

/// What a server that is out of its mind says.
#[derive(Debug, Arbitrary)]
struct Claim {
    length: u64,
    ids: [(u64, u8); 4],
    added: Option<u64>,
    deleted: Option<(u64, u8)>,
    empty: bool,
    read: Option<u64>,
    exact: bool,
    count: u64,
}

fuzz_target!(|input: Input| {
    match input {
        Input::Tail(counts, before, steps) => tail(counts, before, &steps),
        Input::Undelivered(counts, exact, before, steps) => undelivered(counts, exact, before, &steps),
        Input::Vanished(looks) => vanished(&looks),
        Input::Claims(claims) => nonsense(&claims),
    }
});

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

/// A stream, and what was taken from it before `position` had come so far.
#[derive(Default)]
struct Stream {
    entries: BTreeSet<EntryId>,
    last: EntryId,
    added: u64,
    deleted: EntryId,
}

impl Stream {
    fn add(&mut self, count: u8) {
        for _ in 0..count {
            self.last = id(self.last.ms() + 1);
            self.entries.insert(self.last);
            self.added += 1;
        }
    }

    fn trim(&mut self, keep: u8) -> Vec<EntryId> {
        let mut gone = Vec::new();
        while self.entries.len() > usize::from(keep) {
            gone.extend(self.entries.pop_first());
        }
        gone
    }

    fn delete(&mut self, nth: u8) -> Option<EntryId> {
        let id = self.entries.iter().nth(usize::from(nth) % self.entries.len().max(1)).copied()?;
        self.entries.remove(&id);
        self.deleted = self.deleted.max(id);
        Some(id)
    }

    fn after(&self, position: EntryId, count: u8) -> Vec<EntryId> {
        self.entries.range(id(position.ms() + 1)..).take(count.into()).copied().collect()
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
}

/// Each gap holds something that is missing, and no more is told than is.
fn tail(counts: bool, before: u8, steps: &[Step]) {
    let mut stream = Stream::default();
    stream.add(before);
    let mut tail = Tail::new(EntryId::ZERO);
    assert_eq!(tail.compare(Some(&stream.facts(counts))), None, "the first look is what others are held against");
    let (mut missing, mut told) = (BTreeSet::new(), 0);
    let mut judge = |found: Option<TailBreak>, missing: &BTreeSet<EntryId>| match found {
        None => {}
        Some(TailBreak::Gap { after, before, missed }) => {
            assert!(after < before);
            told += missed.unwrap_or(0);
            // Without counts, a beginning that has moved past an absent reader may have been read before.
            let any = missing.iter().any(|id| *id > after && *id <= before);
            assert!(any || (!counts && missed.is_none()), "{after} to {before}: {missing:?}");
            assert!(told <= missing.len() as u64, "{told} told, {} missing", missing.len());
        }
        Some(other) => panic!("nobody made the stream anew: {other:?}"),
    };
    for step in steps {
        let cursor = tail.cursor();
        match step {
            Step::Add(count) => stream.add(*count),
            Step::Trim(keep) => missing.extend(stream.trim(*keep).into_iter().filter(|id| *id > cursor)),
            Step::Delete(nth) => missing.extend(stream.delete(*nth).filter(|id| *id > cursor)),
            Step::Read(count) => {
                let read = stream.after(cursor, *count);
                if let (Some(first), Some(last)) = (read.first(), read.last()) {
                    judge(tail.read(*first, *last, read.len() as u64, false), &missing);
                    assert_eq!(tail.cursor(), *last);
                }
            }
            Step::Look => judge(tail.compare(Some(&stream.facts(counts))), &missing),
            Step::Absent => tail.was_absent(),
        }
    }
}

/// The same for a group. Where the server counts exactly, a second look tells nothing new.
fn undelivered(counts: bool, exact: bool, before: u8, steps: &[Step]) {
    let mut stream = Stream::default();
    stream.add(before);
    let exact = exact && counts;
    let (mut delivered, mut missing, mut told) = (EntryId::ZERO, BTreeSet::new(), 0);
    let mut undelivered = Undelivered::new();
    for step in steps {
        match step {
            Step::Add(count) => stream.add(*count),
            Step::Trim(keep) => missing.extend(stream.trim(*keep).into_iter().filter(|id| *id > delivered)),
            Step::Delete(nth) => missing.extend(stream.delete(*nth).filter(|id| *id > delivered)),
            Step::Read(count) => delivered = stream.after(delivered, *count).last().copied().unwrap_or(delivered),
            Step::Absent => undelivered.was_away(),
            Step::Look => {
                // All ids up to `ms` were given once, so that what an exact server counts is the number of the last.
                let facts = GroupFacts {
                    stream: stream.facts(counts),
                    last: stream.entries.last().copied(),
                    delivered,
                    read: exact.then_some(delivered.ms()),
                    exact,
                };
                if let Some(gap) = undelivered.look(&facts) {
                    told += gap.missed.unwrap_or(0);
                    assert!(gap.after < gap.before || stream.entries.is_empty(), "{gap:?}");
                    assert!(missing.iter().any(|id| *id > gap.after && *id <= gap.before), "{gap:?}: {missing:?}");
                    assert!(told <= missing.len() as u64, "{told} told, {} missing", missing.len());
                }
                assert_eq!(undelivered.look(&facts), None, "told once");
            }
        }
    }
}

/// Groups that are gone are minded as they were seen last, for as long as is said, and no longer.
fn vanished(looks: &[(u8, u32)]) {
    let policy = TrimPolicy::new();
    let mut groups = VanishedGroups::new();
    let (mut now, mut known) = (0_u64, BTreeMap::<GroupName, (GroupState, Option<u64>)>::new());
    let grace = VanishedGroups::GRACE.as_millis() as u64;
    for (nth, (present, after)) in looks.iter().enumerate() {
        now += u64::from(*after) % (2 * grace);
        let state = |number: u32| GroupState {
            name: GroupName::new(format!("g{number}")).expect("the name is not empty"),
            last_delivered: id(nth as u64),
            pending: 0,
            oldest_pending: None,
            consumers: 0,
            unchanged: Some(Duration::ZERO),
        };
        let there: Vec<_> = (0..8).filter(|number| present & (1 << number) != 0).map(state).collect();
        let stream = StreamState {
            first: Some(id(1)),
            last_generated: id(1_000),
            length: 1,
            newest_from: None,
            groups: there.clone(),
            now_ms: now,
        };
        for (_, missed) in known.values_mut() {
            missed.get_or_insert(now);
        }
        known.extend(there.into_iter().map(|group| (group.name.clone(), (group, None))));
        known.retain(|_, (_, missed)| missed.is_none_or(|since| now - since < grace));
        let minded: Vec<_> =
            known.values().filter(|(_, missed)| missed.is_some()).map(|(group, _)| group.clone()).collect();
        assert_eq!(groups.observe(&stream, &policy, now), minded);
    }
    groups.forget();
    let nothing = StreamState {
        first: None,
        last_generated: EntryId::ZERO,
        length: 0,
        newest_from: None,
        groups: Vec::new(),
        now_ms: now,
    };
    assert_eq!(groups.observe(&nothing, &policy, now), []);
}

/// A server that says anything gets an answer, whose ids are in their order.
fn nonsense(claims: &[(Claim, bool)]) {
    let any = |(ms, seq): (u64, u8)| EntryId::new(ms, seq.into());
    let (mut tail, mut undelivered) = (Tail::new(EntryId::ZERO), Undelivered::new());
    for (claim, read) in claims {
        let [first, last_generated, last, delivered] = claim.ids.map(any);
        let stream = StreamFacts {
            length: claim.length,
            last_generated,
            first: (!claim.empty).then_some(first),
            entries_added: claim.added,
            max_deleted: claim.deleted.map(any),
        };
        let facts = GroupFacts {
            stream,
            last: (!claim.empty).then_some(last),
            delivered,
            read: claim.read,
            exact: claim.exact,
        };
        let _ = undelivered.look(&facts);
        if *read && tail.cursor() < first && first <= last {
            let _ = tail.read(first, last, claim.count, false);
            assert_eq!(tail.cursor(), last);
        }
        if let Some(TailBreak::Reset { .. }) = tail.compare(Some(&stream)) {
            tail.restart(delivered, Some(&stream));
            assert_eq!(tail.cursor(), delivered);
        }
    }
}
