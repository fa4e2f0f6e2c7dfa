//! Lost, doubled, acknowledged or trimmed too early, pending, overlapping.

use super::*;

#[test]
fn a_history_in_which_all_went_well_holds_and_its_numbers_are_right() {
    let counts = good().holds();
    assert_eq!((counts.published, counts.handled, counts.dead_lettered, counts.starts), (5, 2, 3, 8));
    assert_eq!((counts.max_attempt, counts.redelivered, counts.handled_again, counts.burned), (3, 0, 0, 0));
}

#[test]
fn the_order_in_which_events_are_written_down_is_of_no_matter() {
    let case = good();
    let mut events = case.history.events().to_vec();
    events.reverse();
    let mut history = History::default();
    history.extend(events);
    assert_eq!(history.check(&case.expectations), case.verdict());
}

#[test]
fn a_message_that_comes_to_no_end_is_lost() {
    let mut case = good();
    case.published(6, Fate::Handled);
    case.fails(Rule::Lost, "6-0 (message 6) was neither handled nor dead-lettered");
    case.failed(100, 1, 6, 1);
    case.fails(Rule::Lost, "attempt 1 in process 1 from 100.0 ms, failed at 110.0");
    case.done(400, 1, 6, 2).holds();
}

#[test]
fn a_message_that_is_not_there_at_all_is_lost() {
    let mut case = good();
    case.expectations.messages = 6;
    case.fails(Rule::Lost, "message 6 is not on the stream");
    case.at(6, What::Unconfirmed { number: 6, key: None, fate: Fate::Handled }).holds();
}

#[test]
fn what_a_server_has_forgotten_is_not_lost_by_the_consumers() {
    let mut case = good();
    case.published(6, Fate::Handled).at(9, What::Forgotten { entry: id(6) });
    case.holds();
}

#[test]
fn what_is_still_to_do_is_no_loss_before_the_end_and_must_not_be_there_in_the_end() {
    let mut case = good();
    case.published(6, Fate::Handled).at(70_001, What::Pending { entry: id(6) });
    case.fails(Rule::Pending, "6-0 (message 6) is pending in the end; never started");
    case.expectations.settled = false;
    case.holds();
    // After what was delivered last: nobody has read it.
    let mut case = good();
    case.published(7, Fate::Handled);
    case.fails(Rule::Lost, "7-0");
    case.expectations.settled = false;
    case.holds();
    case.at(70_002, What::End { delivered: id(7) });
    case.fails(Rule::Lost, "7-0");
}

#[test]
fn a_message_is_there_twice_only_if_its_confirmation_got_lost() {
    let mut case = good();
    case.at(6, What::Published { entry: id(6), number: 1, key: None, fate: Fate::Handled }).done(100, 1, 6, 1);
    // A run says which message it was for.
    let mut case_of_runs = good();
    case_of_runs.at(100, What::Started { process: 1, entry: id(9), number: 1, attempt: 1 });
    case_of_runs.finished(110, 1, 9, 1, Returned::Done);
    case_of_runs.fails(Rule::Doubled, "9-0 (message 1) is a copy of a message that was sent once");
    case_of_runs.at(5, What::Unconfirmed { number: 1, key: None, fate: Fate::Handled });
    case_of_runs.holds();
    let verdict = case.verdict();
    assert_eq!(verdict.count(Rule::Doubled), 1, "{verdict:?}");
    assert_eq!(verdict.count(Rule::Journal), 1, "the run was for another message: {verdict:?}");
}

#[test]
fn a_copy_that_was_delivered_has_to_end_as_well() {
    let mut case = good();
    case.at(5, What::Unconfirmed { number: 1, key: None, fate: Fate::Handled });
    case.at(100, What::Started { process: 1, entry: id(9), number: 1, attempt: 1 });
    case.fails(Rule::Lost, "9-0 (message 1), a copy, came to no end");
    case.finished(110, 1, 9, 1, Returned::Done).holds();
}

#[test]
fn nothing_is_acknowledged_before_its_handler_returned() {
    let mut case = good();
    case.at(109, What::Acknowledged { entry: id(1) });
    case.fails(Rule::AcknowledgedEarly, "1-0 (message 1) was not pending any more at 109.0 ms");
    let mut case = good();
    case.at(110, What::Acknowledged { entry: id(1) }).holds();
    // A failed run is no outcome.
    let mut case = good();
    case.at(400, What::Acknowledged { entry: id(2) });
    case.fails(Rule::AcknowledgedEarly, "2-0");
}

#[test]
fn the_group_is_done_only_with_what_had_its_outcome() {
    let mut case = good();
    case.at(200, What::DoneUpTo { entry: id(1) }).holds();
    case.at(300, What::DoneUpTo { entry: id(5) });
    case.fails(Rule::AcknowledgedEarly, "2-0 (message 2); the group was done with it at 300.0 ms");
    let mut case = good();
    case.at(520, What::DoneUpTo { entry: id(5) }).holds();
}

#[test]
fn what_a_failover_took_back_was_not_seen() {
    let mut case = good();
    case.at(300, What::DoneUpTo { entry: id(5) }).at(301, What::TrimmedBelow { entry: id(3) });
    assert_eq!(case.verdict().violations.len(), 2, "{:?}", case.verdict());
    case.at(400, What::GroupLost { since: 290 * MS }).holds();
}

#[test]
fn nothing_is_trimmed_before_its_outcome() {
    let mut case = good();
    case.at(200, What::TrimmedBelow { entry: id(2) }).holds();
    case.at(300, What::TrimmedBelow { entry: id(3) });
    case.fails(Rule::TrimmedEarly, "2-0 (message 2); it was gone at 300.0 ms");
    let mut case = good();
    case.published(6, Fate::Handled).at(300, What::TrimmedBelow { entry: id(7) }).done(400, 1, 6, 1);
    assert_eq!(case.verdict().count(Rule::TrimmedEarly), 2, "also message 2: {:?}", case.verdict());
}

#[test]
fn two_live_owners_must_not_run_an_entry_at_a_time() {
    let again = |case: &mut Case| {
        case.published(6, Fate::Handled).started(1_000, 1, 6, 1);
        case.done(5_000, 2, 6, 2);
    };
    let mut case = good();
    again(&mut case);
    case.finished(6_000, 1, 6, 1, Returned::Done);
    // That it was claimed from somebody who lives is wrong for its attempt as well.
    let verdict = case.verdict();
    assert_eq!((verdict.count(Rule::Overlapping), verdict.count(Rule::Attempts)), (1, 0), "{verdict:?}");

    let mut dead = good();
    again(&mut dead);
    dead.ended(4_999, 1, Ending::Killed).holds();
    let mut alive = good();
    again(&mut alive);
    alive.ended(5_001, 1, Ending::Killed).fails(Rule::Overlapping, "6-0 (message 6): attempt 1 in process 1");
}

#[test]
fn an_owner_that_was_silent_for_a_lease_or_was_told_may_be_overlapped() {
    let again = |case: &mut Case, second: u64| {
        case.published(6, Fate::Handled).started(1_000, 1, 6, 1).finished(20_000, 1, 6, 1, Returned::Done);
        case.done(second, 2, 6, 2);
    };
    let mut case = good();
    again(&mut case, 6_000);
    case.silent(Some(1), Cause::Frozen, 2_000, 6_500);
    assert_eq!(case.holds().excused_overlaps, 1);
    // Shorter than the lease.
    let mut case = good();
    again(&mut case, 6_000);
    case.silent(Some(1), Cause::Frozen, 5_000, 6_500);
    case.fails(Rule::Overlapping, "6-0");
    // Long over.
    let mut case = good();
    again(&mut case, 10_000);
    case.silent(Some(1), Cause::Frozen, 2_000, 6_500);
    case.fails(Rule::Overlapping, "6-0");
    // Of somebody else.
    let mut case = good();
    again(&mut case, 6_000);
    case.silent(Some(3), Cause::Frozen, 2_000, 6_500);
    case.fails(Rule::Overlapping, "6-0");
    case.silent(None, Cause::Server, 2_000, 6_500).holds();
    // Told before the second began, or after.
    let mut case = good();
    again(&mut case, 6_000);
    case.silent(Some(3), Cause::Frozen, 2_000, 6_500).at(6_001, What::LeaseLost { process: 1, entry: id(6) });
    case.fails(Rule::Overlapping, "6-0");
    case.at(5_900, What::LeaseLost { process: 1, entry: id(6) }).holds();
}

#[test]
fn a_lost_group_may_be_overlapped_by_what_ran_when_it_was_lost() {
    let again = |case: &mut Case, lost: u64, second: u64| {
        case.published(6, Fate::Handled).started(1_000, 1, 6, 1).finished(20_000, 1, 6, 1, Returned::Done);
        case.done(second, 2, 6, 1).lost_group(lost);
    };
    let mut case = good();
    again(&mut case, 2_000, 2_100);
    case.holds();
    let mut case = good();
    case.published(6, Fate::Handled).lost_group(2_000);
    case.started(6_000, 1, 6, 1).finished(9_000, 1, 6, 1, Returned::Done).done(7_000, 2, 6, 2);
    let verdict = case.verdict();
    assert_eq!(verdict.count(Rule::Overlapping), 1, "{verdict:?}");
}

#[test]
fn records_that_do_not_fit_together_are_noticed() {
    let mut case = good();
    case.started(100, 1, 9, 1);
    case.fails(Rule::Journal, "9-0 (message 9) was handled or dead-lettered, and nobody published it");
    let mut case = good();
    case.finished(700, 3, 1, 1, Returned::Done);
    case.fails(Rule::Journal, "process 3 ended 1-0 without a beginning");
    let mut case = good();
    case.started(700, 1, 4, 1).ended(701, 1, Ending::Killed);
    case.fails(Rule::Journal, "cannot be decoded, but its handler was started");
    let mut case = good();
    case.at(1, What::Broken { why: "a line was cut".to_owned() });
    case.fails(Rule::Journal, "a line was cut");
}

#[test]
fn what_was_trimmed_about_when_the_group_was_lost_may_be_gone() {
    let mut case = good();
    case.published(6, Fate::Handled).at(20_000, What::TrimmedBelow { entry: id(7) });
    assert_eq!(case.verdict().count(Rule::Lost), 1, "{:?}", case.verdict());
    let mut long_before = case.clone();
    long_before.lost_group(1_000);
    assert_eq!(long_before.verdict().count(Rule::Lost), 1);
    let mut afterwards = case.clone();
    afterwards.lost_group(21_000);
    assert_eq!(afterwards.verdict().count(Rule::Lost), 1);
    case.lost_group(18_000);
    assert_eq!(case.verdict().count(Rule::Lost), 0);
}

#[test]
fn two_silences_with_a_moment_between_them_may_cost_a_lease() {
    let mut case = good();
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).done(3_900, 2, 6, 2);
    case.finished(4_500, 1, 6, 1, Returned::Failed);
    case.silent(Some(1), Cause::Network, 1_100, 2_500);
    let overlaps = |case: &Case| case.verdict().count(Rule::Overlapping);
    assert_eq!(overlaps(&case), 1, "{:?}", case.verdict());
    let mut apart = case.clone();
    apart.silent(Some(1), Cause::Network, 3_300, 4_400);
    assert_eq!(overlaps(&apart), 1, "{:?}", apart.verdict());
    case.silent(Some(1), Cause::Network, 2_600, 4_400);
    assert_eq!(overlaps(&case), 0, "{:?}", case.verdict());
}

#[test]
fn a_copy_that_nobody_counts_on_may_go_with_the_server_that_had_it() {
    let mut case = good();
    case.at(6, What::Unconfirmed { number: 6, key: None, fate: Fate::Exhausted });
    case.failed(20_000, 1, 6, 1).failed(20_100, 1, 6, 2).failed(20_200, 1, 6, 3);
    case.at(31_000, What::DoneUpTo { entry: id(9) });
    let verdict = case.verdict();
    assert_eq!((verdict.count(Rule::Lost), verdict.count(Rule::AcknowledgedEarly)), (1, 1), "{verdict:?}");
    // A failover before it was there takes nothing of it.
    let mut before = case.clone();
    before.lost_group(10_000);
    assert_eq!(before.verdict().count(Rule::Lost), 1);
    case.lost_group(21_000).holds();
}

#[test]
fn a_group_that_is_lost_twice_may_begin_behind_what_the_first_loss_took_back() {
    let mut case = good();
    case.published(6, Fate::Exhausted).failed(20_000, 1, 6, 1).failed(20_100, 1, 6, 2).failed(20_200, 1, 6, 3);
    case.at(31_000, What::DoneUpTo { entry: id(9) }).lost_group(21_000);
    let early = |case: &Case| case.verdict().count(Rule::AcknowledgedEarly);
    assert_eq!(early(&case), 1, "{:?}", case.verdict());
    case.lost_group(24_000);
    assert_eq!(early(&case), 0, "{:?}", case.verdict());
}
