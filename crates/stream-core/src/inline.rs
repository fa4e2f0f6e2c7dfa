//! [`Inline`]: whether handlers may be polled where they are dispatched, before a task is made for them.
//!
//! Most handlers of cheap work are ready at their first poll, and a task for each costs more than the work. But a handler
//! that computes for long would hold up its neighbours. So only handlers that were seen to be quick are polled in place,
//! and handlers that are not end the privilege for a while. A poll now and then that took a few milliseconds ends nothing:
//! on a busy machine that is a thread that had to wait for its processor, not a handler that computes.

use std::time::Duration;

/// A first poll up to this long is quick.
const QUICK: Duration = Duration::from_micros(200);
/// A first poll from this long on is slow.
const SLOW: Duration = Duration::from_millis(1);
/// A first poll from this long on is no accident: it ends the privilege at once.
const BLOCKED: Duration = Duration::from_millis(20);
/// So many slow polls end the privilege.
const STRIKES: u32 = 3;
/// So many quick polls make up for one slow one.
const AMENDS: u32 = 1 << 10;
/// So many quick polls in a row are proof enough at first.
const PROOF: u32 = 32;
/// And at most so many after repeated disappointments.
const MOST_PROOF: u32 = 1 << 16;

/// Watches how long polls of handlers take.
#[derive(Debug, Clone)]
pub struct Inline {
    needed: u32,
    quick: u32,
    strikes: u32,
    /// Quick polls since the last slow one, or since one was made up for.
    amends: u32,
}

impl Default for Inline {
    fn default() -> Self {
        Self { needed: PROOF, quick: 0, strikes: 0, amends: 0 }
    }
}

impl Inline {
    /// Nothing known: not allowed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next handler may be polled in place.
    #[inline]
    pub fn allowed(&self) -> bool {
        self.quick >= self.needed
    }

    /// A poll of a handler took `time`.
    #[inline]
    pub fn polled(&mut self, time: Duration) {
        if time <= QUICK {
            self.quick = self.quick.saturating_add(1);
            if self.strikes > 0 {
                self.amends += 1;
                if self.amends >= AMENDS {
                    self.amends = 0;
                    self.strikes -= 1;
                }
            }
        } else {
            self.was_not_quick(time);
        }
    }

    fn was_not_quick(&mut self, time: Duration) {
        if !self.allowed() {
            self.quick = 0;
        } else if time >= SLOW {
            self.strikes += 1;
            self.amends = 0;
            if self.strikes >= STRIKES || time >= BLOCKED {
                self.needed = self.needed.saturating_mul(2).min(MOST_PROOF);
                self.quick = 0;
                self.strikes = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(inline: &mut Inline, polls: u32, time: Duration, allowed: bool) {
        for _ in 0..polls {
            inline.polled(time);
        }
        assert_eq!(inline.allowed(), allowed);
    }

    #[test]
    fn the_privilege_is_earned_and_lost() {
        let mut inline = Inline::new();
        assert!(!inline.allowed());
        check(&mut inline, PROOF - 1, QUICK, false);
        check(&mut inline, 1, QUICK, true);
        check(&mut inline, 5, Duration::from_micros(500), true);
        check(&mut inline, 1, BLOCKED, false);
        check(&mut inline, PROOF, QUICK, false);
        check(&mut inline, PROOF, QUICK, true);
    }

    #[test]
    fn slow_polls_now_and_then_are_forgiven_and_many_are_not() {
        let mut inline = Inline::new();
        check(&mut inline, PROOF, QUICK, true);
        for _ in 0..1000 {
            check(&mut inline, 1, SLOW, true);
            check(&mut inline, AMENDS, QUICK, true);
        }
        check(&mut inline, STRIKES - 1, SLOW, true);
        check(&mut inline, AMENDS - 1, QUICK, true);
        check(&mut inline, 1, SLOW, false);
    }

    #[test]
    fn one_that_disappoints_ever_again_is_asked_for_more_proof_but_not_for_ever() {
        let mut inline = Inline::new();
        for _ in 0..40 {
            check(&mut inline, MOST_PROOF, Duration::ZERO, true);
            inline.polled(Duration::from_secs(1));
        }
        check(&mut inline, MOST_PROOF, Duration::ZERO, true);
    }
}
