//! [`Backoff`]: how long to wait before trying a failing server again.
//!
//! The wait grows exponentially up to a cap that is never exceeded, and is drawn at random over its whole range (full
//! jitter) so that a fleet that lost its server does not come back as one. It is never shorter than a tenth of the base:
//! no draw makes a loop spin.

use std::time::Duration;

use crate::PolicyError;
use crate::policy::{between, doubled};

const LEAST_BASE: Duration = Duration::from_millis(1);
const GREATEST_MAX: Duration = Duration::from_hours(24);

/// The bounds of a [`Backoff`]. By default from 1 s to 60 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffPolicy {
    base: Duration,
    max: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self { base: Duration::from_secs(1), max: Duration::from_mins(1) }
    }
}

impl BackoffPolicy {
    /// A policy whose first wait is at most `base`, and whose every wait is at most `max`.
    ///
    /// # Errors
    /// [`PolicyError`] when `base` is below 1 ms (a server in trouble would be hammered), when `max` exceeds one day, or
    /// when `base` exceeds `max`.
    pub fn new(base: Duration, max: Duration) -> Result<Self, PolicyError> {
        if base < LEAST_BASE {
            return Err(PolicyError::TooShort { what: "the backoff's base", given: base, least: LEAST_BASE });
        }
        if max > GREATEST_MAX {
            return Err(PolicyError::TooLong { what: "the backoff's maximum", given: max, greatest: GREATEST_MAX });
        }
        if base > max {
            return Err(PolicyError::Reversed { what: "the backoff", min: base, max });
        }
        Ok(Self { base, max })
    }

    /// The wait after failure number `attempt`, counted from 0: uniform between a tenth of the base and
    /// `min(max, base * 2^attempt)`. `random` is a number between 0 and 1; others count as the nearer end.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stream_core::BackoffPolicy;
    /// let policy = BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(60))?;
    /// assert_eq!(policy.delay(0, 0.0), Duration::from_millis(100));
    /// assert_eq!(policy.delay(3, 1.0), Duration::from_secs(8));
    /// assert_eq!(policy.delay(u32::MAX, 1.0), Duration::from_secs(60));
    /// # Ok::<(), stream_core::PolicyError>(())
    /// ```
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        between(self.base / 10, doubled(self.base, attempt, self.max), random)
    }

    /// The longest first wait.
    pub fn base(&self) -> Duration {
        self.base
    }

    /// The longest wait of all.
    pub fn max(&self) -> Duration {
        self.max
    }
}

/// A [`BackoffPolicy`] and how often the thing has failed in a row.
///
/// Call [`reset`](Self::reset) at the first success of what was being waited for, not at the mere opening of a
/// connection: a server that accepts and then refuses must be met with growing waits.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    policy: BackoffPolicy,
    attempts: u32,
}

impl Backoff {
    /// A backoff that has seen no failure yet.
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, attempts: 0 }
    }

    /// Counts a failure and returns how long to wait now; `random` as in [`BackoffPolicy::delay`].
    pub fn next(&mut self, random: f64) -> Duration {
        let delay = self.policy.delay(self.attempts, random);
        self.attempts = self.attempts.saturating_add(1);
        delay
    }

    /// Forgets the failures: the next wait is a short one again.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Failures since the start or the last [`reset`](Self::reset).
    pub fn attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        let (ms, s, day) = (Duration::from_millis(1), Duration::from_secs(1), Duration::from_hours(24));
        assert!(matches!(BackoffPolicy::new(ms / 2, s), Err(PolicyError::TooShort { .. })));
        assert!(matches!(BackoffPolicy::new(s, day + ms), Err(PolicyError::TooLong { .. })));
        assert!(matches!(BackoffPolicy::new(s, ms), Err(PolicyError::Reversed { .. })));
        let widest = BackoffPolicy::new(ms, day).unwrap();
        assert_eq!((widest.base(), widest.max()), (ms, day));
    }

    #[test]
    fn the_cap_is_reached_and_is_a_cap() {
        let mut backoff = Backoff::default();
        let longest: Vec<u64> = (0..9).map(|_| backoff.next(1.0).as_secs()).collect();
        assert_eq!(longest, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn what_is_not_a_random_number_is_clamped() {
        let policy = BackoffPolicy::default();
        for (random, clamped) in
            [(f64::NAN, 1.0), (f64::INFINITY, 1.0), (2.0, 1.0), (-0.5, 0.0), (f64::NEG_INFINITY, 0.0)]
        {
            assert_eq!(policy.delay(4, random), policy.delay(4, clamped), "{random}");
        }
    }

    fn policies() -> impl Strategy<Value = BackoffPolicy> {
        (1_u64..=86_400_000).prop_flat_map(|base| (Just(base), base..=86_400_000)).prop_map(|(base, max)| {
            BackoffPolicy::new(Duration::from_millis(base), Duration::from_millis(max)).unwrap()
        })
    }

    proptest! {
        #[test]
        fn every_wait_lies_between_the_floor_and_the_cap(policy in policies(), attempt: u32, random: f64) {
            let delay = policy.delay(attempt, random);
            prop_assert!(delay >= policy.base() / 10);
            prop_assert!(delay <= policy.max());
        }

        #[test]
        fn waits_grow_with_the_failures_and_start_anew_after_a_success(
            policy in policies(),
            steps in proptest::collection::vec(proptest::option::weighted(0.9, 0.0_f64..=1.0), 1..100),
        ) {
            let mut backoff = Backoff::new(policy);
            let mut failures = 0;
            for step in steps {
                if let Some(random) = step {
                    prop_assert!(policy.delay(failures, random) >= policy.delay(failures.saturating_sub(1), random));
                    prop_assert_eq!(backoff.next(random), policy.delay(failures, random));
                    failures += 1;
                } else {
                    backoff.reset();
                    failures = 0;
                }
                prop_assert_eq!(backoff.attempts(), failures);
            }
        }
    }
}
