//! Plans for trimming and clean-up: whatever a server says of its groups, no plan takes what a group still needs.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use stream_core::{
    ConsumerAction, ConsumerName, ConsumerPolicy, ConsumerState, EntryId, GroupAction, GroupName, GroupPolicy,
    GroupState, NamePattern, StreamState, TrimPolicy,
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
    consumers(&world);
    let Ok(pattern) = NamePattern::new(&world.pattern) else { return };
    let hour = Duration::from_hours(1);
    let policy = GroupPolicy::new(pattern.clone(), hour).expect("an hour is long enough");
    let plan = policy.plan(&stream.groups);
    assert_eq!(plan.len(), stream.groups.len());
    for (group, (name, action)) in stream.groups.iter().zip(plan) {
        assert_eq!(group.name, name);
        let abandoned = group.consumers == 0 && group.pending == 0 && group.oldest_pending.is_none();
        let long_ago = group.unchanged.is_some_and(|unchanged| unchanged >= hour);
        let was_read = group.last_delivered > EntryId::ZERO;
        match action {
            GroupAction::Remove { last_delivered } => {
                assert!(abandoned && long_ago && was_read && pattern.matches(&name), "{group:?}");
                assert_eq!(last_delivered, group.last_delivered);
            }
            kept => assert!(!(abandoned && long_ago && was_read && pattern.matches(&name)), "{kept:?}: {group:?}"),
        }
    }
});

/// A consumer goes only if it holds nothing and was silent for long; and where silence may mean that nothing came, one stays.
fn consumers(world: &World) {
    let Ok(policy) = ConsumerPolicy::new(Duration::from_millis(world.now_ms)) else { return };
    let state = |(nth, (pending, idle, _)): (usize, &(u64, u32, Option<u32>))| ConsumerState {
        name: ConsumerName::new(format!("c{nth}")).expect("the name is not empty"),
        pending: *pending,
        idle: Duration::from_millis((*idle).into()),
    };
    let all: Vec<ConsumerState> = world.consumers.iter().enumerate().map(state).collect();
    let own = world.consumers.iter().position(|(.., own)| own.is_some()).map(|own| all[own].name.clone());
    for polls_count in [false, true] {
        let plan = policy.plan(&all, own.as_ref(), polls_count);
        assert_eq!(plan.len(), all.len());
        for (consumer, (name, action)) in all.iter().zip(&plan) {
            assert_eq!(&consumer.name, name);
            if matches!(action, ConsumerAction::Remove { .. }) {
                assert!(consumer.pending == 0 && Some(name) != own.as_ref(), "{consumer:?}");
                assert!(consumer.idle >= Duration::from_millis(world.now_ms), "{consumer:?}");
            }
        }
        let removed = plan.iter().filter(|(_, action)| matches!(action, ConsumerAction::Remove { .. })).count();
        assert!(polls_count || all.is_empty() || removed < all.len(), "a group without consumers looks abandoned");
    }
}
