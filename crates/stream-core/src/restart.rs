//! [`RestartPolicy`]: whether something that has failed is started anew, and when.
//!
//! Pauses grow with each failure in a row and are drawn at random, so that what fails for a common reason does not come
//! back as one; what has run well for a while starts over with a short pause. A limit ends what cannot be helped: somebody
//! has to see it.

use std::time::Duration;

use crate::{Backoff, BackoffPolicy};

const DEFAULT_LIMIT: u32 = 10;

/// Whether something that has failed is started anew. By default it is not.
///
/// ```
/// use std::time::Duration;
/// use stream_core::{Restart, RestartPolicy, Restarts};
/// let mut restarts = Restarts::new(RestartPolicy::on_failure().limit(1));
/// assert_eq!(restarts.failed(Duration::ZERO, 1.0), Restart::After(Duration::from_secs(1)));
/// assert_eq!(restarts.failed(Duration::ZERO, 1.0), Restart::End);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    backoff: Option<BackoffPolicy>,
    limit: Option<u32>,
    steady: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self::never()
    }
}

impl RestartPolicy {
    /// A failure is the end.
    pub fn never() -> Self {
        Self { backoff: None, limit: Some(DEFAULT_LIMIT), steady: Duration::from_mins(5) }
    }

    /// Starts anew after a failure: after pauses of 1 s that double up to 60 s, jittered, at most 10 times in a row.
    pub fn on_failure() -> Self {
        Self { backoff: Some(BackoffPolicy::default()), ..Self::never() }
    }

    /// The pauses. Without effect on [`never`](Self::never).
    #[must_use]
    pub fn backoff(mut self, policy: BackoffPolicy) -> Self {
        self.backoff = self.backoff.and(Some(policy));
        self
    }

    /// How often in a row it is started anew. With 0 it never is. Default: 10.
    #[must_use]
    pub fn limit(mut self, restarts: u32) -> Self {
        self.limit = Some(restarts);
        self
    }

    /// No limit. What cannot be helped is then tried for ever, and only the log says so.
    #[must_use]
    pub fn unlimited(mut self) -> Self {
        self.limit = None;
        self
    }

    /// What has run for so long is taken to have run well: its next failure counts as the first. Default: 5 minutes. Shorter
    /// than what it takes to fail, the limit is never reached.
    #[must_use]
    pub fn steady_after(mut self, time: Duration) -> Self {
        self.steady = time;
        self
    }
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Start anew after this pause.
    After(Duration),
    /// Leave it.
    End,
}

/// A [`RestartPolicy`], and how often the thing has failed.
#[derive(Debug, Clone)]
pub struct Restarts {
    policy: RestartPolicy,
    backoff: Backoff,
    total: u64,
}

impl Restarts {
    /// Of something that has not failed yet.
    pub fn new(policy: RestartPolicy) -> Self {
        Self { policy, backoff: Backoff::new(policy.backoff.unwrap_or_default()), total: 0 }
    }

    /// It has failed after it had run for `ran`; `random` is a number between 0 and 1.
    pub fn failed(&mut self, ran: Duration, random: f64) -> Restart {
        if ran >= self.policy.steady {
            self.backoff.reset();
        }
        if self.policy.backoff.is_none() || self.policy.limit.is_some_and(|limit| self.backoff.attempts() >= limit) {
            return Restart::End;
        }
        self.total += 1;
        Restart::After(self.backoff.next(random))
    }

    /// How often it was started anew in all.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn never_is_never() {
        for policy in [RestartPolicy::never(), RestartPolicy::default(), RestartPolicy::never().unlimited()] {
            let mut restarts = Restarts::new(policy.backoff(BackoffPolicy::default()));
            assert_eq!((restarts.failed(SECOND, 0.5), restarts.total()), (Restart::End, 0));
        }
    }

    #[test]
    fn what_ran_well_starts_over_with_a_short_pause() {
        let mut restarts = Restarts::new(RestartPolicy::on_failure().limit(2).steady_after(SECOND * 60));
        assert_eq!(restarts.failed(SECOND, 1.0), Restart::After(SECOND));
        assert_eq!(restarts.failed(SECOND, 1.0), Restart::After(SECOND * 2));
        assert_eq!(restarts.failed(SECOND * 60, 1.0), Restart::After(SECOND));
        assert_eq!(restarts.failed(SECOND * 59, 1.0), Restart::After(SECOND * 2));
        assert_eq!(restarts.failed(SECOND * 59, 1.0), Restart::End);
        assert_eq!(restarts.total(), 4);
    }

    proptest! {
        #[test]
        fn a_loop_of_failures_ends_and_never_spins(
            limit in 0_u32..20,
            runs in prop::collection::vec((0_u64..299, 0.0..=1.0), 40),
        ) {
            let mut restarts = Restarts::new(RestartPolicy::on_failure().limit(limit));
            let mut again = 0;
            for (ran, random) in runs {
                match restarts.failed(Duration::from_secs(ran), random) {
                    Restart::After(pause) => {
                        again += 1;
                        prop_assert!(pause >= SECOND / 10 && pause <= SECOND * 60);
                    }
                    Restart::End => prop_assert_eq!(again, limit),
                }
            }
            prop_assert_eq!((again, restarts.total()), (limit, u64::from(limit)));
        }
    }
}
