//! [`PolicyError`]: why a policy's numbers were refused, and the arithmetic that policies share.
//!
//! A policy is checked when it is made, so that whatever uses it later cannot fail and cannot spin.

use std::time::Duration;

/// A policy's numbers make no sense together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A duration is too short to pace anything.
    #[error("{what} is {given:?}, below the least allowed {least:?}: raise it")]
    TooShort {
        /// The setting.
        what: &'static str,
        /// What it was set to.
        given: Duration,
        /// The least it may be.
        least: Duration,
    },
    /// A duration is so long that it can only be a mistake.
    #[error("{what} is {given:?}, above the greatest allowed {greatest:?}: lower it")]
    TooLong {
        /// The setting.
        what: &'static str,
        /// What it was set to.
        given: Duration,
        /// The most it may be.
        greatest: Duration,
    },
    /// The lower bound lies above the upper one.
    #[error("{what} goes from {min:?} down to {max:?}: put the shorter duration first")]
    Reversed {
        /// The setting.
        what: &'static str,
        /// The lower bound as given.
        min: Duration,
        /// The upper bound as given.
        max: Duration,
    },
    /// No attempt would ever be allowed.
    #[error("{what} is 0, so that nothing would ever be handled: set it to at least 1")]
    NoAttempts {
        /// The setting.
        what: &'static str,
    },
}

/// A point between `low` and `high`: `low` for a `random` of 0, `high` for 1. What lies outside counts as the nearer end,
/// and a `random` that is no number counts as 1, the patient end.
pub(crate) fn between(low: Duration, high: Duration, random: f64) -> Duration {
    let random = if random.is_nan() { 1.0 } else { random.clamp(0.0, 1.0) };
    let span = high.saturating_sub(low);
    low + span.mul_f64(random).min(span)
}

/// `base * 2^exponent`, at most `max`.
pub(crate) fn doubled(base: Duration, exponent: u32, max: Duration) -> Duration {
    1_u32
        .checked_shl(exponent)
        .and_then(|factor| base.checked_mul(factor))
        .map_or_else(|| if base.is_zero() { Duration::ZERO } else { max }, |delay| delay.min(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_message_says_what_and_what_to_do() {
        let error = PolicyError::TooShort {
            what: "the backoff's base",
            given: Duration::ZERO,
            least: Duration::from_millis(1),
        };
        assert_eq!(error.to_string(), "the backoff's base is 0ns, below the least allowed 1ms: raise it");
    }

    proptest! {
        #[test]
        fn a_point_between_two_durations_never_leaves_them(low: u32, span: u32, random: f64) {
            let low = Duration::from_micros(u64::from(low));
            let high = low + Duration::from_micros(u64::from(span));
            let point = between(low, high, random);
            prop_assert!(low <= point && point <= high);
            prop_assert_eq!(between(low, high, 0.0), low);
            prop_assert_eq!(between(low, high, 1.0), high);
        }

        #[test]
        fn doubling_never_overflows_and_never_exceeds_the_cap(base: u64, exponent: u32, max: u64) {
            let (base, max) = (Duration::from_secs(base), Duration::from_secs(max));
            let delay = doubled(base, exponent, max);
            prop_assert!(delay <= max);
            prop_assert!(base.is_zero() || delay >= base.min(max));
        }
    }
}
