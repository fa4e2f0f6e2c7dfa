//! Histories that hold, and each with one thing in it that must not be.

use streamkeeper::{ConsumerName, Entry, GroupName, StreamKey};

use super::*;
use crate::demo::history::{End, Ended, Exit};
use crate::demo::journal::Start;

const ORDERS: u64 = 100;

/// Everything a check needs, of a run in which all went well.
struct Case {
    plan: Plan,
    history: History,
    found: Final,
}

fn id(order: u64) -> EntryId {
    EntryId::new(order, 0)
}

fn run(order: u64, process: u32, attempt: u32, began: u64, ended: Option<(u64, bool)>) -> Run {
    let what = Start { entry: id(order), order, attempt };
    Run { process, what, began, ended: ended.map(|(at, done)| Ended { at, done }) }
}

impl Case {
    /// The aborting order took down workers 1, 3 and 4; everything else ran in worker 2.
    fn good() -> Self {
        let plan = Plan::generated(ORDERS);
        let mut history = History::default();
        let mut found = Final::default();
        for worker in 1..=4 {
            history.consumers.insert(worker, format!("host-{worker}"));
        }
        for (order, kind) in plan.orders() {
            let fields = [("data", plan.payload(order).into_owned()), ("number", order.to_string().into_bytes())];
            let entry = Entry::new(id(order), fields).unwrap();
            found.entries.insert(id(order), entry.clone());
            let at = order * 1_000;
            let failed = |attempt: u32, from: u64| run(order, 2, attempt, at + from, Some((at + from + 10, false)));
            let mut bury = |attempts, reason| {
                found.letters.push(DeadLetter {
                    entry: entry.clone(),
                    stream: StreamKey::new(STREAM).unwrap(),
                    group: GroupName::new(GROUP).unwrap(),
                    consumer: ConsumerName::new("host-2").unwrap(),
                    attempts,
                    reason,
                    dead_at_ms: 1,
                    redriven: 0,
                });
            };
            match kind {
                Kind::Ordinary => history.runs.push(run(order, 2, 1, at, Some((at + 10, true)))),
                Kind::FailsTwice => history.runs.extend([
                    failed(1, 0),
                    failed(2, 100),
                    run(order, 2, 3, at + 200, Some((at + 210, true))),
                ]),
                Kind::Poison => {
                    history.runs.extend([failed(1, 0), failed(2, 100), failed(3, 200)]);
                    bury(3, DeadReason::Exhausted { error: None });
                }
                Kind::Abort => {
                    for (process, attempt, from) in [(1, 1, 0), (3, 2, 100), (4, 3, 200)] {
                        history.runs.push(run(order, process, attempt, at + from, None));
                        history.exits.push(Exit { process, at: at + from + 10, how: End::Aborted });
                    }
                    bury(3, DeadReason::OwnerDied);
                }
                Kind::Undecodable => bury(1, DeadReason::Undecodable("no JSON".to_owned())),
            }
        }
        history.exits.push(Exit { process: 2, at: 1_000_000, how: End::Stopped });
        found.consumers.push(("host-2".to_owned(), 0));
        Self { plan, history, found }
    }

    /// The first order of a kind.
    fn order(&self, kind: Kind) -> u64 {
        self.plan.orders().find(|(_, one)| *one == kind).unwrap().0
    }

    fn runs_of(&mut self, order: u64) -> Vec<&mut Run> {
        self.history.runs.iter_mut().filter(|run| run.what.order == order).collect()
    }

    fn letter_of(&mut self, order: u64) -> &mut DeadLetter {
        self.found.letters.iter_mut().find(|letter| letter.entry.id() == id(order)).unwrap()
    }

    fn verdict(&self) -> Verdict {
        check_all(self)
    }
}

fn check_all(case: &Case) -> Verdict {
    super::check(&case.plan, &case.history, &case.found)
}

/// Spoils a good case and expects one complaint that contains `complaint`, and the count of it to be 1.
#[track_caller]
fn must_fail(spoil: impl FnOnce(&mut Case), complaint: &str, count: impl FnOnce(&Verdict) -> u64) {
    let mut case = Case::good();
    spoil(&mut case);
    let verdict = case.verdict();
    assert!(!verdict.holds());
    assert!(verdict.complaints.iter().any(|what| what.contains(complaint)), "{:?}", verdict.complaints);
    assert_eq!(verdict.complaints.len(), 1, "{:?}", verdict.complaints);
    assert_eq!(count(&verdict), 1);
}

/// Spoils a good case in a way that is to be expected of crashes.
#[track_caller]
fn must_hold(spoil: impl FnOnce(&mut Case)) -> Verdict {
    let mut case = Case::good();
    spoil(&mut case);
    let verdict = case.verdict();
    assert!(verdict.holds(), "{:?}", verdict.complaints);
    verdict
}

#[test]
fn a_good_run_holds_and_its_numbers_are_right() {
    let verdict = must_hold(|_| {});
    assert_eq!((verdict.published, verdict.handled, verdict.expected_handled), (100, 97, 97));
    assert_eq!((verdict.dead_lettered, verdict.expected_dead_lettered), (3, 3));
    assert_eq!((verdict.max_attempt, verdict.redelivered, verdict.burned_by_crashes), (3, 1, 0));
}

#[test]
fn a_lost_order_is_noticed() {
    let never_ended = |case: &mut Case| {
        let order = case.order(Kind::Ordinary);
        case.runs_of(order)[0].ended = None;
    };
    must_fail(never_ended, "lost: order 1 ", |verdict| verdict.lost);
    let never_started = |case: &mut Case| case.history.runs.retain(|run| run.what.order != 1);
    must_fail(never_started, "lost: order 1 ", |verdict| verdict.lost);
    let never_published = |case: &mut Case| {
        case.history.runs.retain(|run| run.what.order != 1);
        case.found.entries.remove(&id(1));
    };
    must_fail(never_published, "is not on the stream", |verdict| verdict.lost);
}

#[test]
fn an_order_published_twice_is_noticed() {
    let twice = |case: &mut Case| {
        let entry = case.found.entries[&id(1)].clone();
        case.found.entries.insert(id(ORDERS + 1), Entry::new(id(ORDERS + 1), entry.fields()).unwrap());
    };
    must_fail(twice, "order 1 is on the stream more than once", |verdict| verdict.doubled);
}

#[test]
fn an_overlap_of_live_processes_is_noticed_and_one_after_a_death_is_none() {
    fn again(case: &mut Case, began: u64) {
        case.history.runs.push(run(1, 3, 2, began, Some((began + 50, true))));
    }
    // A crash that explains the second run, while the first one was long over or not.
    fn killed(case: &mut Case, at: u64) {
        case.history.exits.push(Exit { process: 1, at, how: End::Killed });
    }
    let overlap = |case: &mut Case| {
        killed(case, 1_004);
        again(case, 1_005);
    };
    must_fail(overlap, "overlapping: 1-0: attempt 1 in worker 2", |verdict| verdict.overlapping);
    let verdict = must_hold(|case| {
        case.runs_of(1)[0].ended = None;
        case.runs_of(1)[0].process = 5;
        case.history.exits.push(Exit { process: 5, at: 1_004, how: End::Killed });
        again(case, 1_005);
    });
    assert_eq!((verdict.redelivered, verdict.handled_again), (2, 0));
    let before_the_death = |case: &mut Case| {
        case.runs_of(1)[0].ended = None;
        case.runs_of(1)[0].process = 5;
        case.history.exits.push(Exit { process: 5, at: 1_006, how: End::Killed });
        case.history.outages.push((1_003, 1_004));
        again(case, 1_005);
    };
    must_fail(before_the_death, "overlapping", |verdict| verdict.overlapping);
}

#[test]
fn an_attempt_that_is_left_out_is_noticed_unless_a_crash_explains_it() {
    let skip = |case: &mut Case| case.runs_of(1)[0].what.attempt = 2;
    must_fail(skip, "attempt 2 where 1 was due, without a crash", |verdict| verdict.bad_attempts);
    let verdict = must_hold(|case| {
        skip(case);
        case.history.exits.push(Exit { process: 6, at: 500, how: End::Killed });
    });
    assert_eq!((verdict.burned_by_crashes, verdict.redelivered), (1, 2));
    must_hold(|case| {
        skip(case);
        case.history.outages.push((400, 600));
    });
    let stopped = |case: &mut Case| {
        skip(case);
        case.history.exits.push(Exit { process: 6, at: 500, how: End::Stopped });
    };
    must_fail(stopped, "without a crash", |verdict| verdict.bad_attempts);
    let more_than_crashes = |case: &mut Case| {
        case.runs_of(1)[0].what.attempt = 3;
        case.history.exits.push(Exit { process: 6, at: 500, how: End::Killed });
    };
    must_fail(more_than_crashes, "attempt 3 where 1 was due", |verdict| verdict.bad_attempts);
}

#[test]
fn an_attempt_counted_twice_or_beyond_the_limit_is_noticed() {
    let twice = |case: &mut Case| {
        let order = case.order(Kind::FailsTwice);
        case.runs_of(order)[2].what.attempt = 2;
    };
    must_fail(twice, "attempt 2 where 3 was due", |verdict| verdict.bad_attempts);
    let beyond = |case: &mut Case| {
        let order = case.order(Kind::FailsTwice);
        case.runs_of(order)[2].ended = Some(Ended { at: order * 1_000 + 210, done: false });
        case.history.runs.push(run(order, 2, 4, order * 1_000 + 300, Some((order * 1_000 + 310, true))));
    };
    must_fail(beyond, "attempt 4 of 3", |verdict| verdict.bad_attempts);
}

#[test]
fn a_last_attempt_that_a_crash_cut_short_is_repeated_once_and_no_more() {
    fn repeated(case: &mut Case, attempt: u32) {
        let order = case.order(Kind::FailsTwice);
        let at = order * 1_000;
        let last = case.runs_of(order).pop().unwrap();
        (last.process, last.ended) = (5, None);
        case.history.exits.push(Exit { process: 5, at: at + 205, how: End::Aborted });
        case.history.exits.push(Exit { process: 6, at: at + 206, how: End::Killed });
        case.history.runs.push(run(order, 2, attempt, at + 300, Some((at + 310, true))));
    }
    let verdict = must_hold(|case| repeated(case, 4));
    assert_eq!((verdict.repeated_alone, verdict.max_attempt), (1, 3));
    must_fail(|case| repeated(case, 5), "attempt 5 of 3", |verdict| verdict.bad_attempts);
}

#[test]
fn a_second_run_of_a_handled_order_is_noticed_unless_a_crash_explains_it() {
    let again = |case: &mut Case| case.history.runs.push(run(1, 3, 2, 1_100, Some((1_110, true))));
    must_fail(again, "handled again without a crash", |verdict| verdict.bad_attempts);
    let verdict = must_hold(|case| {
        again(case);
        case.history.outages.push((1_050, 1_060));
    });
    assert_eq!(verdict.handled_again, 1);
}

#[test]
fn an_innocent_dead_letter_is_noticed() {
    let innocent = |case: &mut Case| {
        let poison = case.order(Kind::Poison);
        let letter = DeadLetter { entry: case.found.entries[&id(1)].clone(), ..case.letter_of(poison).clone() };
        case.found.letters.push(letter);
    };
    must_fail(innocent, "dead-lettered though innocent: 1-0 (Ordinary): exhausted after 3", |verdict| verdict.innocent);
}

#[test]
fn a_dead_letter_that_is_missing_or_doubled_is_noticed() {
    let missing = |case: &mut Case| {
        case.found.letters.remove(0);
    };
    must_fail(missing, "not in the dead letters: order", |verdict| verdict.missing_letters);
    let twice = |case: &mut Case| {
        let letter = case.found.letters[0].clone();
        case.found.letters.push(letter);
    };
    must_fail(twice, "in the dead letters more than once", |verdict| verdict.bad_provenance);
}

#[test]
fn wrong_provenance_is_noticed() {
    #[track_caller]
    fn check(kind: Kind, spoil: impl FnOnce(&mut DeadLetter), complaint: &str) {
        let spoil = |case: &mut Case| spoil(case.letter_of(case.order(kind)));
        must_fail(spoil, complaint, |verdict| verdict.bad_provenance);
    }
    check(Kind::Poison, |letter| letter.stream = StreamKey::new("other").unwrap(), "it says that it is of other");
    check(Kind::Poison, |letter| letter.group = GroupName::new("other").unwrap(), "it says that it is of");
    check(Kind::Poison, |letter| letter.consumer = ConsumerName::new("nobody").unwrap(), "none of the workers");
    check(Kind::Poison, |letter| letter.reason = DeadReason::Rejected("no".to_owned()), "rejected after 3");
    check(Kind::Abort, |letter| letter.reason = DeadReason::Exhausted { error: None }, "exhausted after 3");
    check(Kind::Undecodable, |letter| letter.reason = DeadReason::OwnerDied, "owner-died after 1");
    let cut = |letter: &mut DeadLetter| letter.entry = Entry::new(letter.entry.id(), [("data", "other")]).unwrap();
    check(Kind::Undecodable, cut, "its fields are not those of the entry");
    let foreign = |case: &mut Case| {
        case.found.letters.remove(0);
        case.found.bad_letters.push("entry 1-0 is not a dead letter".to_owned());
    };
    let mut case = Case::good();
    foreign(&mut case);
    assert_eq!(case.verdict().bad_provenance, 1);
}

#[test]
fn poison_needs_all_its_attempts_or_a_crash_that_took_one() {
    let early = |case: &mut Case| {
        let order = case.order(Kind::Poison);
        case.letter_of(order).attempts = 2;
    };
    let mut case = Case::good();
    early(&mut case);
    assert_eq!((case.verdict().bad_provenance, case.verdict().bad_attempts), (1, 1));

    let cut = |case: &mut Case| {
        let order = case.order(Kind::Poison);
        case.history.runs.retain(|run| run.what.order != order || run.what.attempt < 3);
    };
    must_fail(cut, "dead-lettered after 3 attempts, without a crash", |verdict| verdict.bad_attempts);
    let verdict = must_hold(|case| {
        cut(case);
        let at = case.order(Kind::Poison) * 1_000 + 150;
        case.history.exits.push(Exit { process: 6, at, how: End::Killed });
    });
    assert_eq!(verdict.burned_by_crashes, 1);
}

#[test]
fn what_is_left_pending_is_noticed() {
    let consumer = |case: &mut Case| case.found.consumers[0].1 = 2;
    must_fail(consumer, "consumer host-2 holds 2", |_| 1);
    must_fail(|case| case.found.pending = 1, "the group holds 1", |verdict| verdict.pending);
}

#[test]
fn a_handler_that_ran_for_what_it_cannot_have_seen_is_noticed() {
    let undecodable = |case: &mut Case| {
        let order = case.order(Kind::Undecodable);
        case.history.runs.push(run(order, 2, 1, 5, Some((6, false))));
    };
    must_fail(undecodable, "cannot be decoded, but its handler was started", |verdict| verdict.broken);
    let foreign = |case: &mut Case| case.history.runs.push(run(ORDERS + 9, 2, 1, 5, Some((6, true))));
    must_fail(foreign, "is no order of ours", |verdict| verdict.broken);
    let another = |case: &mut Case| case.history.runs.push(run(2, 2, 1, 5, Some((6, false))));
    let swapped = |case: &mut Case| {
        another(case);
        let last = case.history.runs.last_mut().unwrap();
        last.what.entry = id(case.plan.len());
    };
    let mut case = Case::good();
    swapped(&mut case);
    assert_eq!(case.verdict().broken, 1);
}

#[test]
fn many_complaints_of_a_kind_are_a_few_examples_and_a_number() {
    let mut case = Case::good();
    case.history.runs.clear();
    let verdict = case.verdict();
    assert_eq!(verdict.lost, 97);
    assert_eq!(verdict.complaints.iter().filter(|what| what.starts_with("lost: ")).count(), EXAMPLES + 1);
    assert!(verdict.complaints.iter().any(|what| what == "lost: and 92 more"), "{:?}", verdict.complaints);
}
