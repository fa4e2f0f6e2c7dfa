//! [`Elapsed`]: the time that has passed for certain, where neither clock is to be trusted alone.
//!
//! A server's clock can be set, and another server with another clock can take over: hours seem to have passed at once, and
//! what was looked at a moment ago seems to have been quiet for as long. One's own clock runs on evenly, but says nothing of
//! the server. Between two looks, no more time counts than both say.

use std::time::Duration;

/// Counts the time that has passed by a server's clock and by one's own.
#[derive(Debug, Clone, Default)]
pub struct Elapsed {
    passed: Duration,
    last: Option<(u64, Duration)>,
}

impl Elapsed {
    /// Nothing has passed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Milliseconds that have passed since the first look, at one when the server's clock shows `server_ms` and one's own,
    /// which never goes back, shows `own`. Each counts from any beginning.
    pub fn at(&mut self, server_ms: u64, own: Duration) -> u64 {
        if let Some((server_before, own_before)) = self.last {
            let by_server = Duration::from_millis(server_ms.saturating_sub(server_before));
            self.passed += by_server.min(own.saturating_sub(own_before));
        }
        self.last = Some((server_ms, own));
        u64::try_from(self.passed.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_more_counts_than_both_clocks_say() {
        let mut elapsed = Elapsed::new();
        let looks = [
            (1_000, 5, 0, "the first look"),
            (2_000, 1_005, 1_000, "both agree"),
            (90_000, 1_505, 1_500, "the server's was set forward"),
            (91_000, 2_505, 2_500, "and goes on"),
            (3_000, 9_505, 2_500, "it was set back"),
            (4_000, 10_505, 3_500, "and goes on"),
            (5_000, 99_505, 4_500, "the server stood still"),
        ];
        for (server, own, passed, what) in looks {
            assert_eq!(elapsed.at(server, Duration::from_millis(own)), passed, "{what}");
        }
    }

    proptest! {
        /// A step of the server's clock, in either direction and at any time, adds nothing.
        #[test]
        fn it_never_goes_back_nor_ahead_of_ones_own(steps in proptest::collection::vec((0_u64..100, 0_u64..200), 1..40)) {
            let (mut elapsed, mut own, mut before) = (Elapsed::new(), 0, 0);
            let mut first = None;
            for (passes, server) in steps {
                own += passes;
                let first = *first.get_or_insert(own);
                let passed = elapsed.at(server, Duration::from_millis(own));
                prop_assert!(before <= passed && passed <= own - first);
                before = passed;
            }
        }
    }
}
