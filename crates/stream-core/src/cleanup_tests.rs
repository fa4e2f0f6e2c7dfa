//! What is removed and what is not, case by case and over random states.

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn consumer(name: &str, pending: u64, idle: Duration) -> ConsumerState {
    ConsumerState { name: ConsumerName::new(name).unwrap(), pending, idle }
}

fn actions(policy: &ConsumerPolicy, consumers: &[ConsumerState], polls_count: bool) -> Vec<ConsumerAction> {
    let own = ConsumerName::new("own").unwrap();
    policy.plan(consumers, Some(&own), polls_count).into_iter().map(|(_, action)| action).collect()
}

/// A group that has every reason to be removed.
fn abandoned() -> GroupState {
    GroupState {
        name: GroupName::new("ephemeral-1").unwrap(),
        last_delivered: EntryId::new(5, 0),
        pending: 0,
        oldest_pending: None,
        consumers: 0,
        unchanged: Some(HOUR),
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut GroupState), expected: GroupAction) {
    let policy = GroupPolicy::new(NamePattern::new("ephemeral-*").unwrap(), HOUR).unwrap();
    let mut group = abandoned();
    change(&mut group);
    assert_eq!(policy.plan(&[group.clone()]), [(group.name, expected)]);
}

#[test]
fn limits_that_would_hit_the_living_are_refused() {
    let pattern = NamePattern::new("*").unwrap();
    assert!(matches!(ConsumerPolicy::new(HOUR / 120), Err(PolicyError::TooShort { .. })));
    assert!(matches!(GroupPolicy::new(pattern, HOUR / 120), Err(PolicyError::TooShort { .. })));
}

#[test]
fn a_dead_consumer_goes_only_when_it_holds_nothing() {
    let policy = ConsumerPolicy::new(HOUR).unwrap();
    let consumers = [
        consumer("dead", 0, HOUR),
        consumer("holder", 3, HOUR),
        consumer("live", 0, HOUR / 2),
        consumer("own", 0, 9 * HOUR),
    ];
    assert_eq!(
        actions(&policy, &consumers, true),
        [
            ConsumerAction::Remove { idle: HOUR },
            ConsumerAction::ClaimFirst,
            ConsumerAction::KeepActive,
            ConsumerAction::KeepSelf
        ]
    );
}

#[test]
fn where_polls_do_not_count_the_last_consumer_stays() {
    let policy = ConsumerPolicy::new(HOUR).unwrap();
    let consumers = [consumer("a", 0, 3 * HOUR), consumer("b", 0, 2 * HOUR)];
    let remove = |hours| ConsumerAction::Remove { idle: hours * HOUR };
    assert_eq!(actions(&policy, &consumers, true), [remove(3), remove(2)]);
    assert_eq!(actions(&policy, &consumers, false), [remove(3), ConsumerAction::KeepLast]);
}

#[test]
fn a_group_goes_only_when_everything_speaks_for_it() {
    check(|_| {}, GroupAction::Remove { last_delivered: EntryId::new(5, 0) });
    check(|group| group.name = GroupName::new("billing").unwrap(), GroupAction::KeepUnnamed);
    check(|group| group.consumers = 1, GroupAction::KeepConsumers);
    check(|group| group.pending = 1, GroupAction::KeepPending);
    check(|group| group.oldest_pending = Some(EntryId::new(1, 0)), GroupAction::KeepPending);
    check(|group| group.last_delivered = EntryId::ZERO, GroupAction::KeepNew);
    check(|group| group.unchanged = Some(HOUR / 2), GroupAction::KeepChanged);
    check(|group| group.unchanged = None, GroupAction::KeepChanged);
}

#[test]
fn further_patterns_add_names() {
    let policy = GroupPolicy::new(NamePattern::new("a").unwrap(), HOUR).unwrap();
    assert_eq!(policy.plan(&[abandoned()])[0].1, GroupAction::KeepUnnamed);
    let policy = policy.or(NamePattern::new("ephemeral-?").unwrap());
    assert!(matches!(policy.plan(&[abandoned()])[0].1, GroupAction::Remove { .. }));
}

#[test]
fn a_watch_counts_from_the_last_change() {
    let mut watch = GroupWatch::new();
    let mut unchanged = |change: &dyn Fn(&mut GroupState), now_ms: u64| {
        let mut groups = [abandoned()];
        change(&mut groups[0]);
        watch.observe(&mut groups, now_ms);
        groups[0].unchanged.unwrap().as_millis()
    };
    assert_eq!(unchanged(&|_| {}, 1000), 0, "seen for the first time");
    assert_eq!(unchanged(&|_| {}, 4000), 3000);
    assert_eq!(unchanged(&|group| group.consumers = 1, 5000), 0);
    assert_eq!(unchanged(&|_| {}, 6000), 0);
    assert_eq!(unchanged(&|group| group.last_delivered = EntryId::new(6, 0), 7000), 0);
    assert_eq!(unchanged(&|group| group.last_delivered = EntryId::new(6, 0), 7500), 500);
    assert_eq!(unchanged(&|group| group.last_delivered = EntryId::new(6, 0), 100), 0, "the clock went back");
}

/// The server that knew when a consumer asked last has been replaced by one that does not.
#[test]
fn what_was_heard_of_a_group_is_not_forgotten_with_its_server() {
    let mut watch = GroupWatch::new();
    let mut unchanged = |heard: Option<Option<u64>>, now_ms: u64| {
        let mut groups = [abandoned()];
        watch.observe(&mut groups, now_ms);
        if let Some(idle) = heard {
            groups[0].unchanged = groups[0].unchanged.min(idle.map(Duration::from_millis));
            watch.heard(&groups, now_ms);
        }
        groups[0].unchanged.map(|unchanged| unchanged.as_millis())
    };
    assert_eq!(unchanged(None, 1000), Some(0), "seen for the first time");
    assert_eq!(unchanged(Some(Some(700)), 5000), Some(700), "a consumer asked at 4300");
    assert_eq!(unchanged(Some(Some(9999)), 6000), Some(1700));
    assert_eq!(unchanged(Some(Some(3000)), 8000), Some(3000), "less is known than was before");
    assert_eq!(unchanged(Some(None), 9000), None, "nobody could tell");
    assert_eq!(unchanged(Some(Some(9999)), 9500), Some(500));
}

#[test]
fn a_group_that_was_gone_is_a_new_one() {
    let mut watch = GroupWatch::new();
    watch.observe(&mut [abandoned()], 0);
    watch.observe(&mut [], 1000);
    assert!(watch.seen.is_empty());
    let mut groups = [abandoned()];
    watch.observe(&mut groups, 2000);
    assert_eq!(groups[0].unchanged, Some(Duration::ZERO));
}

fn group_states() -> impl Strategy<Value = GroupState> {
    let name = prop::sample::select(vec!["ephemeral-1", "ephemeral-2", "billing"]);
    (name, 0_u64..2, 0_u64..2, any::<bool>(), 0_u64..2, proptest::option::of(0_u64..7200)).prop_map(
        |(name, last, pending, oldest, consumers, unchanged)| GroupState {
            name: GroupName::new(name).unwrap(),
            last_delivered: EntryId::new(last, 0),
            pending,
            oldest_pending: oldest.then_some(EntryId::new(1, 0)),
            consumers,
            unchanged: unchanged.map(Duration::from_secs),
        },
    )
}

proptest! {
    #[test]
    fn nothing_that_is_in_use_is_ever_removed(groups in proptest::collection::vec(group_states(), 0..20)) {
        let policy = GroupPolicy::new(NamePattern::new("ephemeral-*").unwrap(), HOUR).unwrap();
        let plan = policy.plan(&groups);
        prop_assert_eq!(plan.len(), groups.len());
        for (group, (name, action)) in groups.iter().zip(plan) {
            prop_assert_eq!(&group.name, &name);
            let removable = name.as_bytes().starts_with(b"ephemeral-")
                && group.consumers == 0
                && group.pending == 0
                && group.oldest_pending.is_none()
                && group.last_delivered > EntryId::ZERO
                && group.unchanged >= Some(HOUR);
            prop_assert_eq!(matches!(action, GroupAction::Remove { .. }), removable);
        }
    }

    #[test]
    fn no_consumer_that_holds_anything_is_ever_removed(
        states in proptest::collection::vec((0_u64..2, 0_u64..7200), 0..12),
        own in 0_usize..12,
        polls_count: bool,
    ) {
        let consumers: Vec<ConsumerState> = states
            .iter()
            .enumerate()
            .map(|(at, (pending, idle))| consumer(&at.to_string(), *pending, Duration::from_secs(*idle)))
            .collect();
        let own = ConsumerName::new(own.to_string()).unwrap();
        let plan = ConsumerPolicy::new(HOUR).unwrap().plan(&consumers, Some(&own), polls_count);
        let mut left = 0;
        for (consumer, (name, action)) in consumers.iter().zip(&plan) {
            prop_assert_eq!(&consumer.name, name);
            if let ConsumerAction::Remove { idle } = *action {
                prop_assert!(consumer.pending == 0 && consumer.idle >= HOUR && *name != own && idle == consumer.idle);
            } else {
                left += 1;
            }
        }
        prop_assert!(polls_count || consumers.is_empty() || left > 0, "a group is not emptied on a guess");
    }

    /// What a watch says is exactly the time since the last look that saw something else.
    #[test]
    fn a_watch_never_claims_more_than_it_saw(looks in proptest::collection::vec((0_u64..2, 0_u64..1000), 1..40)) {
        let mut watch = GroupWatch::new();
        let (mut now, mut since, mut last) = (0, 0, None);
        for (consumers, later) in looks {
            now += later;
            let mut groups = [GroupState { consumers, ..abandoned() }];
            watch.observe(&mut groups, now);
            if last != Some(consumers) {
                (since, last) = (now, Some(consumers));
            }
            prop_assert_eq!(groups[0].unchanged, Some(Duration::from_millis(now - since)));
        }
    }
}
