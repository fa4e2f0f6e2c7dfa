//! [`LeasePolicy`]: how long a delivery belongs to its owner, when it is renewed, and how long the owner may trust it.
//!
//! The lease says how soon the death of a process is noticed, not how long a handler may run. The server counts idle time
//! from the moment it delivered; this process knows only when the answer came. So it trusts a lease a sixth shorter than it
//! is: what is older than that is acknowledged with a check of the owner.

use std::time::{Duration, Instant};

use crate::PolicyError;

/// The shortest lease: below it, an ordinary pause of a process is taken for its death.
const SHORTEST: Duration = Duration::from_millis(300);
/// The longest lease.
const LONGEST: Duration = Duration::from_hours(24);

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
    /// A lease of `lease`.
    ///
    /// # Errors
    /// [`PolicyError`] when it is shorter than 300 ms (three renewals of 100 ms each, which the network must fit into) or
    /// longer than a day.
    pub fn new(lease: Duration) -> Result<Self, PolicyError> {
        if lease < SHORTEST {
            return Err(PolicyError::TooShort { what: "the lease", given: lease, least: SHORTEST });
        }
        if lease > LONGEST {
            return Err(PolicyError::TooLong { what: "the lease", given: lease, greatest: LONGEST });
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
    fn a_lease_that_no_renewal_fits_into_is_refused() {
        assert!(LeasePolicy::new(Duration::from_millis(299)).is_err());
        assert!(LeasePolicy::new(Duration::from_hours(25)).is_err());
        assert!(LeasePolicy::new(Duration::from_millis(300)).is_ok());
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
