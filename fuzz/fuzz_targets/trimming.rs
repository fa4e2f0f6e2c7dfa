//! Plans for trimming and clean-up: whatever a server says of its groups, no plan takes what a group still needs.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use stream_core::{
    ConsumerName, ConsumerPolicy, ConsumerState, EntryId, GroupName, GroupPolicy, GroupState, NamePattern, StreamState,
    TrimPolicy,
};

#[derive(Debug, Arbitrary)]
struct Group {
    last_delivered: (u8, u8),
    oldest_pending: Option<(u8, u8)>,
    pending: u8,
    consumers: u8,
    unchanged: Option<u32>,
}

#[derive(Debug, Arbitrary)]
struct World {
    first: Option<(u8, u8)>,
    last_generated: (u8, u8),
    length: u64,
    newest_from: Option<(u8, u8)>,
    now_ms: u64,
    groups: Vec<Group>,
    consumers: Vec<(u64, u32, Option<u32>)>,
    older_than: Option<u64>,
    longer_than: Option<u64>,
    pattern: Vec<u8>,
}

fn id((ms, seq): (u8, u8)) -> EntryId {
    EntryId::new(ms.into(), seq.into())
}

fuzz_target!(|world: World| {
    let group = |(nth, group): (usize, &Group)| GroupState {
        name: GroupName::new(format!("g{nth}")).expect("the name is not empty"),
        last_delivered: id(group.last_delivered),
        pending: group.pending.into(),
        oldest_pending: group.oldest_pending.map(id),
        consumers: group.consumers.into(),
        unchanged: group.unchanged.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let stream = StreamState {
        first: world.first.map(id),
        last_generated: id(world.last_generated),
        length: world.length,
        newest_from: world.newest_from.map(id),
        groups: world.groups.iter().enumerate().map(group).collect(),
        now_ms: world.now_ms,
    };
    let mut policy = TrimPolicy::new();
    if let Some(age) = world.older_than {
        policy = policy.older_than(Duration::from_millis(age));
    }
    if let Some(count) = world.longer_than {
        policy = policy.longer_than(count);
    }
    if policy.check().is_ok() {
        let plan = policy.plan(&stream);
        if let Some(min_id) = plan.min_id {
            assert!(min_id <= stream.last_generated, "the last entry stays");
            for group in &stream.groups {
                assert!(group.last_delivered.successor().is_none_or(|next| min_id <= next), "{min_id} {group:?}");
                assert!(group.oldest_pending.is_none_or(|oldest| min_id <= oldest), "{min_id} {group:?}");
            }
        }
    }
    let Ok(pattern) = NamePattern::new(&world.pattern) else { return };
    if let Ok(policy) = GroupPolicy::new(pattern, Duration::from_hours(1)) {
        let _ = policy.plan(&stream.groups);
    }
});
