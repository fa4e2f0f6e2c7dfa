//! [`SearchBudget`]: how much of a server's time the search for abandoned entries may take.
//!
//! A claim walks over every pending entry, also over those whose owners live, and a pending list can have a million of
//! them. So an ordinary search takes a hundredth of the time at most and goes on later where it stopped. When an owner
//! seems to be dead it goes on to the end: then there is something to find, and somebody waits for it.

use std::time::Duration;

/// The part of the time that an ordinary search may take.
const SHARE: u32 = 100;

/// What one search may still take.
#[derive(Debug, Clone)]
pub struct SearchBudget {
    left: Duration,
    lifted: Option<bool>,
}

/// What to do after a step of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Go on.
    GoOn,
    /// Find out whether an owner seems to be dead, and tell by [`SearchBudget::lift_if`].
    LookAtOwners,
    /// Stop here until the next search.
    Later,
}

/// What is known of a consumer of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Entries that it holds.
    pub pending: u64,
    /// Since it was last heard of.
    pub idle: Duration,
}

impl SearchBudget {
    /// For a search that is done once in `every`.
    pub fn new(every: Duration) -> Self {
        Self { left: every / SHARE, lifted: None }
    }

    /// A step has taken `time`, and found something or not. What is found is worth its time.
    pub fn spend(&mut self, time: Duration, found: bool) -> NextStep {
        if !found {
            self.left = self.left.saturating_sub(time);
        }
        match self.lifted {
            Some(true) => NextStep::GoOn,
            _ if !self.left.is_zero() => NextStep::GoOn,
            None => NextStep::LookAtOwners,
            Some(false) => NextStep::Later,
        }
    }

    /// Lifts the limit if one of the consumers holds something and has been silent for half a `lease`: one that lives
    /// renews its leases every third, and what a dead one holds can be had when it was silent for two thirds at the
    /// earliest. Returns whether the search goes on.
    pub fn lift_if(&mut self, holders: impl IntoIterator<Item = Holder>, lease: Duration) -> bool {
        let dead = holders.into_iter().any(|holder| holder.pending > 0 && holder.idle >= lease / 2);
        self.lifted = Some(dead);
        dead
    }

    /// Whether the limit was lifted.
    pub fn is_lifted(&self) -> bool {
        self.lifted == Some(true)
    }

    /// Lifts the limit, since nothing can be known of the owners.
    pub fn lift(&mut self) {
        self.lifted = Some(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);
    const LEASE: Duration = Duration::from_secs(30);
    const STEP: Duration = Duration::from_millis(1);

    /// The steps of a search that finds nothing, up to `most`.
    fn steps(others: &[Holder], most: usize) -> usize {
        let mut budget = SearchBudget::new(EVERY);
        for step in 1..=most {
            match budget.spend(STEP, false) {
                NextStep::GoOn => {}
                NextStep::LookAtOwners => {
                    if !budget.lift_if(others.iter().copied(), LEASE) {
                        return step;
                    }
                }
                NextStep::Later => return step,
            }
        }
        most
    }

    #[test]
    fn a_search_that_finds_nothing_takes_a_hundredth_of_the_time() {
        let live = Holder { pending: 1_000_000, idle: LEASE / 3 };
        let gone_and_empty = Holder { pending: 0, idle: LEASE * 100 };
        assert_eq!(steps(&[], 1_000), 100);
        assert_eq!(steps(&[live, gone_and_empty], 1_000), 100);
    }

    #[test]
    fn what_a_dead_owner_left_is_searched_for_to_the_end() {
        let dead = Holder { pending: 1, idle: LEASE * 2 / 3 };
        assert_eq!(steps(&[dead], 1_000), 1_000);
    }

    #[test]
    fn what_is_found_is_worth_its_time() {
        let mut budget = SearchBudget::new(EVERY);
        for _ in 0..1_000 {
            assert_eq!(budget.spend(STEP, true), NextStep::GoOn);
        }
        budget.lift();
        assert_eq!(budget.spend(EVERY, false), NextStep::GoOn);
    }
}
