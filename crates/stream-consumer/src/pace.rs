//! What paces every run loop: the clock, and the pause after a reply that came too early.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The first pause after an empty reply that came too early; doubled up to the BLOCK period.
const EMPTY_PAUSE: Duration = Duration::from_millis(10);

/// Now, on the clock of the runtime, which tests can stop.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The date, in milliseconds since 1970, for those who read it later; nothing is decided by it.
pub(crate) fn wall_ms() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(simulated) = crate::simulation::wall_ms() {
        return simulated;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How long to wait after an empty reply to a read that was meant to wait for `block`; `None` if it did wait. A server or
/// a proxy that answers at once must not make the loop spin.
pub(crate) fn pause_after_empty(waited: Duration, block: Duration, streak: u32) -> Option<Duration> {
    if waited >= block / 2 {
        return None;
    }
    Some(EMPTY_PAUSE.saturating_mul(1 << streak.min(16)).min(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_empty_reply_is_paced_and_a_late_one_is_not() {
        let block = Duration::from_secs(5);
        let check = |waited, streak, pause: Option<u64>| {
            assert_eq!(
                pause_after_empty(Duration::from_millis(waited), block, streak),
                pause.map(Duration::from_millis)
            );
        };
        check(5_000, 0, None);
        check(2_500, 9, None);
        check(0, 0, Some(10));
        check(0, 1, Some(20));
        check(0, 5, Some(320));
        check(0, 40, Some(5_000));
    }
}
