//! Histories as text.

use super::*;

fn one_of_each() -> Vec<What> {
    vec![
        What::Published { entry: EntryId::new(7, 3), number: 12, key: Some(4), fate: Fate::Handled },
        What::Published { entry: id(8), number: 13, key: None, fate: Fate::Free },
        What::Unconfirmed { number: 14, key: None, fate: Fate::Kills },
        What::ProcessStarted { process: 3, consumer: "a host\n\"with\" \\ ä".to_owned() },
        What::Stopping { process: 3 },
        What::ProcessEnded { process: 3, how: Ending::Aborted },
        What::Started { process: 3, entry: id(7), number: 12, attempt: 2 },
        What::Finished { process: 3, entry: id(7), attempt: 2, result: Returned::Rejected },
        What::LeaseLost { process: 3, entry: id(7) },
        What::Acknowledged { entry: id(7) },
        What::DoneUpTo { entry: id(7) },
        What::TrimmedBelow { entry: id(7) },
        What::DeadLettered {
            entry: id(7),
            number: Some(12),
            attempts: 3,
            reason: Reason::OwnerDied,
            consumer: "host 1".to_owned(),
        },
        What::Cured { number: 12 },
        What::Redriven { letter: id(7), entry: id(9), fate: Fate::Exhausted },
        What::Silence { process: None, cause: Cause::Server, since: 5 },
        What::Silence { process: Some(1), cause: Cause::Frozen, since: 6 },
        What::GroupLost { since: 4 },
        What::Forgotten { entry: id(7) },
        What::ReaderReady { process: 4, after: EntryId::ZERO },
        What::ReaderGot { process: 4, entry: id(7) },
        What::ReaderGap { process: 4, after: id(7), before: EntryId::MAX },
        What::ReaderReset { process: 4, from: id(1) },
        What::Resident { process: 4, kib: 30_000 },
        What::Pending { entry: id(7) },
        What::End { delivered: id(9) },
        What::Broken { why: "a line\nof two".to_owned() },
    ]
}

#[test]
fn a_history_is_read_back_as_it_was_written() {
    let mut history = History::default();
    for (at, what) in (9..).zip(one_of_each()) {
        history.add(at, what);
    }
    let text = history.to_string();
    assert!(text.starts_with("9 published 7-3 12 4 handled\n10 published 8-0 13 - free\n"), "{text}");
    assert_eq!(text.lines().count(), history.events().len());
    assert_eq!(text.parse::<History>().unwrap(), history);
}

#[test]
fn a_line_out_of_shape_is_an_error_that_shows_it() {
    #[track_caller]
    fn check(line: &str) {
        assert_eq!(line.parse::<Event>().unwrap_err().to_string(), format!("not an event of a history: {line}"));
    }
    check("");
    check("9");
    check("x started 3 7-0 12 2");
    check("9 started 3 7-0 12");
    check("9 started 3 7-0 12 2 2");
    check("9 finished 3 7-0 2 well");
    check("9 group-lost");
    check("9 silence - frozen");
    check("9 broken \\x");
    check("9 shrugged 3");
}
