//! [`Takeover`]: what becomes of an entry whose owner died.
//!
//! A message that kills its process takes the blame alone. The first death says little: every entry that ran beside the
//! killer looks the same. From the second death on an entry is a suspect: suspects run one at a time, so that innocent
//! ones finish without being there when the killer strikes again. The last attempt that is allowed runs with nothing
//! beside it: whoever dies then is to blame, and nobody else can be.
//!
//! Only a death alone ends an entry. One whose last attempt was cut short by a death beside others is started once more,
//! alone, although that is one start more than allowed: it may have been done, and only its acknowledgement was missing.
//! What tells the two apart is the delivery count on the server: a last attempt that runs alone is counted twice
//! ([`Takeover::count`]), so a count above the limit says that nobody else was there.

use crate::RetryPolicy;

/// What becomes of an entry taken over from an owner that died, or handed back by one that stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Takeover {
    /// Start it among the others.
    Start {
        /// The number of the start.
        attempt: u32,
    },
    /// Start it when no other suspect runs.
    Suspect {
        /// The number of the start.
        attempt: u32,
        /// Whether nothing at all may run beside it.
        alone: bool,
    },
    /// It died alone at its last attempt: it goes to the dead letters without another start.
    GiveUp {
        /// How often it was started.
        attempts: u32,
    },
}

impl Takeover {
    /// Decides by the delivery count of the pending list.
    pub fn decide(deliveries: u64, retry: &RetryPolicy) -> Self {
        let counted = u32::try_from(deliveries).unwrap_or(u32::MAX - 2);
        let attempt = counted.saturating_add(1);
        if !retry.admits(counted) {
            return Self::GiveUp { attempts: counted.saturating_sub(1) };
        }
        let alone = counted >= 1 && retry.is_last(attempt);
        if counted >= 2 || alone { Self::Suspect { attempt, alone } } else { Self::Start { attempt } }
    }

    /// The delivery count that start number `attempt` is given on the server. One beyond the limit is the last in any case,
    /// also where handlers that run for very long kept it from being alone.
    pub fn count(attempt: u32, alone: bool, retry: &RetryPolicy) -> u64 {
        u64::from(attempt) + u64::from(alone || !retry.admits(attempt))
    }

    /// The number of starts with which an entry goes back to the group when a stop cuts start number `attempt` short. It
    /// counts, but never so that the entry is given up for it: nobody died.
    pub fn cut_short(attempt: u32, retry: &RetryPolicy) -> u32 {
        retry.attempts_limit().map_or(attempt, |most| attempt.min(most))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How a start ends.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fate {
        /// With the death of its process.
        Dies,
        /// The same, beside others that ran for very long where it was to be alone.
        DiesBesideOthers,
        /// With the stop of its process.
        IsStopped,
    }

    proptest! {
        /// Whatever becomes of its owners, the starts of an entry are numbered one after the other, at most one goes beyond the
        /// limit where nobody was stopped, and it is given up for no stop and no first death beside others at its last start.
        #[test]
        fn an_entry_is_given_up_only_after_a_last_start_that_died_alone(
            most in proptest::option::of(1_u32..6),
            fates in proptest::collection::vec(
                prop_oneof![Just(Fate::Dies), Just(Fate::DiesBesideOthers), Just(Fate::IsStopped)], 0..12),
        ) {
            let unlimited = RetryPolicy::immediate().unlimited();
            let retry = most.map_or(unlimited.clone(), |most| unlimited.max_attempts(most));
            // The first start is one among others.
            let (mut number, mut was_alone) = (1, false);
            for fate in fates {
                let alone = was_alone && fate != Fate::DiesBesideOthers;
                let count = match fate {
                    Fate::IsStopped => u64::from(Takeover::cut_short(number, &retry)),
                    Fate::Dies | Fate::DiesBesideOthers => Takeover::count(number, alone, &retry),
                };
                let most = most.unwrap_or(u32::MAX);
                match Takeover::decide(count, &retry) {
                    Takeover::GiveUp { attempts } => {
                        prop_assert!(fate != Fate::IsStopped, "a stop ends nothing");
                        prop_assert!(alone || number > most, "{number} of {most} was not alone");
                        prop_assert!(number >= most && attempts == number, "{attempts}, {number} of {most}");
                        break;
                    }
                    Takeover::Start { attempt } => {
                        prop_assert!(attempt == 2 && attempt < most, "{attempt} of {most}");
                        (number, was_alone) = (attempt, false);
                    }
                    Takeover::Suspect { attempt, alone } => {
                        prop_assert_eq!(attempt, number.min(most) + 1);
                        prop_assert_eq!(alone, attempt >= most);
                        (number, was_alone) = (attempt, alone);
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_death_is_nobodys_fault_the_second_makes_suspects_and_the_last_attempt_runs_alone() {
        let retry = RetryPolicy::immediate().max_attempts(4);
        let decide = |deliveries| Takeover::decide(deliveries, &retry);
        assert_eq!(decide(0), Takeover::Start { attempt: 1 });
        assert_eq!(decide(1), Takeover::Start { attempt: 2 });
        assert_eq!(decide(2), Takeover::Suspect { attempt: 3, alone: false });
        assert_eq!(decide(3), Takeover::Suspect { attempt: 4, alone: true });
        assert_eq!(Takeover::count(4, true, &retry), 5);
        assert_eq!(decide(5), Takeover::GiveUp { attempts: 4 });
        assert!(matches!(decide(u64::MAX), Takeover::GiveUp { .. }));
    }

    /// An entry that failed three times by itself, and whose fourth and last attempt was cut short by another's death.
    #[test]
    fn a_last_attempt_that_was_cut_short_beside_others_is_repeated_alone() {
        let retry = RetryPolicy::immediate().max_attempts(4);
        let repeated = Takeover::decide(Takeover::count(4, false, &retry), &retry);
        assert_eq!(repeated, Takeover::Suspect { attempt: 5, alone: true });
        assert_eq!(Takeover::decide(Takeover::count(5, true, &retry), &retry), Takeover::GiveUp { attempts: 5 });
        // The same for what was delivered to its only attempt.
        let once = RetryPolicy::immediate().max_attempts(1);
        assert_eq!(Takeover::decide(1, &once), Takeover::Suspect { attempt: 2, alone: true });
    }

    #[test]
    fn a_repeat_that_could_not_be_alone_counts_as_the_start_that_it_is() {
        let retry = RetryPolicy::immediate().max_attempts(4);
        let died = Takeover::decide(Takeover::count(5, false, &retry), &retry);
        assert_eq!(died, Takeover::GiveUp { attempts: 5 });
    }

    #[test]
    fn a_stop_ends_no_entry_however_often_it_cuts_the_last_start_short() {
        let retry = RetryPolicy::immediate().max_attempts(3);
        let mut attempt = 1;
        for _ in 0..10 {
            attempt = match Takeover::decide(Takeover::cut_short(attempt, &retry).into(), &retry) {
                Takeover::Start { attempt } | Takeover::Suspect { attempt, .. } => attempt,
                Takeover::GiveUp { attempts } => panic!("given up after {attempts} attempts"),
            };
        }
        assert_eq!(attempt, 4);
        assert_eq!(Takeover::cut_short(9_000, &RetryPolicy::immediate().unlimited()), 9_000);
    }

    #[test]
    fn without_a_limit_a_suspect_never_runs_alone_and_is_never_given_up() {
        let retry = RetryPolicy::immediate().unlimited();
        assert_eq!(Takeover::decide(9_000, &retry), Takeover::Suspect { attempt: 9_001, alone: false });
    }

    /// A model of 64 entries of which one kills its process: it alone is given up, after exactly the allowed starts.
    #[test]
    fn the_killer_alone_is_given_up() {
        for max in 2..8 {
            let retry = RetryPolicy::immediate().max_attempts(max);
            for killer in [0_usize, 31, 63] {
                let mut counted = [1_u64; 64]; // all were delivered and started together; the killer struck
                let mut open: Vec<usize> = (0..64).collect();
                let mut given_up = Vec::new();
                while !open.is_empty() {
                    let plans: Vec<_> = open.iter().map(|&n| (n, Takeover::decide(counted[n], &retry))).collect();
                    let mut batch = Vec::new();
                    let mut suspects = Vec::new();
                    for (n, plan) in plans {
                        match plan {
                            Takeover::Start { attempt } => batch.push((n, Takeover::count(attempt, false, &retry))),
                            Takeover::Suspect { attempt, alone } => {
                                suspects.push((n, Takeover::count(attempt, alone, &retry)))
                            }
                            Takeover::GiveUp { attempts } => {
                                assert_eq!(attempts, max);
                                given_up.push(n);
                                open.retain(|&other| other != n);
                            }
                        }
                    }
                    for &(n, count) in &batch {
                        counted[n] = count;
                    }
                    if batch.iter().any(|&(n, _)| n == killer) {
                        continue; // the process died with all of them
                    }
                    open.retain(|n| !batch.iter().any(|(done, _)| done == n));
                    for (n, count) in suspects {
                        counted[n] = count;
                        if n == killer {
                            break; // the process died; those behind it were not started
                        }
                        open.retain(|&other| other != n);
                    }
                }
                assert_eq!(given_up, [killer], "max_attempts {max}");
            }
        }
    }
}
