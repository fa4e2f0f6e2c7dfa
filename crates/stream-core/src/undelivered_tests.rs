//! Tests of [`Undelivered`] by name. Random histories run against the server in memory, whose counts are those of real
//! servers, where that is at hand: in `stream-consumer`.

use super::*;

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

/// Ids `first` to `last` are in the stream; as many as `last` were added, and none was deleted.
fn facts(first: u64, last: u64, delivered: u64, read: Option<u64>) -> GroupFacts {
    GroupFacts {
        stream: StreamFacts {
            length: (last + 1).saturating_sub(first),
            last_generated: id(last),
            first: (first <= last).then(|| id(first)),
            entries_added: Some(last),
            max_deleted: Some(EntryId::ZERO),
        },
        last: (first <= last).then(|| id(last)),
        delivered: id(delivered),
        read,
        exact: true,
    }
}

fn without_counts(facts: GroupFacts) -> GroupFacts {
    let stream = StreamFacts { entries_added: None, max_deleted: None, ..facts.stream };
    GroupFacts { stream, read: None, exact: false, ..facts }
}

fn gap(after: u64, before: u64, missed: Option<u64>) -> Option<UndeliveredGap> {
    Some(UndeliveredGap { after: EntryId::new(after, u64::MAX), before: id(before), missed })
}

/// The first gap at a position of the group.
fn gap_at(after: u64, before: u64, missed: Option<u64>) -> Option<UndeliveredGap> {
    gap(after, before, missed).map(|gap| UndeliveredGap { after: id(after), ..gap })
}

#[test]
fn what_was_cut_before_anybody_came_is_told_where_the_server_counts() {
    let cut = facts(4, 4, 0, None);
    let mut undelivered = Undelivered::new();
    assert_eq!(undelivered.look(&cut), gap_at(0, 4, Some(3)));
    assert_eq!(undelivered.look(&cut), None, "told once");
    // The group reads what is left, and more is added and finished.
    assert_eq!(undelivered.look(&facts(4, 9, 4, Some(4))), None);
    assert_eq!(undelivered.look(&facts(10, 9, 9, Some(9))), None);
    assert_eq!(Undelivered::new().look(&without_counts(cut)), None, "nobody knows");
    // What was gone before the group was made says its count.
    assert_eq!(Undelivered::new().look(&facts(4, 4, 0, Some(3))), None);
    let old = GroupFacts { exact: false, ..cut };
    assert_eq!(Undelivered::new().look(&old), gap_at(0, 4, Some(3)));
}

#[test]
fn an_emptied_stream_is_told_up_to_its_greatest_id() {
    let mut undelivered = Undelivered::new();
    assert_eq!(undelivered.look(&facts(1, 8, 5, Some(5))), None);
    assert_eq!(undelivered.look(&facts(9, 8, 5, Some(5))), gap_at(5, 8, Some(3)));
    assert_eq!(undelivered.look(&facts(12, 12, 5, Some(5))), {
        let told = UndeliveredGap { after: id(8), before: id(12), missed: Some(3) };
        Some(told)
    });
}

#[test]
fn a_group_that_does_not_move_is_told_each_cut_with_its_own_number() {
    let mut undelivered = Undelivered::new();
    assert_eq!(undelivered.look(&facts(1, 20, 2, Some(2))), None);
    assert_eq!(undelivered.look(&facts(8, 20, 2, Some(2))), gap_at(2, 8, Some(5)));
    assert_eq!(undelivered.look(&facts(10, 20, 2, Some(2))), gap(7, 10, Some(2)));
    assert_eq!(undelivered.look(&facts(10, 20, 2, Some(2))), None);
}

#[test]
fn trimming_what_was_delivered_is_no_gap() {
    for exact in [true, false] {
        let mut undelivered = Undelivered::new();
        for delivered in 0..20 {
            let read = (delivered > 0).then_some(delivered);
            assert_eq!(undelivered.look(&GroupFacts { exact, ..facts(1, 20, delivered, read) }), None);
            let trimmed = GroupFacts { exact, ..facts(delivered + 1, 20, delivered, read) };
            assert_eq!(undelivered.clone().look(&trimmed), None, "{delivered}");
            assert_eq!(Undelivered::new().look(&trimmed), None, "{delivered}");
        }
    }
}

#[test]
fn without_counts_an_entry_that_was_seen_and_is_gone_is_told() {
    let mut undelivered = Undelivered::new();
    // The first undelivered one is not known, but the last is.
    assert_eq!(undelivered.look(&without_counts(facts(1, 10, 2, None))), None);
    assert_eq!(undelivered.look(&without_counts(facts(8, 20, 2, None))), None);
    assert_eq!(undelivered.look(&without_counts(facts(9, 20, 2, None))), gap_at(2, 9, None), "the one that came next");
    assert_eq!(undelivered.look(&without_counts(facts(9, 20, 2, None))), None);
    assert_eq!(undelivered.look(&without_counts(facts(15, 20, 9, None))), None, "9 was delivered");
    assert_eq!(
        undelivered.look(&without_counts(facts(16, 20, 9, None))),
        gap(14, 16, None).map(|gap| UndeliveredGap { after: id(9), ..gap })
    );
}

#[test]
fn a_deletion_further_on_blurs_the_number_and_not_what_was_seen() {
    let deleted = |first, count, delivered| {
        let whole = facts(first, 20, delivered, Some(2));
        GroupFacts { stream: StreamFacts { length: count, max_deleted: Some(id(15)), ..whole.stream }, ..whole }
    };
    let mut undelivered = Undelivered::new();
    assert_eq!(undelivered.look(&deleted(3, 17, 2)), None);
    assert_eq!(undelivered.look(&deleted(6, 14, 2)), gap_at(2, 6, None));
    // Beyond the deletion it would count again, what was told included.
    assert_eq!(undelivered.look(&deleted(17, 4, 2)), gap(5, 17, None));
    assert_eq!(undelivered.look(&deleted(19, 2, 2)), gap(16, 19, Some(2)));
}

#[test]
fn another_stream_or_group_is_taken_as_it_is_found() {
    let known = facts(1, 20, 10, Some(10));
    let check = |what: &str, found: GroupFacts| {
        let mut undelivered = Undelivered::new();
        assert_eq!(undelivered.look(&known), None);
        assert_eq!(undelivered.look(&found), None, "{what}");
        assert_eq!(undelivered.look(&found), None, "{what}");
    };
    check("smaller ids", facts(5, 9, 0, None));
    check("the group set back", facts(8, 20, 0, None));
    check("the group set forward", facts(18, 20, 15, None));
    check("the group's count set", facts(18, 20, 15, Some(1)));
    let fewer = facts(30, 40, 10, Some(10));
    check("fewer entries", GroupFacts { stream: StreamFacts { entries_added: Some(15), ..fewer.stream }, ..fewer });
}

#[test]
fn a_count_that_was_set_is_believed_again_only_when_the_group_has_caught_up() {
    let set = |facts: GroupFacts| {
        let stream = StreamFacts { entries_added: facts.stream.entries_added.map(|added| added + 90), ..facts.stream };
        GroupFacts { stream, ..facts }
    };
    let mut undelivered = Undelivered::new();
    assert_eq!(undelivered.look(&facts(5, 20, 8, Some(8))), None);
    assert_eq!(undelivered.look(&set(facts(5, 20, 8, Some(8)))), None);
    assert_eq!(undelivered.look(&set(facts(12, 20, 11, Some(11)))), None);
    assert_eq!(undelivered.look(&set(facts(12, 20, 20, Some(110)))), None);
    assert_eq!(undelivered.look(&set(facts(12, 30, 20, Some(110)))), None);
    assert_eq!(undelivered.look(&set(facts(24, 30, 20, Some(110)))), gap_at(20, 24, Some(3)));
}

#[test]
fn a_server_that_does_not_count_what_it_skips_is_believed_step_by_step() {
    let old = |first, last, delivered, read| GroupFacts { exact: false, ..facts(first, last, delivered, read) };
    // A first look does not know what was skipped before it.
    assert_eq!(Undelivered::new().look(&old(9, 20, 8, Some(3))), None);
    let mut undelivered = Undelivered::new();
    assert_eq!(undelivered.look(&old(1, 20, 0, None)), None);
    assert_eq!(undelivered.look(&old(1, 20, 2, Some(2))), None);
    assert_eq!(undelivered.look(&old(8, 20, 2, Some(2))), gap(0, 8, Some(5)));
    // It has read 8-0 to 10-0 as the third to the fifth.
    assert_eq!(undelivered.look(&old(11, 20, 10, Some(5))), None);
    assert_eq!(undelivered.look(&old(14, 20, 10, Some(5))), gap(10, 14, Some(3)));
    // What comes back may have lost count.
    undelivered.was_away();
    assert_eq!(undelivered.look(&old(14, 20, 16, Some(6))), None);
    assert_eq!(undelivered.look(&old(17, 20, 16, Some(6))), None);
}
