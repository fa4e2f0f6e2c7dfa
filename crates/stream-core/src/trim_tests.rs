//! The floor of trimming, case by case and over random streams.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn id(number: u64) -> EntryId {
    EntryId::new(number, 0)
}

fn group(name: &str, last_delivered: u64, oldest_pending: Option<u64>) -> GroupState {
    GroupState {
        name: GroupName::new(name).unwrap(),
        last_delivered: id(last_delivered),
        pending: u64::from(oldest_pending.is_some()),
        oldest_pending: oldest_pending.map(id),
        consumers: 1,
        unchanged: Some(Duration::ZERO),
    }
}

/// Entries 1 to 100, a millisecond apart, seen at 1000 ms.
fn stream(groups: Vec<GroupState>) -> StreamState {
    StreamState { first: Some(id(1)), last_generated: id(100), length: 100, newest_from: None, groups, now_ms: 1000 }
}

#[track_caller]
fn check(policy: &TrimPolicy, stream: &StreamState, min_id: Option<EntryId>) -> TrimPlan {
    let plan = policy.plan(stream);
    assert_eq!(plan.min_id, min_id, "{plan:?}");
    plan
}

fn pinning_group(plan: &TrimPlan) -> Option<(String, Need)> {
    match &plan.pinned_by {
        Pin::Group { name, need, .. } => Some((name.to_string(), *need)),
        _ => None,
    }
}

#[test]
fn pending_entries_and_new_groups_are_kept() {
    let policy = TrimPolicy::new();
    let plan = check(&policy, &stream(vec![group("a", 100, Some(5)), group("b", 100, None)]), Some(id(5)));
    assert_eq!(pinning_group(&plan), Some(("a".to_owned(), Need::Pending(id(5)))));
    let plan = check(&policy, &stream(vec![group("a", 100, Some(5)), group("new", 0, None)]), None);
    assert_eq!(pinning_group(&plan), Some(("new".to_owned(), Need::Everything)));
    check(&policy, &stream(vec![group("a", 40, None), group("b", 70, None)]), Some(EntryId::new(40, 1)));
}

#[test]
fn a_plan_is_outdated_when_somebody_needs_what_it_takes() {
    let hour = Duration::from_hours(1);
    let policy = TrimPolicy::new().exclude_stale(NamePattern::new("stale").unwrap(), hour);
    let outdated = |groups: Vec<GroupState>| policy.is_outdated(EntryId::new(40, 1), &stream(groups));
    let stale = |unchanged| GroupState { unchanged, ..group("stale", 70, Some(6)) };
    assert!(!outdated(vec![group("a", 40, None), group("b", 70, Some(60))]));
    assert!(!outdated(vec![]), "what is gone needs nothing");
    assert!(outdated(vec![group("b", 39, None)]));
    assert!(outdated(vec![group("b", 70, Some(40))]), "it was set back and has read past its place");
    assert!(outdated(vec![GroupState { pending: 1, ..group("b", 70, None) }]));
    assert!(outdated(vec![group("new", 0, None)]));
    assert!(outdated(vec![group("ahead", 101, None)]), "the stream is another one");
    assert!(!outdated(vec![stale(Some(hour))]));
    assert!(outdated(vec![stale(Some(hour / 2))]), "it has woken");
    assert!(outdated(vec![stale(None)]));
    assert!(policy.is_outdated(id(101), &stream(vec![])), "the last entry would go");
}

#[test]
fn ids_are_numbers() {
    let mut stream = stream(vec![group("a", 1, None), group("b", 1, None)]);
    stream.last_generated = EntryId::new(100, 50);
    stream.groups[0].last_delivered = EntryId::new(100, 2);
    stream.groups[1].last_delivered = EntryId::new(100, 10);
    check(&TrimPolicy::new(), &stream, Some(EntryId::new(100, 3)));
}

#[test]
fn the_last_entry_stays() {
    let plan = check(&TrimPolicy::new(), &stream(vec![group("a", 100, None)]), Some(id(100)));
    assert_eq!(plan.pinned_by, Pin::Newest);
}

#[test]
fn what_is_not_known_counts_as_needed() {
    let mut unknown = group("a", 100, None);
    unknown.pending = 3;
    let plan = check(&TrimPolicy::new(), &stream(vec![unknown]), None);
    assert_eq!(pinning_group(&plan), Some(("a".to_owned(), Need::UnknownPending)));
    let plan = check(&TrimPolicy::new(), &stream(vec![group("old", 500, None)]), None);
    assert_eq!(pinning_group(&plan), Some(("old".to_owned(), Need::AheadOfStream)));
    let plan = check(&TrimPolicy::new().longer_than(10), &stream(vec![group("a", 100, None)]), None);
    assert_eq!(plan.pinned_by, Pin::Length);
}

#[test]
fn without_groups_entries_go_by_age_and_number_only() {
    assert_eq!(check(&TrimPolicy::new(), &stream(vec![]), None).pinned_by, Pin::NoGroup);
    let aged = TrimPolicy::new().older_than(Duration::from_millis(950));
    assert_eq!(check(&aged, &stream(vec![]), Some(id(50))).pinned_by, Pin::Age);
    let mut stream = stream(vec![]);
    stream.newest_from = Some(id(91));
    check(&TrimPolicy::new().longer_than(10), &stream, Some(id(91)));
    check(&TrimPolicy::new().longer_than(100), &stream, None);
    stream.first = None;
    assert_eq!(check(&aged, &stream, None).pinned_by, Pin::Empty);
}

#[test]
fn combined_rules_keep_what_any_of_them_keeps() {
    let mut stream = stream(vec![group("a", 30, None)]);
    stream.newest_from = Some(id(21));
    let aged = |ms: u64| TrimPolicy::new().older_than(Duration::from_millis(1000 - ms)).longer_than(80);
    assert_eq!(check(&aged(10), &stream, Some(id(10))).pinned_by, Pin::Age);
    assert_eq!(check(&aged(25), &stream, Some(id(21))).pinned_by, Pin::Length);
    check(&TrimPolicy::new().older_than(Duration::ZERO), &stream, Some(EntryId::new(30, 1)));
    check(&TrimPolicy::new().older_than(Duration::MAX), &stream, None);
}

#[test]
fn stale_groups_pin_unless_they_are_named() {
    let hour = Duration::from_hours(1);
    let mut dead = group("ephemeral-1", 10, Some(3));
    dead.unchanged = Some(2 * hour);
    let mut quiet = group("billing", 10, None);
    quiet.unchanged = Some(2 * hour);
    let live = group("live", 90, None);
    let named = TrimPolicy::new().exclude_stale(NamePattern::new("ephemeral-*").unwrap(), hour);
    assert_eq!(named.check(), Ok(()));

    check(&TrimPolicy::new(), &stream(vec![dead.clone(), live.clone()]), Some(id(3)));
    let plan = check(&named, &stream(vec![dead.clone(), live.clone()]), Some(EntryId::new(90, 1)));
    let excluded: Vec<_> = plan.excluded.iter().map(|group| (group.name.to_string(), group.pending)).collect();
    assert_eq!(excluded, [("ephemeral-1".to_owned(), 1)]);
    let plan = check(&named, &stream(vec![dead.clone(), quiet, live.clone()]), Some(EntryId::new(10, 1)));
    assert_eq!(pinning_group(&plan).unwrap().0, "billing");

    for unchanged in [None, Some(hour / 2)] {
        dead.unchanged = unchanged;
        assert!(check(&named, &stream(vec![dead.clone(), live.clone()]), Some(id(3))).excluded.is_empty());
    }
}

#[test]
fn the_last_group_left_out_leaves_nobody_who_finished() {
    let mut dead = group("dead", 10, None);
    dead.unchanged = Some(Duration::MAX);
    let policy = TrimPolicy::new().exclude_stale(NamePattern::new("*").unwrap(), Duration::from_hours(1));
    assert_eq!(check(&policy, &stream(vec![dead]), None).pinned_by, Pin::NoGroup);
}

#[test]
fn excluding_groups_at_once_is_refused() {
    let policy = TrimPolicy::new().exclude_stale(NamePattern::new("*").unwrap(), Duration::from_secs(5));
    assert!(matches!(policy.check(), Err(PolicyError::TooShort { .. })));
}

#[test]
fn approximate_trimming_is_asked_for() {
    let stream = stream(vec![group("a", 50, None)]);
    assert!(!TrimPolicy::new().plan(&stream).approximate);
    assert!(TrimPolicy::new().approximate().plan(&stream).approximate);
}

/// A group's whole state on the server, of which a [`GroupState`] is the summary.
#[derive(Debug, Clone)]
struct Group {
    state: GroupState,
    pending: BTreeSet<EntryId>,
}

fn entries() -> impl Strategy<Value = BTreeSet<EntryId>> {
    proptest::collection::btree_set((0_u64..30, 0_u64..12).prop_map(|(ms, seq)| EntryId::new(ms, seq + 1)), 1..80)
}

fn groups(entries: &BTreeSet<EntryId>) -> impl Strategy<Value = Vec<Group>> + use<> {
    let entries: Vec<EntryId> = entries.iter().copied().collect();
    let one = (
        proptest::option::weighted(0.8, any::<prop::sample::Index>()),
        proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        prop::sample::select(vec!["live", "stale-1", "stale-2"]),
        proptest::option::of(0_u64..7200),
    );
    proptest::collection::vec(one, 0..5).prop_map(move |groups| {
        let group =
            |(delivered, pending, name, unchanged): (Option<prop::sample::Index>, Vec<_>, &str, Option<u64>)| {
                let delivered = delivered.map_or(0, |at| at.index(entries.len()) + 1);
                let pending: BTreeSet<EntryId> = match delivered {
                    0 => BTreeSet::new(),
                    count => pending.iter().map(|at: &prop::sample::Index| entries[at.index(count)]).collect(),
                };
                let state = GroupState {
                    name: GroupName::new(name).unwrap(),
                    last_delivered: delivered.checked_sub(1).map_or(EntryId::ZERO, |at| entries[at]),
                    pending: pending.len() as u64,
                    oldest_pending: pending.first().copied(),
                    consumers: 0,
                    unchanged: unchanged.map(Duration::from_secs),
                };
                Group { state, pending }
            };
        groups.into_iter().map(group).collect()
    })
}

fn worlds() -> impl Strategy<Value = (BTreeSet<EntryId>, Vec<Group>)> {
    entries().prop_flat_map(|entries| (groups(&entries), Just(entries)).prop_map(|(groups, entries)| (entries, groups)))
}

proptest! {
    #[test]
    fn trimming_takes_only_what_every_group_is_done_with(
        (entries, groups) in worlds(),
        older_than in proptest::option::of(0_u64..40),
        longer_than in proptest::option::of(0_usize..90),
        exclude: bool,
    ) {
        let now_ms = 35;
        let hour = Duration::from_hours(1);
        let mut policy = TrimPolicy::new();
        if let Some(age) = older_than {
            policy = policy.older_than(Duration::from_millis(age));
        }
        if let Some(count) = longer_than {
            policy = policy.longer_than(count as u64);
        }
        if exclude {
            policy = policy.exclude_stale(NamePattern::new("stale-*").unwrap(), hour);
        }
        let stream = StreamState {
            first: entries.first().copied(),
            last_generated: *entries.last().unwrap(),
            length: entries.len() as u64,
            newest_from: longer_than.and_then(|count| entries.iter().rev().nth(count.checked_sub(1)?).copied()),
            groups: groups.iter().map(|group| group.state.clone()).collect(),
            now_ms,
        };
        let plan = policy.plan(&stream);
        let (gone, kept): (BTreeSet<_>, BTreeSet<_>) =
            entries.iter().partition(|id| plan.min_id.is_some_and(|min_id| **id < min_id));
        prop_assert_eq!(plan.min_id.is_some(), !gone.is_empty(), "a plan that takes nothing says so");
        prop_assert!(kept.contains(entries.last().unwrap()));

        let stale = |group: &&Group| {
            exclude && group.state.name.as_bytes().starts_with(b"stale-") && group.state.unchanged >= Some(hour)
        };
        prop_assert_eq!(plan.excluded.len(), groups.iter().filter(stale).count());
        for group in groups.iter().filter(|group| !stale(group)) {
            for id in &gone {
                prop_assert!(*id <= group.state.last_delivered, "{} was not delivered to {:?}", id, group);
                prop_assert!(!group.pending.contains(id), "{} is pending in {:?}", id, group);
            }
        }
        if let Some(age) = older_than {
            prop_assert!(gone.iter().all(|id| id.ms() + age < now_ms));
        }
        if let Some(count) = longer_than {
            prop_assert!(kept.len() >= count.min(entries.len()));
        }

        // And it takes all of that: the first entry kept is needed by somebody.
        if older_than.is_none() && longer_than.is_none() && groups.iter().any(|group| !stale(&group)) {
            let first = *kept.first().unwrap();
            let needed = groups
                .iter()
                .filter(|group| !stale(group))
                .any(|group| first > group.state.last_delivered || group.pending.contains(&first));
            prop_assert!(needed || Some(&first) == entries.last(), "{} is kept for nobody", first);
        }
    }
}
