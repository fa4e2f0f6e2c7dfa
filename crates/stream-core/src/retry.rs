//! [`RetryPolicy`]: what becomes of an entry after its handler returned an [`Outcome`].
//!
//! Attempts count from 1 and live in the server's pending list. [`RetryPolicy::admits`] is asked before a handler starts,
//! so that an entry that kills its process is not started for ever; [`RetryPolicy::verdict`] is asked after it returned.

use std::fmt::{self, Write};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::policy::{between, doubled};
use crate::{DeadReason, PolicyError};

/// The longest text of an error or of a reason that is kept, in bytes.
pub const MAX_DETAIL: usize = 1024;

const LONGEST_DELAY: Duration = Duration::from_hours(720);
const DEFAULT_MAX_ATTEMPTS: u32 = 8;

/// What a handler says about the entry it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Handled: acknowledge it.
    Done,
    /// Not handled: try again.
    Retry {
        /// How long to wait; `None` leaves it to the [`RetryPolicy`]. More than 30 days count as 30 days.
        after: Option<Duration>,
        /// What went wrong, for the log and the dead letter.
        error: Option<String>,
    },
    /// Can never be handled: dead-letter it without another attempt.
    Reject {
        /// Why, for the log and the dead letter.
        reason: String,
    },
    /// Not handled and not to be counted: give it back to the group, for any consumer to take.
    Release,
    /// Stop the whole consumer gracefully, as if its switch had been turned; what becomes of this entry is said here. What
    /// Prefect's handlers raise as `StopConsumer(ack)`.
    Stop {
        /// `true`: handled, acknowledge it. `false`: not handled; the attempt has failed, and unless it was the last one the
        /// entry goes back to the group as the consumer stops.
        acknowledge: bool,
    },
}

impl Outcome {
    /// Try again when the policy says.
    pub fn retry() -> Self {
        Self::Retry { after: None, error: None }
    }

    /// Try again after `delay`, whatever the policy says.
    pub fn retry_after(delay: Duration) -> Self {
        Self::Retry { after: Some(delay), error: None }
    }

    /// Try again because of `error`, of whose text the first 1 KiB ([`MAX_DETAIL`]) is kept.
    pub fn failed(error: impl fmt::Display) -> Self {
        let mut text = Bounded(String::new());
        // The text ends where the bound is reached, or where the error's own formatting fails: both leave what was written.
        let _ = write!(text, "{error}");
        Self::Retry { after: None, error: Some(text.0) }
    }

    /// Handled, and the last one: acknowledge it and stop the consumer.
    pub fn stop() -> Self {
        Self::Stop { acknowledge: true }
    }

    /// Whether the consumer is to stop.
    pub fn is_stop(&self) -> bool {
        matches!(self, Self::Stop { .. })
    }

    /// Dead-letter it because of `reason`, of which the first 1 KiB ([`MAX_DETAIL`]) is kept.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject { reason: cut(reason.into()) }
    }
}

impl From<()> for Outcome {
    /// A handler that returns nothing has handled its entry.
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// What is to be done with an entry: the answer of [`RetryPolicy::verdict`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Acknowledge it.
    Acknowledge,
    /// Keep it pending and start the handler again after this time.
    RetryAfter(Duration),
    /// Write it to the dead letters, then acknowledge it.
    DeadLetter(DeadReason),
    /// Give it back to the group without having counted the attempt.
    HandBack,
}

/// How often and how soon an entry is tried again. By default exponential from 1 s to 300 s, at most 8 attempts.
///
/// ```
/// use std::time::Duration;
/// use stream_core::{Outcome, RetryPolicy, Verdict};
/// let policy = RetryPolicy::fixed(Duration::from_secs(5)).max_attempts(2);
/// assert_eq!(policy.verdict(1, &Outcome::retry(), 0.5), Verdict::RetryAfter(Duration::from_secs(5)));
/// assert!(matches!(policy.verdict(2, &Outcome::retry(), 0.5), Verdict::DeadLetter(_)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    delay: Delay,
    max_attempts: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Delay {
    Fixed(Duration),
    Exponential { min: Duration, max: Duration },
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1)..=Duration::from_mins(5))
    }
}

impl RetryPolicy {
    /// Try again at once. Right for handlers that wait themselves; else a broken dependency is hammered, and 8 attempts
    /// are over before it comes back.
    pub fn immediate() -> Self {
        Self::fixed(Duration::ZERO)
    }

    /// Try again after `delay`, always the same.
    pub fn fixed(delay: Duration) -> Self {
        Self { delay: Delay::Fixed(delay), max_attempts: Some(DEFAULT_MAX_ATTEMPTS) }
    }

    /// Try again after a wait that doubles from the start of `delays` to its end: half of it fixed, half random, never
    /// outside of `delays`.
    pub fn exponential(delays: RangeInclusive<Duration>) -> Self {
        let (min, max) = delays.into_inner();
        Self { delay: Delay::Exponential { min, max }, max_attempts: Some(DEFAULT_MAX_ATTEMPTS) }
    }

    /// At most this many starts of the handler in all, the first included. Default 8.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// No limit to the attempts. An entry that can never be handled is then tried for ever, and one that kills its process
    /// keeps doing so.
    #[must_use]
    pub fn unlimited(mut self) -> Self {
        self.max_attempts = None;
        self
    }

    /// Whether the policy makes sense.
    ///
    /// # Errors
    /// [`PolicyError`] when no attempt is allowed, when an exponential policy starts at zero or goes downwards, or when a
    /// delay exceeds 30 days.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.max_attempts == Some(0) {
            return Err(PolicyError::NoAttempts { what: "the retry policy's max_attempts" });
        }
        let longest = match self.delay {
            Delay::Fixed(delay) => delay,
            Delay::Exponential { min, max: _ } if min.is_zero() => {
                let least = Duration::from_nanos(1);
                return Err(PolicyError::TooShort { what: "the retry policy's first delay", given: min, least });
            }
            Delay::Exponential { min, max } if min > max => {
                return Err(PolicyError::Reversed { what: "the retry policy's delay", min, max });
            }
            Delay::Exponential { min: _, max } => max,
        };
        if longest > LONGEST_DELAY {
            let what = "the retry policy's longest delay";
            return Err(PolicyError::TooLong { what, given: longest, greatest: LONGEST_DELAY });
        }
        Ok(())
    }

    /// Whether attempt number `attempt`, counted from 1, may be started.
    pub fn admits(&self, attempt: u32) -> bool {
        self.max_attempts.is_none_or(|max| attempt <= max)
    }

    /// Whether no attempt may follow attempt number `attempt`.
    pub fn is_last(&self, attempt: u32) -> bool {
        self.max_attempts.is_some_and(|max| attempt >= max)
    }

    /// The most attempts an entry gets; `None` when there is no limit.
    pub fn attempts_limit(&self) -> Option<u32> {
        self.max_attempts
    }

    /// What becomes of an entry whose attempt number `attempt`, counted from 1, ended with `outcome`. `random` is a number
    /// between 0 and 1; others count as the nearer end.
    pub fn verdict(&self, attempt: u32, outcome: &Outcome, random: f64) -> Verdict {
        match outcome {
            Outcome::Done | Outcome::Stop { acknowledge: true } => Verdict::Acknowledge,
            Outcome::Stop { acknowledge: false } => self.verdict(attempt, &Outcome::retry(), random),
            Outcome::Release => Verdict::HandBack,
            Outcome::Reject { reason } => Verdict::DeadLetter(DeadReason::Rejected(cut(reason.clone()))),
            Outcome::Retry { after: _, error } if self.is_last(attempt) => {
                Verdict::DeadLetter(DeadReason::Exhausted { error: error.clone().map(cut) })
            }
            Outcome::Retry { after: Some(after), .. } => Verdict::RetryAfter((*after).min(LONGEST_DELAY)),
            Outcome::Retry { after: None, .. } => Verdict::RetryAfter(self.delay_after(attempt, random)),
        }
    }

    fn delay_after(&self, attempt: u32, random: f64) -> Duration {
        match self.delay {
            Delay::Fixed(delay) => delay.min(LONGEST_DELAY),
            Delay::Exponential { min, max } => {
                // The upper end starts at twice the minimum, so that even the first retries of many entries that failed
                // together are spread.
                let high = doubled(min, attempt.max(1), max).min(LONGEST_DELAY);
                between((high / 2).max(min).min(high), high, random)
            }
        }
    }
}

/// Cuts `text` to [`MAX_DETAIL`] bytes, at the boundary of a character.
pub(crate) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_DETAIL));
    text
}

/// A string that takes up to [`MAX_DETAIL`] bytes and stops the formatting there.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let fits = part.floor_char_boundary(MAX_DETAIL - self.0.len());
        self.0.push_str(&part[..fits]);
        if fits < part.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Duration = Duration::from_hours(24);

    #[test]
    fn policies_that_make_no_sense_are_refused() {
        let s = Duration::from_secs(1);
        assert_eq!(RetryPolicy::default().check(), Ok(()));
        assert_eq!(RetryPolicy::immediate().unlimited().check(), Ok(()));
        assert_eq!(RetryPolicy::fixed(30 * DAY).check(), Ok(()));
        assert!(matches!(RetryPolicy::default().max_attempts(0).check(), Err(PolicyError::NoAttempts { .. })));
        assert!(matches!(RetryPolicy::exponential(Duration::ZERO..=s).check(), Err(PolicyError::TooShort { .. })));
        assert!(matches!(RetryPolicy::exponential(2 * s..=s).check(), Err(PolicyError::Reversed { .. })));
        assert!(matches!(RetryPolicy::exponential(s..=31 * DAY).check(), Err(PolicyError::TooLong { .. })));
        assert!(matches!(RetryPolicy::fixed(31 * DAY).check(), Err(PolicyError::TooLong { .. })));
    }

    #[test]
    fn the_default_policy_starts_an_entry_eight_times() {
        let policy = RetryPolicy::default();
        let started: Vec<u32> = (1..100).take_while(|attempt| policy.admits(*attempt)).collect();
        assert_eq!(started, (1..=8).collect::<Vec<_>>());
        assert!(policy.is_last(8) && !policy.is_last(7));
        assert_eq!(policy.attempts_limit(), Some(8));
        assert_eq!(policy.unlimited().attempts_limit(), None);
    }

    #[test]
    fn every_outcome_has_its_verdict() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.verdict(99, &Outcome::Done, 0.5), Verdict::Acknowledge);
        assert_eq!(policy.verdict(99, &Outcome::Release, 0.5), Verdict::HandBack);
        let rejected = Verdict::DeadLetter(DeadReason::Rejected("no such order".to_owned()));
        assert_eq!(policy.verdict(1, &Outcome::reject("no such order"), 0.5), rejected);
        let exhausted = Verdict::DeadLetter(DeadReason::Exhausted { error: Some("timeout".to_owned()) });
        assert_eq!(policy.verdict(8, &Outcome::failed("timeout"), 0.5), exhausted);
        assert_eq!(policy.verdict(8, &Outcome::stop(), 0.5), Verdict::Acknowledge);
        let failed = Outcome::Stop { acknowledge: false };
        assert!(matches!(policy.verdict(7, &failed, 0.5), Verdict::RetryAfter(_)));
        assert_eq!(policy.verdict(8, &failed, 0.5), Verdict::DeadLetter(DeadReason::Exhausted { error: None }));
        let own = Outcome::retry_after(Duration::from_millis(7));
        assert_eq!(policy.verdict(1, &own, 0.5), Verdict::RetryAfter(Duration::from_millis(7)));
        assert_eq!(policy.verdict(1, &Outcome::retry_after(Duration::MAX), 0.5), Verdict::RetryAfter(30 * DAY));
    }

    #[test]
    fn exponential_delays_double_up_to_the_maximum() {
        let policy = RetryPolicy::exponential(Duration::from_secs(1)..=Duration::from_secs(10)).unlimited();
        let bounds = |attempt| [policy.delay_after(attempt, 0.0).as_secs(), policy.delay_after(attempt, 1.0).as_secs()];
        assert_eq!([1, 2, 3, 4, 5, u32::MAX].map(bounds), [[1, 2], [2, 4], [4, 8], [5, 10], [5, 10], [5, 10]]);
    }

    #[test]
    fn half_of_a_narrow_range_is_not_below_it() {
        let policy = RetryPolicy::exponential(Duration::from_secs(10)..=Duration::from_secs(12));
        assert_eq!([0.0, 0.5, 1.0].map(|random| policy.delay_after(3, random).as_secs()), [10, 11, 12]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "x".to_owned() + &"é".repeat(4000);
        let Outcome::Retry { error: Some(error), .. } = Outcome::failed(&long) else { panic!("not a retry") };
        let Outcome::Reject { reason } = Outcome::reject(long.clone()) else { panic!("not a rejection") };
        assert_eq!(error, reason);
        assert_eq!(error.len(), MAX_DETAIL - 1);
        assert!(long.starts_with(&error));
    }

    proptest! {
        #[test]
        fn delays_stay_within_the_range(min in 1_u64..1_000_000, more in 0_u64..1_000_000_000, attempt: u32, random: f64) {
            let (min, max) = (Duration::from_millis(min), Duration::from_millis(min + more));
            let policy = RetryPolicy::exponential(min..=max).unlimited();
            prop_assert_eq!(policy.check(), Ok(()));
            let Verdict::RetryAfter(delay) = policy.verdict(attempt, &Outcome::retry(), random) else {
                return Err(TestCaseError::fail("an unlimited policy retries"));
            };
            prop_assert!(min <= delay && delay <= max, "{:?} is not in {:?}..={:?}", delay, min, max);
        }

        #[test]
        fn even_unchecked_policies_never_panic(min: u64, max: u64, attempt: u32, random: f64) {
            let policy = RetryPolicy::exponential(Duration::from_secs(min)..=Duration::from_secs(max)).unlimited();
            prop_assert!(matches!(policy.verdict(attempt, &Outcome::retry(), random), Verdict::RetryAfter(_)));
        }

        #[test]
        fn an_entry_that_always_fails_is_started_exactly_as_often_as_allowed(max in 1_u32..50, random in 0.0_f64..=1.0) {
            let policy = RetryPolicy::default().max_attempts(max);
            let mut attempt = 0;
            let dead = loop {
                attempt += 1;
                prop_assert!(policy.admits(attempt));
                match policy.verdict(attempt, &Outcome::failed("no"), random) {
                    Verdict::RetryAfter(_) => prop_assert!(!policy.is_last(attempt)),
                    other => break other,
                }
            };
            prop_assert_eq!(dead, Verdict::DeadLetter(DeadReason::Exhausted { error: Some("no".to_owned()) }));
            prop_assert_eq!(attempt, max);
        }

        #[test]
        fn any_error_text_is_kept_up_to_the_bound(parts in proptest::collection::vec(".{0,300}", 0..8)) {
            let text = parts.concat();
            let Outcome::Retry { error: Some(error), .. } = Outcome::failed(&text) else {
                return Err(TestCaseError::fail("not a retry"));
            };
            prop_assert!(text.starts_with(&error) && error.len() <= MAX_DETAIL);
            prop_assert!(error.len() == text.len() || error.len() > MAX_DETAIL - 4);
        }
    }
}
