//! [`Inline`]: whether handlers may be polled where they are dispatched, before a task is made for them.
//!
//! Most handlers of cheap work are ready at their first poll, and a task for each costs more than the work. But a handler
//! that computes for long would hold up its neighbours. So only handlers that were seen to be quick are polled in place,
//! and one that is not ends the privilege for a while.

use std::time::Duration;

/// A first poll up to this long is quick.
const QUICK: Duration = Duration::from_micros(200);
/// A first poll from this long on ends the privilege.
const SLOW: Duration = Duration::from_millis(1);
/// So many quick polls in a row are proof enough at first.
const PROOF: u32 = 32;
/// And at most so many after repeated disappointments.
const MOST_PROOF: u32 = 1 << 16;

/// Watches how long polls of handlers take.
#[derive(Debug, Clone)]
pub struct Inline {
    needed: u32,
    quick: u32,
}

impl Default for Inline {
    fn default() -> Self {
        Self { needed: PROOF, quick: 0 }
    }
}

impl Inline {
    /// Nothing known: not allowed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next handler may be polled in place.
    pub fn allowed(&self) -> bool {
        self.quick >= self.needed
    }

    /// A poll of a handler took `time`.
    pub fn polled(&mut self, time: Duration) {
        if time <= QUICK {
            self.quick = self.quick.saturating_add(1);
        } else if time >= SLOW {
            if self.allowed() {
                self.needed = self.needed.saturating_mul(2).min(MOST_PROOF);
            }
            self.quick = 0;
        } else if !self.allowed() {
            self.quick = 0;
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
        check(&mut inline, 1, SLOW, false);
        check(&mut inline, PROOF, QUICK, false);
        check(&mut inline, PROOF, QUICK, true);
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
