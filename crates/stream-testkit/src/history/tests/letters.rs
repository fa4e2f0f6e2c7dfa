//! Dead letters and what is sent back.

use super::*;

#[test]
fn what_has_to_end_in_the_dead_letters_and_does_not_is_noticed() {
    let mut case = good();
    case.published(6, Fate::Exhausted).failed(100, 1, 6, 1).failed(200, 1, 6, 2).failed(300, 1, 6, 3);
    case.fails(Rule::LetterMissing, "6-0 (message 6) (Exhausted); attempt 1 in process 1");
    case.letter(6, 3, Reason::Exhausted).holds();
}

#[test]
fn poison_that_was_handled_is_noticed() {
    let mut case = good();
    case.done(900, 2, 5, 2).ended(150, 1, Ending::Killed);
    assert_eq!(case.verdict().count(Rule::Journal), 1, "{:?}", case.verdict());
}

#[test]
fn an_innocent_message_is_in_no_dead_letter() {
    let mut case = good();
    case.letter(1, 3, Reason::Exhausted);
    let verdict = case.verdict();
    assert_eq!(verdict.count(Rule::Innocent), 1, "{verdict:?}");
    let mut case = good();
    case.published(6, Fate::Handled).failed(100, 1, 6, 1).failed(200, 1, 6, 2).failed(300, 1, 6, 3);
    case.letter(6, 3, Reason::Exhausted);
    case.fails(Rule::Innocent, "6-0 (message 6) (Handled): exhausted after 3 attempts");
    // Either end is right where nobody can know.
    let mut case = good();
    case.published(6, Fate::Free).failed(100, 1, 6, 1).failed(200, 1, 6, 2).failed(300, 1, 6, 3);
    case.letter(6, 3, Reason::Exhausted).holds();
}

#[test]
fn a_message_whose_processes_died_at_every_attempt_is_unlucky() {
    let mut case = good();
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).started(5_000, 3, 6, 2).started(9_000, 4, 6, 3);
    case.ended(1_001, 1, Ending::Killed).ended(5_001, 3, Ending::Killed).letter(6, 3, Reason::OwnerDied);
    case.fails(Rule::Innocent, "ownerdied after 3 attempts");
    case.ended(9_001, 4, Ending::Killed);
    assert_eq!(case.holds().unlucky, 1);
}

#[test]
fn a_message_whose_owners_died_before_they_started_it_is_unlucky() {
    let mut case = good();
    case.published(6, Fate::Handled).letter(6, 2, Reason::OwnerDied);
    case.expectations.max_attempts = 2;
    // The others of the history fail three times.
    let innocent = |case: &Case| case.verdict().count(Rule::Innocent);
    case.ended(5_000, 3, Ending::Killed);
    assert_eq!(innocent(&case), 1, "one death is not two");
    case.ended(6_000, 4, Ending::Killed);
    assert_eq!(innocent(&case), 0);
}

#[test]
fn after_a_loss_of_the_group_one_count_that_only_deaths_ended_is_enough_for_a_letter() {
    let mut case = good();
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).ended(1_001, 1, Ending::Killed);
    case.started(5_000, 3, 6, 2).ended(5_001, 3, Ending::Killed).started(9_000, 4, 6, 3);
    case.ended(9_001, 4, Ending::Killed).letter(6, 3, Reason::OwnerDied);
    case.done(70_000, 2, 6, 1);
    assert_eq!(case.verdict().count(Rule::Innocent), 1, "{:?}", case.verdict());
    case.lost_group(50_000);
    assert_eq!(case.holds().unlucky, 1);
    // But not one in which it was handled.
    let mut case = good();
    case.published(6, Fate::Handled).started(1_000, 1, 6, 1).ended(1_001, 1, Ending::Killed);
    case.lost_group(50_000).failed(61_000, 2, 6, 1).failed(62_000, 2, 6, 2).done(63_000, 2, 6, 3);
    case.letter(6, 3, Reason::OwnerDied);
    assert_eq!(case.verdict().count(Rule::Innocent), 1, "{:?}", case.verdict());
}

#[test]
fn a_message_is_in_the_dead_letters_once() {
    let mut case = good();
    case.letter(3, 3, Reason::Exhausted);
    case.fails(Rule::Provenance, "3-0 (message 3) is in the dead letters more than once");
    case.lost_group(30_000).holds();
}

#[test]
fn wrong_provenance_is_noticed() {
    #[track_caller]
    fn check(attempts: u32, reason: Reason, text: &str) {
        let mut case = good();
        case.published(6, Fate::Kills);
        for (attempt, process) in [(1, 2), (2, 3), (3, 4)] {
            let at = 1_000 * u64::from(attempt);
            case.started(at, process, 6, attempt).ended(at + 1, process, Ending::Aborted);
        }
        case.letter(6, attempts, reason);
        if text.is_empty() {
            case.holds();
        } else {
            assert!(case.verdict().complaints(9).iter().any(|line| line.contains(text)), "{:?}", case.verdict());
        }
    }
    check(3, Reason::OwnerDied, "");
    check(2, Reason::OwnerDied, "provenance: 6-0 (message 6) (Kills): ownerdied after 2 attempts");
    check(3, Reason::Exhausted, "provenance: 6-0 (message 6) (Kills): exhausted after 3 attempts");

    let mut case = good();
    case.published(6, Fate::Undecodable);
    let foreign = What::DeadLettered {
        entry: id(6),
        number: None,
        attempts: 1,
        reason: Reason::Undecodable,
        consumer: "nobody".to_owned(),
    };
    case.at(9, foreign).fails(Rule::Provenance, "its consumer nobody is none of the processes");
}

#[test]
fn a_letter_of_a_copy_tells_which_message_it_is() {
    let letter = |number| What::DeadLettered {
        entry: id(9),
        number,
        attempts: 1,
        reason: Reason::Undecodable,
        consumer: "host-1".to_owned(),
    };
    let mut case = good();
    case.at(4, What::Unconfirmed { number: 6, key: None, fate: Fate::Undecodable });
    let mut nameless = case.clone();
    nameless.at(60, letter(None)).fails(Rule::Journal, "9-0 was handled or dead-lettered, and nobody published it");
    case.at(60, letter(Some(6))).holds();
}

#[test]
fn a_letter_counts_as_many_attempts_as_there_were() {
    let mut case = good();
    case.published(6, Fate::Exhausted).failed(100, 1, 6, 1).failed(200, 1, 6, 2).letter(6, 3, Reason::Exhausted);
    case.fails(Rule::Attempts, "dead-lettered after 3 attempts, without a death");
    assert_eq!(case.ended(250, 3, Ending::Killed).holds().burned, 1);
}

#[test]
fn what_is_sent_back_is_a_message_of_its_own() {
    let mut case = good();
    case.at(30_000, What::Redriven { letter: id(3), entry: id(30), fate: Fate::Handled });
    case.fails(Rule::Lost, "30-0 (message 3) was neither handled nor dead-lettered");
    case.at(29_000, What::Started { process: 2, entry: id(30), number: 3, attempt: 1 });
    case.finished(29_010, 2, 30, 1, Returned::Done).holds();
    // A re-drive that was cut short sends a letter twice, and the first time is not written down.
    case.at(28_000, What::Started { process: 2, entry: id(29), number: 3, attempt: 1 });
    case.fails(Rule::Lost, "29-0 (message 3), a copy, came to no end");
    case.finished(28_010, 2, 29, 1, Returned::Done).holds();
    // The letter's own entry comes again where its group has begun anew, and is handled once it is cured.
    case.done(40_000, 2, 3, 1).lost_group(39_500);
    case.fails(Rule::Journal, "3-0 (message 3) (Exhausted) cannot have been handled well");
    let mut late = case.clone();
    late.at(40_011, What::Cured { number: 3 }).fails(Rule::Journal, "cannot have been handled well");
    case.at(28_000, What::Cured { number: 3 }).holds();
}

#[test]
fn a_letter_may_be_missing_where_the_group_is_lost_again_before_anybody_sees_that_it_went_with_the_first_loss() {
    let mut case = good();
    case.published(6, Fate::Exhausted);
    case.failed(5_000, 1, 6, 1).failed(6_000, 1, 6, 2).failed(7_000, 1, 6, 3);
    let lost = |case: &mut Case, from: u64, until| {
        case.at(until, What::GroupLost { since: from * MS });
    };
    case.fails(Rule::LetterMissing, "6-0 (message 6)");
    lost(&mut case, 6_500, 8_000);
    case.fails(Rule::LetterMissing, "6-0 (message 6)");
    let mut late = case.clone();
    late.lost_group(30_000).fails(Rule::LetterMissing, "6-0 (message 6)");
    let mut before = case.clone();
    before.lost_group(6_400).fails(Rule::LetterMissing, "6-0 (message 6)");
    case.lost_group(8_300).holds();
}
