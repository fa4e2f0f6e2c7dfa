//! [`Verdict`]: what did not hold, with examples, and what the history came to in numbers.

use std::collections::BTreeMap;
use std::fmt;

/// What has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// What the server confirmed is handled, dead-lettered, or still to do.
    Lost,
    /// A message is on the stream once, unless its confirmation got lost.
    Doubled,
    /// Nothing is acknowledged before its outcome.
    AcknowledgedEarly,
    /// Nothing is trimmed before its outcome.
    TrimmedEarly,
    /// No two live owners run an entry at a time.
    Overlapping,
    /// Attempt N is the Nth start.
    Attempts,
    /// What was handled comes again only where something kept it from being acknowledged.
    HandledAgain,
    /// What has to end in the dead letters does.
    LetterMissing,
    /// Nothing else does.
    Innocent,
    /// Letters say truly where they come from and why.
    Provenance,
    /// Entries of one key run one at a time and in their order.
    Order,
    /// A reader without a group misses nothing without being told.
    Missed,
    /// Nothing is left to do.
    Pending,
    /// Records fit together.
    Journal,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::AcknowledgedEarly => "acknowledged before its outcome",
            Self::TrimmedEarly => "trimmed before its outcome",
            Self::Overlapping => "overlapping",
            Self::Attempts => "attempts",
            Self::HandledAgain => "handled again",
            Self::LetterMissing => "not in the dead letters",
            Self::Innocent => "dead-lettered though innocent",
            Self::Provenance => "provenance",
            Self::Order => "order",
            Self::Missed => "missed",
            Self::Pending => "pending",
            Self::Journal => "journal",
        })
    }
}

/// One thing that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// Where and how.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// What a history came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// What did not hold, in the order of the rules.
    pub violations: Vec<Violation>,
    /// In numbers.
    pub counts: Counts,
}

/// What happened, in numbers. None of them is good or bad by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Messages that the server confirmed.
    pub published: u64,
    /// Messages of which nobody knows whether they arrived.
    pub unconfirmed: u64,
    /// Entries that were handled well, once or more.
    pub handled: u64,
    /// Entries seen in dead letters.
    pub dead_lettered: u64,
    /// Starts of handlers.
    pub starts: u64,
    /// Entries that came again although their handler had not failed.
    pub redelivered: u64,
    /// Entries that came again although they had been handled well.
    pub handled_again: u64,
    /// Runs that were not over, or not certain to be acknowledged, when their process died or fell silent, or the group
    /// was lost: what may come again.
    pub in_flight: u64,
    /// Attempts that were used up by a process before it began them.
    pub burned: u64,
    /// Starts beyond the limit, of entries whose last attempt was cut short because their process died.
    pub repeated_alone: u64,
    /// Entries that were to be handled, and died because their processes did at every attempt.
    pub unlucky: u64,
    /// The highest attempt, without those repeated alone.
    pub max_attempt: u32,
    /// Runs that went on after their entry had gone to somebody else, for which their process was silent.
    pub excused_overlaps: u64,
    /// Entries that readers without a group got.
    pub read: u64,
}

impl Verdict {
    /// Whether every rule held.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// How often a rule was broken.
    pub fn count(&self, rule: Rule) -> u64 {
        self.violations.iter().filter(|violation| violation.rule == rule).count() as u64
    }

    /// A few examples of each rule that was broken, and how many more there are.
    pub fn complaints(&self, examples: usize) -> Vec<String> {
        let mut by_rule: BTreeMap<Rule, Vec<&Violation>> = BTreeMap::new();
        for violation in &self.violations {
            by_rule.entry(violation.rule).or_default().push(violation);
        }
        let mut lines = Vec::new();
        for (rule, violations) in by_rule {
            lines.extend(violations.iter().take(examples).map(ToString::to_string));
            if violations.len() > examples {
                lines.push(format!("{rule}: and {} more", violations.len() - examples));
            }
        }
        lines
    }

    pub(crate) fn complain(&mut self, rule: Rule, what: String) {
        self.violations.push(Violation { rule, what });
    }
}
