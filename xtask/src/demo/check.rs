//! What the demo's history is judged by: what was published, read off the stream in the end, and the letters, whose fields
//! have to be those of their entries. The rest is for `stream_testkit::history`.

use std::collections::HashMap;

use stream_testkit::history::{Expectations, Fate, History, Reason, Verdict, What};
use streamkeeper::{DeadLetter, EntryId};

use super::plan::{Kind, Plan};
use super::worker::{GROUP, LEASE, MAX_ATTEMPTS, NUMBER_FIELD, STREAM};
use crate::asked::Found;

impl Kind {
    fn fate(self) -> Fate {
        match self {
            Self::Ordinary | Self::FailsTwice => Fate::Handled,
            Self::Poison => Fate::Exhausted,
            Self::Abort => Fate::Kills,
            Self::Undecodable => Fate::Undecodable,
        }
    }
}

/// Adds to `history` what the server has in the end.
fn complete(history: &mut History, plan: &Plan, found: &Found) {
    let mut orders: HashMap<EntryId, u64> = HashMap::new();
    for (id, entry) in &found.entries {
        let number = entry.get(NUMBER_FIELD).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        match number.and_then(|number| Some((number, plan.kind(number)?))) {
            Some((number, kind)) => {
                orders.insert(*id, number);
                history.add(0, What::Published { entry: *id, number, key: None, fate: kind.fate() });
            }
            None => broken(history, format!("entry {id} holds no order of ours")),
        }
    }
    for letter in &found.letters {
        let entry = letter.entry.id();
        if let Some(why) = wrong_origin(letter, found) {
            broken(history, format!("the letter of {entry}: {why}"));
        }
        match Reason::of(&letter.reason) {
            Some(reason) => {
                let (attempts, consumer) = (letter.attempts, letter.consumer.to_string());
                let number = orders.get(&entry).copied();
                history.add(u64::MAX, What::DeadLettered { entry, number, attempts, reason, consumer });
            }
            None => broken(history, format!("the letter of {entry} has an unknown reason")),
        }
    }
    found.bad_letters.iter().for_each(|why| broken(history, why.clone()));
    found.pending.iter().for_each(|entry| history.add(u64::MAX, What::Pending { entry: *entry }));
}

fn broken(history: &mut History, why: String) {
    history.add(0, What::Broken { why });
}

fn wrong_origin(letter: &DeadLetter, found: &Found) -> Option<String> {
    if letter.stream.as_bytes() != STREAM.as_bytes() || letter.group.as_bytes() != GROUP.as_bytes() {
        return Some(format!("it says that it is of {} and {}", letter.stream, letter.group));
    }
    let same = found.entries.get(&letter.entry.id()) == Some(&letter.entry);
    (!same).then(|| "its fields are not those of the entry".to_owned())
}

/// Holds `history` and the server's `found` against `plan`.
pub(crate) fn check(plan: &Plan, history: &mut History, found: &Found) -> Verdict {
    complete(history, plan, found);
    history.check(&Expectations {
        max_attempts: MAX_ATTEMPTS,
        lease: LEASE,
        messages: plan.len(),
        ..Expectations::default()
    })
}

/// Most entries handled within one second.
pub(crate) fn busiest_second(history: &History) -> u64 {
    let mut seconds: HashMap<u64, u64> = HashMap::new();
    for event in history.events() {
        if let What::Finished { result: stream_testkit::history::Returned::Done, .. } = event.what {
            *seconds.entry(event.at / 1_000_000).or_default() += 1;
        }
    }
    seconds.into_values().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use stream_testkit::history::{Returned, Rule};
    use streamkeeper::{ConsumerName, DeadReason, Entry, GroupName, StreamKey};

    use super::*;

    fn id(order: u64) -> EntryId {
        EntryId::new(order, 0)
    }

    /// A run in which all went well, of ten orders, one of which fails twice.
    fn good() -> (Plan, History, Found) {
        let plan = Plan::generated(10);
        let mut history = History::default();
        let mut found = Found::default();
        history.add(0, What::ProcessStarted { process: 1, consumer: "host-1".to_owned() });
        for (number, kind) in plan.orders() {
            let fields = [("data", plan.payload(number).into_owned()), ("number", number.to_string().into_bytes())];
            let entry = Entry::new(id(number), fields).unwrap();
            found.entries.insert(id(number), entry);
            let at = number * 1_000;
            let attempts = if kind == Kind::FailsTwice { 3 } else { 1 };
            for attempt in 1..=attempts {
                let (process, entry, at) = (1, id(number), at + u64::from(attempt) * 10);
                history.add(at, What::Started { process, entry, number, attempt });
                let result = if attempt == attempts { Returned::Done } else { Returned::Failed };
                history.add(at + 1, What::Finished { process, entry, attempt, result });
            }
        }
        (plan, history, found)
    }

    #[track_caller]
    fn fails(spoil: impl FnOnce(&mut History, &mut Found), rule: Rule, text: &str) {
        let (plan, mut history, mut found) = good();
        spoil(&mut history, &mut found);
        let verdict = check(&plan, &mut history, &found);
        assert_eq!(verdict.count(rule), 1, "{verdict:?}");
        assert!(verdict.complaints(9).iter().any(|line| line.contains(text)), "{:?}", verdict.complaints(9));
    }

    #[test]
    fn a_good_run_holds() {
        let (plan, mut history, found) = good();
        let verdict = check(&plan, &mut history, &found);
        assert!(verdict.holds(), "{verdict:?}");
        assert_eq!(verdict.counts.published, 10);
        assert_eq!(verdict.counts.handled + verdict.counts.dead_lettered, 10);
        assert_eq!(busiest_second(&history), verdict.counts.handled);
    }

    #[test]
    fn what_is_not_on_the_stream_or_twice_or_foreign_is_noticed() {
        let missing = |_: &mut History, found: &mut Found| {
            found.entries.remove(&id(10));
        };
        fails(missing, Rule::Lost, "message 10 is not on the stream");
        let twice = |_: &mut History, found: &mut Found| {
            let copy = Entry::new(id(11), found.entries[&id(10)].fields()).unwrap();
            found.entries.insert(id(11), copy);
        };
        fails(twice, Rule::Doubled, "message 10 is on the stream more than once");
        let foreign = |_: &mut History, found: &mut Found| {
            found.entries.insert(id(11), Entry::new(id(11), [("number", "11")]).unwrap());
        };
        fails(foreign, Rule::Journal, "entry 11-0 holds no order of ours");
    }

    #[test]
    fn a_letter_from_elsewhere_or_with_other_fields_is_noticed() {
        // None of the ten cannot be decoded, so one is given up here.
        fn given_up(found: &mut Found, spoil: impl FnOnce(&mut DeadLetter)) {
            let mut letter = DeadLetter {
                entry: found.entries[&id(10)].clone(),
                stream: StreamKey::new(STREAM).unwrap(),
                group: GroupName::new(GROUP).unwrap(),
                consumer: ConsumerName::new("host-1").unwrap(),
                attempts: 3,
                reason: DeadReason::Exhausted { error: None },
                dead_at_ms: 1,
                redriven: 0,
            };
            spoil(&mut letter);
            found.letters.push(letter);
        }
        let stream = |_: &mut History, found: &mut Found| {
            given_up(found, |letter| letter.stream = StreamKey::new("other").unwrap());
        };
        fails(stream, Rule::Journal, "the letter of 10-0: it says that it is of other and billing");
        let fields = |_: &mut History, found: &mut Found| {
            given_up(found, |letter| letter.entry = Entry::new(id(10), [("data", "other")]).unwrap());
        };
        fails(fields, Rule::Journal, "its fields are not those of the entry");
        fails(|_, found| given_up(found, |_| {}), Rule::Innocent, "exhausted after 3 attempts");
        let foreign = |_: &mut History, found: &mut Found| found.bad_letters.push("no letter".to_owned());
        fails(foreign, Rule::Journal, "no letter");
        fails(|_, found| found.pending.push(id(3)), Rule::Pending, "3-0 (message 3) is pending in the end");
    }
}
