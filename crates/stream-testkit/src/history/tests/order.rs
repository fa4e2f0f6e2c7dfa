//! The order of a key, and of readers without a group.

use super::*;

/// Three messages of one key, handled one after the other.
fn lane() -> Case {
    let mut case = Case::new();
    case.keyed(1, 7).done(100, 1, 1, 1);
    case.keyed(2, 7).failed(200, 1, 2, 1).done(400, 1, 2, 2);
    case.keyed(3, 7).done(500, 1, 3, 1);
    case
}

#[test]
fn a_key_in_order_holds() {
    lane().holds();
    // In another process, or of another key, there is no order.
    lane().keyed(4, 7).done(105, 2, 4, 1).keyed(5, 8).done(205, 1, 5, 1).holds();
}

#[test]
fn entries_of_one_key_run_one_at_a_time() {
    let mut case = lane();
    case.keyed(4, 7).started(105, 1, 4, 1).finished(106, 1, 4, 1, Returned::Done);
    let verdict = case.verdict();
    assert!(verdict.violations[0].to_string().contains("1-0 was still running at 105.0 ms"), "{verdict:?}");
}

#[test]
fn a_later_entry_does_not_run_before_an_earlier_one() {
    let mut case = Case::new();
    case.keyed(1, 7).keyed(2, 7).done(100, 1, 2, 1).done(200, 1, 1, 1);
    case.fails(Rule::Order, "1-0 (message 1) of key 7 in process 1: it began after 2-0");
    // It was handed on by somebody else.
    let mut stopped = case.clone();
    stopped.ended(150, 2, Ending::Stopped).holds();
    case.ended(300, 2, Ending::Stopped).fails(Rule::Order, "1-0");
}

#[test]
fn an_entry_that_failed_holds_its_key_until_it_is_over() {
    let mut case = Case::new();
    case.keyed(1, 7).failed(100, 1, 1, 1).keyed(2, 7).done(200, 1, 2, 1).done(300, 1, 1, 2);
    let verdict = case.verdict();
    assert!(verdict.violations[0].to_string().contains("2-0 (message 2) of key 7 in process 1: 1-0 had failed"));
    assert_eq!(verdict.count(Rule::Order), 1, "{verdict:?}");
    // It went to somebody else.
    let mut case = Case::new();
    case.keyed(1, 7).failed(100, 1, 1, 1).keyed(2, 7).done(200, 1, 2, 1).done(300, 2, 1, 2);
    case.at(150, What::LeaseLost { process: 1, entry: id(1) }).holds();
}

#[test]
fn a_reader_gets_everything_once_and_in_order() {
    let reader = |got: &[u64]| {
        let mut case = lane();
        case.at(0, What::ReaderReady { process: 4, after: EntryId::ZERO });
        for (place, entry) in got.iter().enumerate() {
            case.at(1_000 + place as u64, What::ReaderGot { process: 4, entry: id(*entry) });
        }
        case
    };
    assert_eq!(reader(&[1, 2, 3]).holds().read, 3);
    reader(&[1, 3]).fails(Rule::Missed, "reader 4 did not get 2-0 (message 2) and was not told of a gap");
    reader(&[1, 3]).at(1_000, What::ReaderGap { process: 4, after: id(1), before: id(2) }).holds();
    reader(&[1, 2]).fails(Rule::Missed, "3-0");
    // Who has ended got none of the last ones.
    reader(&[1, 2]).ended(2_000, 4, Ending::Killed).holds();
    reader(&[1, 3]).ended(2_500, 4, Ending::Killed).holds();
    reader(&[1, 3]).ended(4_000, 4, Ending::Killed).fails(Rule::Missed, "2-0");
    let mut frozen = reader(&[1, 3]);
    frozen.silent(Some(4), Cause::Frozen, 1_500, 3_900).ended(4_000, 4, Ending::Killed).holds();
    reader(&[1, 2, 2, 3]).fails(Rule::Order, "reader 4 got 2-0 after Some");
    let mut reset = reader(&[1, 2, 2, 3]);
    reset.history.events.retain(|event| event.at != 1_002 * MS);
    reset.at(1_002, What::ReaderReset { process: 4, from: id(1) });
    reset.at(1_002, What::ReaderGot { process: 4, entry: id(2) }).holds();
}

#[test]
fn what_came_before_a_reader_was_ready_is_not_for_it() {
    let mut case = lane();
    case.at(0, What::ReaderReady { process: 4, after: id(2) });
    case.at(1_000, What::ReaderGot { process: 4, entry: id(3) });
    case.holds();
    case.at(999, What::ReaderGot { process: 4, entry: id(2) });
    case.fails(Rule::Order, "reader 4 got 2-0");
}

#[test]
fn a_reader_that_was_told_of_a_stream_that_fell_back_begins_anew_there() {
    let mut case = good();
    case.at(10, What::ReaderReady { process: 4, after: id(4) }).at(20, What::ReaderGot { process: 4, entry: id(5) });
    let mut again = case.clone();
    again.at(40, What::ReaderGot { process: 4, entry: id(2) });
    assert_eq!(again.verdict().count(Rule::Order), 1, "{:?}", again.verdict());
    case.at(30, What::ReaderReset { process: 4, from: id(1) }).at(40, What::ReaderGot { process: 4, entry: id(2) });
    assert_eq!(case.verdict().count(Rule::Order), 0, "{:?}", case.verdict());
    case.at(50, What::ReaderGot { process: 4, entry: id(1) });
    assert_eq!(case.verdict().count(Rule::Order), 1, "{:?}", case.verdict());
}
