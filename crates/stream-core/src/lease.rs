//! [`LeasePolicy`]: how long a delivery belongs to its owner, when it is renewed, and how long the owner may trust it.
//!
//! The lease says how soon the death of a process is noticed, not how long a handler may run. The server counts idle time
//! from the moment it delivered; this process knows only when the answer came. So it trusts a lease a sixth shorter than it
//! is: what is older than that is acknowledged with a check of the owner.

use std::time::{Duration, Instant};

use crate::PolicyError;

/// The shortest lease: below it, an ordinary pause of a process is taken for its death.
const SHORTEST: Duration = Duration::from_millis(300);
/// How long a [`Certainty`] is good for; less for short leases.
const LONGEST_CERTAINTY: Duration = Duration::from_millis(10);

/// How much later than expected the answer to a read may come without a doubt.
const PROMPT: Duration = Duration::from_millis(500);

/// What is certain for a while: spares the arithmetic for each of many entries that are looked at within milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Certainty {
    after: Instant,
    until: Instant,
}

impl Certainty {
    /// Whether a lease confirmed at `at` is certain at `now` without a closer look. `false` says nothing.
    #[inline]
    pub fn covers(&self, at: Instant, now: Instant) -> bool {
        now < self.until && at > self.after
    }
}

/// A validated lease. Default 30 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeasePolicy {
    lease: Duration,
    /// Worked out once: it is asked for with every entry.
    trusted: Duration,
}

impl Default for LeasePolicy {
    fn default() -> Self {
        Self::of(Duration::from_secs(30))
    }
}

impl LeasePolicy {
    /// The longest lease: a day.
    pub const LONGEST: Duration = Duration::from_hours(24);

    /// A lease of `lease`.
    ///
    /// # Errors
    /// [`PolicyError`] when it is shorter than 300 ms (three renewals of 100 ms each, which the network must fit into) or
    /// longer than a day.
    pub fn new(lease: Duration) -> Result<Self, PolicyError> {
        if lease < SHORTEST {
            return Err(PolicyError::TooShort { what: "the lease", given: lease, least: SHORTEST });
        }
        if lease > Self::LONGEST {
            return Err(PolicyError::TooLong { what: "the lease", given: lease, greatest: Self::LONGEST });
        }
        Ok(Self::of(lease))
    }

    fn of(lease: Duration) -> Self {
        Self { lease, trusted: lease / 6 * 5 }
    }

    /// After this idle time on the server, anybody may take the entry over.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How often the owner looks for leases to renew: a third of the lease.
    pub fn renew_every(&self) -> Duration {
        self.lease / 3
    }

    /// A lease that is at least this old when the owner looks is renewed, so that none is older than half a lease.
    pub fn renew_from(&self) -> Duration {
        self.lease / 6
    }

    /// How long after its last confirmation a lease is certain: five sixths of it.
    #[inline]
    pub fn trusted(&self) -> Duration {
        self.trusted
    }

    /// From when on the entries of a read that was `asked` for are surely ours, looked at `now`; `waits` is how long the
    /// server may wait for entries.
    ///
    /// The server delivers at any time after it was asked. An answer that comes about when it was to be expected was
    /// delivered just now. One that comes much later was perhaps waited for by nobody: this process was frozen, and others
    /// may have taken over what it had been given. And one that comes at its time may have been on its way all the while: as
    /// late as the trusted part of a lease does not allow for, it says nothing either.
    pub fn delivered_since(&self, asked: Instant, waits: Duration, now: Instant) -> Instant {
        let took = now.saturating_duration_since(asked);
        if took > waits.saturating_add(PROMPT) || took > self.lease - self.trusted { asked } else { now }
    }

    /// What is certain from `now` on for some milliseconds.
    pub fn certainty(&self, now: Instant) -> Certainty {
        let until = now + LONGEST_CERTAINTY.min(self.trusted / 100);
        // An instant that far back may not exist; then only what is confirmed from now on is covered.
        Certainty { after: until.checked_sub(self.trusted).unwrap_or(now), until }
    }

    /// Whether a lease confirmed at `at` is certain at `now`.
    #[inline]
    pub fn is_certain(&self, at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(at) < self.trusted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant can only be had from the clock; tests count from it")]
    fn an_answer_that_nobody_waited_for_is_not_taken_for_new() {
        let asked = Instant::now();
        let block = Duration::from_secs(5);
        let after = |time| asked + time;
        let lease = LeasePolicy::new(Duration::from_mins(1)).unwrap();
        for prompt in [Duration::ZERO, block, block + PROMPT] {
            assert_eq!(lease.delivered_since(asked, block, after(prompt)), after(prompt));
        }
        let frozen = after(Duration::from_secs(80));
        assert_eq!(lease.delivered_since(asked, block, frozen), asked);
        assert!(!lease.is_certain(lease.delivered_since(asked, block, frozen), frozen));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant can only be had from the clock; tests count from it")]
    fn an_answer_that_may_have_been_on_its_way_for_long_counts_from_when_it_was_asked_for() {
        let asked = Instant::now();
        let (lease, block) = (LeasePolicy::new(Duration::from_secs(3)).unwrap(), Duration::from_secs(4));
        let after = |millis| asked + Duration::from_millis(millis);
        assert_eq!(lease.delivered_since(asked, block, after(500)), after(500));
        assert_eq!(lease.delivered_since(asked, block, after(501)), asked);
        assert!(!lease.is_certain(lease.delivered_since(asked, block, after(3_900)), after(3_900)));
        // However late within what is taken for new: it is certain for no longer than the server's lease.
        for millis in 0..4_000 {
            let since = lease.delivered_since(asked, block, after(millis));
            assert!(since + lease.trusted() <= asked + lease.lease() || since == asked, "{millis}");
        }
    }

    #[test]
    fn a_lease_that_no_renewal_fits_into_is_refused() {
        assert!(LeasePolicy::new(Duration::from_millis(299)).is_err());
        assert!(LeasePolicy::new(Duration::from_hours(25)).is_err());
        assert!(LeasePolicy::new(Duration::from_millis(300)).is_ok());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an instant can only be had from the clock; tests count from it")]
    fn what_is_covered_is_certain() {
        let start = Instant::now();
        for lease in [300, 30_000].map(Duration::from_millis) {
            let policy = LeasePolicy::new(lease).unwrap();
            let made = start + Duration::from_secs(60);
            let certainty = policy.certainty(made);
            let mut covered = 0;
            for (at, later) in (0..=600).flat_map(|at| (0..=12).map(move |later| (at * 100, later))) {
                let (at, now) = (start + Duration::from_millis(at), made + Duration::from_millis(later));
                if certainty.covers(at, now) {
                    covered += 1;
                    assert!(policy.is_certain(at, now), "{lease:?}: {at:?} at {now:?}");
                }
            }
            assert!(covered > 2, "{lease:?}: {covered}");
        }
    }

    #[test]
    fn two_renewals_can_fail_before_a_lease_is_uncertain() {
        for lease in [300, 1_000, 30_000, 86_400_000].map(Duration::from_millis) {
            let policy = LeasePolicy::new(lease).unwrap();
            assert!(policy.renew_from() + policy.renew_every() <= lease / 2);
            assert!(policy.renew_from() + policy.renew_every() < policy.trusted());
            assert!(policy.trusted() < policy.lease());
        }
    }
}
