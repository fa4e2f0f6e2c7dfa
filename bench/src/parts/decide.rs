//! Decisions and encoding: the ledger, the claim cursor, a plan for trimming, an acknowledgement.

use std::hint::black_box;
use std::time::{Duration, Instant};

use stream_core::{
    ClaimCursor, EntryId, GroupName, GroupState, Ledger, Slot, Stage, StreamKey, StreamState, TrimPolicy,
};
use stream_redis::command::{Command, XAck};

use super::Part;

const BATCH: u64 = 1_000;
const MANY: u64 = 10_000;
/// Pages of a pass over a long pending list.
const PAGES: u64 = 1_000;

fn id(number: u64) -> EntryId {
    EntryId::new(1_700_000_000_000 + number / 10, number % 10)
}

/// A batch is taken up, run, settled and let go.
pub(super) fn ledger() -> Part {
    let mut ledger = Ledger::new();
    let mut slots: Vec<Slot> = Vec::new();
    let now = Instant::now();
    let mut number = 0;
    Part::new(BATCH, move || {
        for _ in 0..BATCH {
            number += 1;
            if ledger.is_new(id(number)) {
                slots.push(ledger.insert(id(number), now, ()));
            }
        }
        for &slot in &slots {
            ledger.set_stage(slot, Stage::Running);
        }
        for &slot in &slots {
            ledger.set_stage(slot, Stage::Settling);
            black_box(ledger.lease(slot));
        }
        for slot in slots.drain(..) {
            black_box(ledger.remove(slot));
        }
        assert!(ledger.is_empty());
    })
}

/// What is to be renewed of 10,000 held entries, half of which are.
pub(super) fn due() -> Part {
    let mut ledger = Ledger::new();
    let now = Instant::now();
    let age = Duration::from_secs(5);
    for number in 0..MANY {
        // Mixed up, as places in the ledger are after a while.
        let at = if number % 2 == 0 { now } else { now + age };
        ledger.insert(id(number * 7_919 % MANY), at, ());
    }
    Part::new(MANY, move || assert_eq!(ledger.due(now + age, age).len() as u64, MANY / 2))
}

/// A pass over a pending list of many pages.
pub(super) fn claim_cursor() -> Part {
    let mut cursor = ClaimCursor::new();
    Part::new(PAGES, move || {
        cursor.end_at(id(PAGES * BATCH));
        for page in 1..PAGES {
            assert!(!cursor.advance(black_box(id(page * BATCH))));
        }
        assert!(cursor.advance(black_box(EntryId::ZERO)));
    })
}

/// From where on a stream with 10,000 groups is needed.
pub(super) fn trim_plan() -> Part {
    let groups = (0..MANY).map(|number| GroupState {
        name: GroupName::new(format!("group-{number}")).unwrap_or_else(|_| unreachable!("the name is not empty")),
        last_delivered: id(BATCH + number),
        pending: number % 3,
        oldest_pending: (number % 3 > 0).then(|| id(BATCH + number / 2)),
        consumers: 1,
        unchanged: Some(Duration::from_secs(number)),
    });
    let stream = StreamState {
        first: Some(id(0)),
        last_generated: id(MANY * 2),
        length: MANY * 2,
        newest_from: None,
        groups: groups.collect(),
        now_ms: 1_800_000_000_000,
    };
    let policy = TrimPolicy::new().older_than(Duration::from_hours(1));
    Part::new(MANY, move || assert_eq!(policy.plan(black_box(&stream)).min_id, Some(id(BATCH))))
}

/// One `XACK` of a batch, up to its bytes on the wire.
pub(super) fn acknowledge() -> Part {
    let key = StreamKey::new("orders").unwrap_or_else(|_| unreachable!("the name is not empty"));
    let group = GroupName::new("billing").unwrap_or_else(|_| unreachable!("the name is not empty"));
    let ack = XAck { key, group, ids: (0..BATCH).map(id).collect() };
    let mut out = Vec::new();
    Part::new(BATCH, move || {
        out.clear();
        ack.request().encode(&mut out);
        assert!(!black_box(&out).is_empty());
    })
}
