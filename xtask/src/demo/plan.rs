//! What is published: the demo's own orders or the lines of the user's file, and what each of them is going to do.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use crate::Failure;

/// What becomes of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is handled at its first attempt.
    Ordinary,
    /// It fails twice and is handled at its third attempt.
    FailsTwice,
    /// It fails at every attempt.
    Poison,
    /// It takes its process down at every attempt.
    Abort,
    /// It cannot be decoded.
    Undecodable,
}

impl Kind {
    /// The value of the field that tells a handler how to behave.
    pub(crate) fn act(self) -> Option<&'static str> {
        match self {
            Self::Ordinary | Self::Undecodable => None,
            Self::FailsTwice => Some("fail-twice"),
            Self::Poison => Some("fail"),
            Self::Abort => Some("abort"),
        }
    }

    pub(crate) fn of_act(act: Option<&[u8]>) -> Self {
        match act {
            Some(b"fail-twice") => Self::FailsTwice,
            Some(b"fail") => Self::Poison,
            Some(b"abort") => Self::Abort,
            _ => Self::Ordinary,
        }
    }

    /// Whether it has to end in the dead letters.
    pub(crate) fn is_dead(self) -> bool {
        matches!(self, Self::Poison | Self::Abort | Self::Undecodable)
    }
}

/// All orders, numbered from 1.
#[derive(Debug)]
pub(crate) struct Plan {
    kinds: Vec<Kind>,
    /// The user's file and where its lines are in it.
    input: Option<(Vec<u8>, Vec<Range<usize>>)>,
}

impl Plan {
    /// The demo's own orders, with all that can go wrong with some.
    pub(crate) fn generated(orders: u64) -> Self {
        let mut kinds = vec![Kind::Ordinary; orders as usize];
        let poison = (orders / 50).min(20);
        let aborting = if poison >= 10 { 2 } else { poison.min(1) };
        // Behind the part in which a worker is killed from outside: an order may die with three processes in a row, but
        // not through its own fault.
        for nth in 0..aborting {
            place(&mut kinds, Kind::Abort, 0.35 + 0.15 * nth as f64);
        }
        spread(&mut kinds, Kind::Poison, poison - aborting, 0.5);
        spread(&mut kinds, Kind::Undecodable, (orders / 100).min(10), 0.25);
        spread(&mut kinds, Kind::FailsTwice, failing_twice(orders), 0.75);
        Self { kinds, input: None }
    }

    /// The lines of a file of JSON, blank ones left out, at most `limit` of them.
    ///
    /// # Errors
    /// There is no such file, or nothing in it.
    pub(crate) fn of_file(path: &Path, limit: Option<u64>) -> Result<Self, Failure> {
        let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::of_lines(bytes, limit).ok_or_else(|| {
            format!("{} has no line to publish: it needs one JSON document on each line", path.display()).into()
        })
    }

    fn of_lines(bytes: Vec<u8>, limit: Option<u64>) -> Option<Self> {
        let limit = limit.map_or(usize::MAX, |limit| limit as usize);
        let mut lines = Vec::new();
        let mut from = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = line.trim_ascii();
            if !text.is_empty() && lines.len() < limit {
                let start = from + (line.len() - line.trim_ascii_start().len());
                lines.push(start..start + text.len());
            }
            from += line.len();
        }
        if lines.is_empty() {
            return None;
        }
        let valid = |line: &Range<usize>| serde_json::from_slice::<serde_json::Value>(&bytes[line.clone()]).is_ok();
        let mut kinds: Vec<Kind> =
            lines.iter().map(|line| if valid(line) { Kind::Ordinary } else { Kind::Undecodable }).collect();
        let twice = failing_twice(kinds.len() as u64);
        spread(&mut kinds, Kind::FailsTwice, twice, 0.75);
        Some(Self { kinds, input: Some((bytes, lines)) })
    }

    pub(crate) fn is_input(&self) -> bool {
        self.input.is_some()
    }

    pub(crate) fn len(&self) -> u64 {
        self.kinds.len() as u64
    }

    /// `None` for a number that no order has.
    pub(crate) fn kind(&self, order: u64) -> Option<Kind> {
        self.kinds.get(usize::try_from(order.checked_sub(1)?).ok()?).copied()
    }

    /// Numbers and kinds of all orders.
    pub(crate) fn orders(&self) -> impl Iterator<Item = (u64, Kind)> {
        (1..).zip(self.kinds.iter().copied())
    }

    pub(crate) fn count(&self, kind: Kind) -> u64 {
        self.kinds.iter().filter(|one| **one == kind).count() as u64
    }

    /// The payload of an order; empty for a number that no order has.
    pub(crate) fn payload(&self, order: u64) -> Cow<'_, [u8]> {
        if let Some((bytes, lines)) = &self.input {
            return Cow::Borrowed(lines.get((order as usize).wrapping_sub(1)).map_or(&[], |line| &bytes[line.clone()]));
        }
        let whole = format!(
            r#"{{"number":{order},"customer":"c-{:05}","item":"article {}","cents":{}}}"#,
            order * 7_919 % 50_000,
            order * 31 % 1_000,
            100 + order * 613 % 9_900,
        );
        let payload = match (self.kind(order), order % 4) {
            (Some(Kind::Undecodable), 0) => whole.as_bytes()[..whole.len() / 2].to_vec(),
            (Some(Kind::Undecodable), 1) => Vec::new(),
            (Some(Kind::Undecodable), 2) => b"\xff\xfe\x00not text".to_vec(),
            (Some(Kind::Undecodable), _) => br#"{"number":"a word","customer":null}"#.to_vec(),
            _ => whole.into_bytes(),
        };
        Cow::Owned(payload)
    }

    /// How many there are of each kind, for people.
    pub(crate) fn summary(&self) -> String {
        let names = [
            (Kind::FailsTwice, "that fail twice"),
            (Kind::Poison, "poison"),
            (Kind::Abort, "that abort their process"),
            (Kind::Undecodable, "that cannot be decoded"),
        ];
        let special: Vec<String> = names
            .iter()
            .map(|(kind, name)| (self.count(*kind), name))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        if special.is_empty() {
            return format!("{} orders", self.len());
        }
        format!("{} orders, among them {}", self.len(), special.join(", "))
    }
}

/// One in a thousand, and one of the few where there are few.
fn failing_twice(orders: u64) -> u64 {
    if orders < 10 { 0 } else { (orders / 1_000).max(1) }
}

/// Makes `count` ordinary orders, spread evenly, `kind`. `phase` keeps different kinds apart.
fn spread(kinds: &mut [Kind], kind: Kind, count: u64, phase: f64) {
    for nth in 0..count {
        place(kinds, kind, (nth as f64 + phase) / count as f64);
    }
}

/// Makes the first ordinary order from the part `at` of all on `kind`; nothing if there is none left.
fn place(kinds: &mut [Kind], kind: Kind, at: f64) {
    let from = (kinds.len() as f64 * at) as usize;
    let found = (from..kinds.len()).chain(0..from).find(|place| kinds[*place] == Kind::Ordinary);
    if let Some(place) = found {
        kinds[place] = kind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(plan: &Plan) -> [u64; 4] {
        [Kind::FailsTwice, Kind::Poison, Kind::Abort, Kind::Undecodable].map(|kind| plan.count(kind))
    }

    #[test]
    fn what_goes_wrong_scales_with_the_number_of_orders() {
        #[track_caller]
        fn check(orders: u64, expected: [u64; 4]) {
            let plan = Plan::generated(orders);
            assert_eq!(counts(&plan), expected);
            assert_eq!(plan.len(), orders);
        }
        check(100_000, [100, 18, 2, 10]);
        check(20_000, [20, 18, 2, 10]);
        check(1_000, [1, 18, 2, 10]);
        check(100, [1, 1, 1, 1]);
        check(10, [1, 0, 0, 0]);
        check(1, [0, 0, 0, 0]);
    }

    #[test]
    fn only_undecodable_orders_cannot_be_decoded() {
        let plan = Plan::generated(1_000);
        for (number, kind) in plan.orders() {
            let decoded = serde_json::from_slice::<crate::demo::worker::Order>(&plan.payload(number));
            assert_eq!(decoded.is_err(), kind == Kind::Undecodable, "{number}");
            if let Ok(order) = decoded {
                assert_eq!(order.number, number);
            }
        }
        assert_eq!(plan.kind(0), None);
        assert_eq!(plan.kind(1_001), None);
    }

    #[test]
    fn a_file_is_published_line_by_line_and_its_bad_lines_are_undecodable() {
        let plan = Plan::of_lines(b"{\"a\":1}\r\n\n  [2] \n{oops\n\"\xff\"\n7".to_vec(), None).unwrap();
        let kinds: Vec<Kind> = plan.orders().map(|(_, kind)| kind).collect();
        assert_eq!(kinds, [Kind::Ordinary, Kind::Ordinary, Kind::Undecodable, Kind::Undecodable, Kind::Ordinary]);
        assert_eq!(plan.payload(2).as_ref(), b"[2]");
        assert_eq!(plan.payload(4).as_ref(), b"\"\xff\"");
        assert_eq!(Plan::of_lines(b"1\n2\n3\n".to_vec(), Some(2)).unwrap().len(), 2);
        assert!(Plan::of_lines(b"\n \n".to_vec(), None).is_none());
        assert!(Plan::of_lines(Vec::new(), None).is_none());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Plan::of_file(Path::new("nowhere/orders.jsonl"), None).unwrap_err().to_string();
        assert!(error.starts_with("cannot read nowhere/orders.jsonl: "), "{error}");
    }
}
