//! Attempts, and what comes again.

use super::*;

#[test]
fn an_attempt_that_is_left_out_needs_a_death() {
    let skip = |case: &mut Case| {
        let published = What::Published { entry: id(6), number: 6, key: None, fate: Fate::Handled };
        case.at(200, published).done(1_000, 1, 6, 2);
    };
    let mut case = good();
    skip(&mut case);
    case.fails(Rule::Attempts, "attempt 2 where 1 was due, without a death");
    let mut killed = case.clone();
    let counts = killed.ended(500, 3, Ending::Killed).holds();
    assert_eq!((counts.burned, counts.redelivered), (1, 1));
    let mut stopped = case.clone();
    stopped.ended(500, 3, Ending::Stopped).fails(Rule::Attempts, "without a death");
    let mut before_it_was_published = case.clone();
    before_it_was_published.ended(100, 3, Ending::Killed).fails(Rule::Attempts, "without a death");
    // Its read was waiting, and the server had not noticed.
    let mut just_before = case.clone();
    just_before.ended(180, 3, Ending::Killed).holds();
    let mut server = case.clone();
    server.silent(None, Cause::Server, 400, 500).holds();
    let mut cut = case.clone();
    cut.silent(None, Cause::Network, 400, 500).fails(Rule::Attempts, "without a death");
    let mut cut_for_long = case;
    cut_for_long.silent(Some(2), Cause::Network, 400, 3_000).holds();
}

#[test]
fn more_attempts_than_deaths_are_noticed() {
    let mut case = good();
    case.published(6, Fate::Handled).done(1_000, 1, 6, 3).ended(500, 3, Ending::Killed);
    case.fails(Rule::Attempts, "attempt 3 where 1 was due, with 1 deaths");
    case.ended(501, 4, Ending::Aborted).holds();
}

#[test]
fn an_attempt_is_never_counted_twice() {
    let mut case = good();
    case.published(6, Fate::Handled).failed(1_000, 1, 6, 1).failed(1_100, 1, 6, 2).done(1_200, 1, 6, 2);
    case.fails(Rule::Attempts, "attempt 2 where 3 was due");
    // A group that is made anew counts anew.
    let mut case = good();
    case.published(6, Fate::Handled).failed(1_000, 1, 6, 1).failed(1_100, 1, 6, 2).done(1_200, 1, 6, 1);
    case.fails(Rule::Attempts, "attempt 1 where 3 was due");
    case.lost_group(1_150).holds();
    // That it begins anew later says nothing of one who came back from a silence before.
    let mut case = good();
    case.published(6, Fate::Handled).done(5_000, 2, 6, 2).done(6_100, 1, 6, 1).lost_group(7_000).done(7_100, 2, 6, 1);
    case.silent(Some(1), Cause::Frozen, 10, 6_000).holds();
    // Whoever comes back from a long silence may begin what somebody else has begun, but with a number of its own.
    let mut case = good();
    case.published(6, Fate::Handled).done(5_000, 2, 6, 2).done(6_100, 1, 6, 1);
    case.silent(Some(1), Cause::Frozen, 10, 6_000).holds();
    // It goes on with either number.
    for (next, due) in [(2, None), (3, None), (1, Some(2)), (4, Some(3))] {
        let mut case = good();
        case.published(6, Fate::Handled).failed(5_000, 2, 6, 2).failed(6_100, 1, 6, 1).done(9_000, 1, 6, next);
        case.silent(Some(1), Cause::Frozen, 10, 6_000);
        match due {
            None => {
                case.holds();
            }
            Some(due) => case.fails(Rule::Attempts, &format!("attempt {next} where {due} was due")),
        }
    }
    let mut case = good();
    case.published(6, Fate::Handled).failed(5_000, 2, 6, 1).failed(5_600, 2, 6, 2).done(6_100, 1, 6, 1);
    case.silent(Some(1), Cause::Frozen, 10, 6_000);
    case.fails(Rule::Attempts, "attempt 1 where 3 was due");
    // Which numbers there were before a loss says nothing of that.
    let mut case = good();
    case.published(6, Fate::Handled).failed(1_000, 2, 6, 1).failed(1_100, 2, 6, 2).lost_group(1_150);
    case.done(5_000, 2, 6, 2).done(6_100, 1, 6, 1).silent(Some(1), Cause::Frozen, 10, 6_000).holds();
}

#[test]
fn who_takes_an_entry_over_by_a_command_whose_reply_is_lost_counts_its_start_as_the_one_before() {
    let mut case = good();
    case.published(6, Fate::Handled).failed(1_000, 1, 6, 1).done(6_000, 2, 6, 1);
    case.fails(Rule::Attempts, "attempt 1 where 2 was due");
    let mut other = case.clone();
    other.silent(Some(3), Cause::Network, 4_000, 5_900).fails(Rule::Attempts, "attempt 1 where 2 was due");
    case.silent(Some(2), Cause::Network, 4_000, 5_900).holds();
    // The same process knows better.
    let mut same = good();
    same.published(6, Fate::Handled).failed(1_000, 2, 6, 1).done(6_000, 2, 6, 1);
    same.silent(Some(2), Cause::Network, 4_000, 5_900).fails(Rule::Attempts, "attempt 1 where 2 was due");
}

#[test]
fn no_more_attempts_than_allowed_but_for_a_last_one_that_was_cut_short() {
    let three = |case: &mut Case| {
        case.published(6, Fate::Handled).failed(1_000, 1, 6, 1).failed(1_100, 1, 6, 2).started(1_200, 3, 6, 3);
    };
    let mut case = good();
    three(&mut case);
    case.finished(1_210, 3, 6, 3, Returned::Failed).done(1_300, 1, 6, 4);
    case.fails(Rule::Attempts, "attempt 4 of 3");
    let mut case = good();
    three(&mut case);
    case.ended(1_205, 3, Ending::Aborted).done(5_000, 1, 6, 4);
    let counts = case.holds();
    assert_eq!((counts.repeated_alone, counts.max_attempt), (1, 3));
    let mut case = good();
    three(&mut case);
    case.ended(1_205, 3, Ending::Aborted).ended(1_206, 4, Ending::Killed).done(5_000, 1, 6, 5);
    case.fails(Rule::Attempts, "attempt 5 of 3");
}

#[test]
fn what_was_handled_comes_again_only_if_it_may_not_have_been_acknowledged() {
    let again = |case: &mut Case| {
        case.published(6, Fate::Handled).done(1_000, 1, 6, 1).done(9_000, 2, 6, 2);
    };
    let mut case = good();
    again(&mut case);
    // A death somewhere explains the attempt, not that it came again.
    case.ended(8_000, 3, Ending::Killed);
    case.fails(Rule::HandledAgain, "nothing kept it from being acknowledged");
    let mut killed = case.clone();
    let counts = killed.ended(2_000, 1, Ending::Killed).holds();
    assert_eq!((counts.handled_again, counts.redelivered), (1, 1));
    assert!(counts.in_flight >= 1, "{counts:?}");
    let mut late = case.clone();
    late.ended(4_000, 1, Ending::Killed).fails(Rule::HandledAgain, "nothing kept it");
    let mut outage = case.clone();
    outage.silent(None, Cause::Server, 1_500, 1_600).holds();
    let mut before = case.clone();
    before.silent(None, Cause::Server, 500, 600).fails(Rule::HandledAgain, "nothing kept it");
    let mut told = case.clone();
    told.at(1_011, What::LeaseLost { process: 1, entry: id(6) }).holds();
}

#[test]
fn what_ran_when_the_group_was_lost_is_acknowledged_in_no_group() {
    let mut case = good();
    case.published(6, Fate::Handled).done(9_000, 2, 6, 1);
    case.started(1_000, 1, 6, 1).finished(8_000, 1, 6, 1, Returned::Done).lost_group(1_500);
    assert_eq!(case.holds().handled_again, 1);
}

#[test]
fn what_a_lost_group_lets_come_again_was_not_known_to_be_done_long_before() {
    let lost = |done: u64| {
        let mut case = Case::new();
        case.published(6, Fate::Handled).done(1_000, 1, 6, 1);
        case.at(done, What::DoneUpTo { entry: id(6) }).lost_group(20_000).done(21_000, 2, 6, 1);
        case
    };
    let counts = lost(10_500).holds();
    assert_eq!(counts.handled_again, 1);
    lost(9_500).fails(Rule::HandledAgain, "known to be done with it long before it was lost");
    // Who was silent meanwhile does not know.
    let mut silent = lost(9_500);
    silent.silent(Some(3), Cause::Network, 9_000, 10_001).holds();
    // Made anew further back in between, it is another group.
    let mut twice = lost(9_000);
    twice.at(9_500, What::DoneUpTo { entry: id(5) }).holds();
}

#[test]
fn who_held_an_entry_through_a_loss_of_the_group_goes_on_with_its_own_count() {
    let mut case = good();
    case.expectations.max_attempts = 5;
    case.published(6, Fate::Handled).failed(1_000, 1, 6, 1).failed(1_100, 1, 6, 2).failed(2_000, 2, 6, 1);
    let before = case.clone();
    case.done(3_000, 1, 6, 3).lost_group(1_500);
    // Message 3 is given up after three attempts, which are not all.
    let attempts = |case: &Case| case.verdict().count(Rule::Attempts);
    assert_eq!(attempts(&case), 0, "{:?}", case.verdict());
    let mut case = before;
    case.done(3_000, 1, 6, 4).lost_group(1_500);
    assert_eq!(attempts(&case), 1, "{:?}", case.verdict());
}

#[test]
fn a_stop_may_cut_the_last_start_short_more_than_once() {
    let mut case = good();
    case.published(6, Fate::Handled);
    for (attempt, process) in [(1, 1), (2, 2), (3, 3)] {
        let ms = 1_000 * u64::from(attempt);
        case.started(ms, process, 6, attempt).ended(ms + 1, process, Ending::Killed);
    }
    case.at(0, What::ProcessStarted { process: 5, consumer: "host-5".to_owned() });
    case.started(5_000, 4, 6, 4).at(6_000, What::Stopping { process: 4 }).ended(6_001, 4, Ending::Stopped);
    case.done(7_000, 5, 6, 4).holds();
    let mut case = good();
    case.published(6, Fate::Handled);
    for (attempt, process) in [(1, 1), (2, 2), (3, 3)] {
        let ms = 1_000 * u64::from(attempt);
        case.started(ms, process, 6, attempt).ended(ms + 1, process, Ending::Killed);
    }
    case.at(0, What::ProcessStarted { process: 5, consumer: "host-5".to_owned() });
    case.started(5_000, 4, 6, 4).ended(6_001, 4, Ending::Killed).done(7_000, 5, 6, 4);
    case.fails(Rule::Attempts, "attempt 4 where 5 was due");
}

#[test]
fn who_is_silent_when_it_stops_may_not_have_given_back_what_it_had() {
    let mut case = good();
    case.published(6, Fate::Handled).done(5_000, 1, 6, 2).at(600, What::Stopping { process: 3 });
    case.ended(1_500, 3, Ending::Stopped);
    case.fails(Rule::Attempts, "attempt 2 where 1 was due, without a death");
    case.silent(Some(3), Cause::Network, 500, 700).holds();
}

#[test]
fn a_start_that_was_counted_before_a_loss_and_made_after_it_is_not_known_to_the_server() {
    let mut case = good();
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).ended(1_100, 1, Ending::Killed);
    case.failed(60_000, 2, 6, 2).done(70_000, 3, 6, 2);
    case.fails(Rule::Attempts, "attempt 2 where 3 was due");
    case.lost_group(30_000).holds();
    // Who came later has counted it with what the server knows.
    let mut case = good();
    case.at(40_000, What::ProcessStarted { process: 9, consumer: "host-9".to_owned() });
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).ended(1_100, 1, Ending::Killed);
    case.lost_group(30_000).failed(60_000, 9, 6, 2).done(70_000, 3, 6, 2);
    case.fails(Rule::Attempts, "attempt 2 where 3 was due");
}

#[test]
fn who_took_an_entry_over_before_a_loss_of_the_group_goes_on_with_the_count_from_before() {
    let case = |attempt| {
        let mut case = good();
        case.expectations.max_attempts = 5;
        case.published(6, Fate::Handled).failed(1_000, 1, 6, 1).failed(1_100, 1, 6, 2).failed(2_000, 2, 6, 1);
        case.done(3_000, 3, 6, attempt).lost_group(1_500);
        case
    };
    let attempts = |case: &Case| case.verdict().count(Rule::Attempts);
    assert_eq!(attempts(&case(3)), 0, "{:?}", case(3).verdict());
    assert_eq!(attempts(&case(4)), 1, "{:?}", case(4).verdict());
    let mut later = case(3);
    later.at(1_600, What::ProcessStarted { process: 3, consumer: "host-3".to_owned() });
    assert_eq!(attempts(&later), 1, "{:?}", later.verdict());
}

#[test]
fn a_process_begins_an_entry_anew_beside_a_run_that_was_told_to_stop() {
    let mut case = good();
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).done(20_000, 1, 6, 2).ended(10, 4, Ending::Killed);
    case.silent(Some(1), Cause::Frozen, 1_001, 12_000);
    assert_eq!(case.verdict().count(Rule::Journal), 1, "{:?}", case.verdict());
    case.at(12_000, What::LeaseLost { process: 1, entry: id(6) }).holds();
    case.finished(21_000, 1, 6, 1, Returned::Failed).holds();
    case.finished(21_001, 1, 6, 1, Returned::Failed).fails(Rule::Journal, "process 1 ended 6-0 without a beginning");
}
