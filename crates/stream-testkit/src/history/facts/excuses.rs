//! What deaths, silences and losses of the group may have done to an entry. Each answer excuses something, so none may be
//! wider than what it is about.

use stream_core::EntryId;

use super::{Entry, Facts, Loss, Process, Run, Silence};
use crate::history::event::{Cause, Ending};

/// Within this time of its death, in microseconds, a server may still serve the read with which a process had waited.
const SERVED_WITHIN: u64 = 50_000;
/// Within this time of a loss of the group, in microseconds, a trim that had looked before it is over, and seen.
const CUT_WITHIN: u64 = 15_000_000;

impl Facts {
    /// When a process ended, and how.
    pub(in crate::history) fn ended(&self, process: u32) -> Option<(u64, Ending)> {
        self.processes.get(&process)?.ended
    }

    /// Whether a process was asked to stop between these times.
    pub(in crate::history) fn stopped_between(&self, process: u32, from: u64, until: u64) -> bool {
        let stopping = self.processes.get(&process).and_then(|process| process.stopping);
        stopping.is_some_and(|at| (from..=until).contains(&at))
    }

    /// When a run was over at the latest: it returned, was told to stop, or its process died.
    pub(in crate::history) fn over(&self, run: &Run) -> u64 {
        let ended = run.ended.map(|(at, _)| at).or_else(|| Some(self.ended(run.process)?.0));
        ended.into_iter().chain(run.told).min().unwrap_or(u64::MAX)
    }

    /// Silences of a process, those of all included.
    fn silences(&self, process: u32) -> impl Iterator<Item = Silence> {
        let own = self.processes.get(&process).map_or(&[][..], |process| &process.silences);
        own.iter().chain(&self.silences).copied()
    }

    /// Whether a process may have lost what it held without knowing it at the time `at`: it was silent for most of a lease,
    /// and has come back less than a lease ago; or the group was lost less than a lease ago.
    pub(in crate::history) fn is_unaware(&self, process: u32, at: u64) -> bool {
        self.is_back_from_silence(process, at) || self.is_group_unaware(at)
    }

    pub(in crate::history) fn is_back_from_silence(&self, process: u32, at: u64) -> bool {
        self.silences(process).any(|silence| {
            silence.length() >= self.silence && silence.from + self.silence <= at && at <= silence.until + self.lease
        })
    }

    /// Whether the group was lost in the last lease: not every process knows of it.
    fn is_group_unaware(&self, at: u64) -> bool {
        self.losses.iter().any(|loss| loss.from <= at && at <= loss.until + self.lease)
    }

    /// The losses of the group between these times, or shortly enough before for the first not to know.
    fn losses_between(&self, from: u64, until: u64) -> impl Iterator<Item = &Loss> {
        self.losses.iter().filter(move |loss| loss.from <= until && loss.until + self.lease >= from)
    }

    /// Whether there was one.
    pub(in crate::history) fn lost_group_between(&self, from: u64, until: u64) -> bool {
        self.loss_between(from, until).is_some()
    }

    /// Since when it was; the latest one.
    pub(in crate::history) fn loss_between(&self, from: u64, until: u64) -> Option<u64> {
        self.losses_between(from, until).map(|loss| loss.from).max()
    }

    /// Whether the group was seen to be done with an entry so long before it was lost, at `lost`, that everybody knew.
    pub(in crate::history) fn was_long_done(&self, id: EntryId, lost: u64) -> bool {
        let loss = self.losses.iter().find(|loss| loss.from == lost);
        loss.and_then(|loss| loss.known).is_some_and(|known| id <= known)
    }

    /// Up to which id every process knew the group to be done at that time: what was seen a while before; and where a
    /// process was silent meanwhile, a while before that.
    pub(super) fn known_before(&self, lost: u64) -> Option<EntryId> {
        let mut silences: Vec<Silence> =
            self.processes.values().flat_map(|process| &process.silences).copied().collect();
        silences.extend(&self.silences);
        silences.sort_by_key(|silence| std::cmp::Reverse(silence.until));
        let mut at = lost.saturating_sub(self.stale);
        for silence in silences {
            if silence.touches(at, lost) {
                at = at.min(silence.from.saturating_sub(self.stale));
            }
        }
        // The last one before the time counts: the group may have been made anew further back meanwhile.
        let seen = self.done_up_to.partition_point(|(seen, _)| *seen <= at);
        seen.checked_sub(1).map(|last| self.done_up_to[last].1)
    }

    /// Whether an entry that was finished at `at` may have come again since: nothing says that it was acknowledged, or that
    /// its group was known to be done with it when it was lost.
    pub(in crate::history) fn may_come_again(&self, id: EntryId, process: u32, at: u64) -> bool {
        let until = at + self.settle;
        let crashed = self.ended(process).is_some_and(|(died, how)| how.is_crash() && (at..=until).contains(&died));
        let lost =
            self.losses.iter().any(|loss| at <= loss.until + self.lease && loss.known.is_none_or(|known| id > known));
        crashed || lost || self.silences(process).any(|silence| silence.touches(at, until))
    }

    /// Whether an entry may be gone although something was seen of it at `since`: its publisher never heard that it was there,
    /// and what was seen of it belongs to a server that a failover replaced.
    pub(in crate::history) fn is_copy_taken_back(&self, entry: &Entry, since: u64) -> bool {
        entry.published.is_none() && self.lost_group_between(since, u64::MAX)
    }

    /// Whether the group was lost more than once between these times: who made it anew may have remembered it from before.
    pub(in crate::history) fn lost_twice_between(&self, from: u64, until: u64) -> bool {
        self.losses_between(from, until).nth(1).is_some()
    }

    /// Whether what a server was told shortly after `at` went with a loss, and the group was lost once more before anybody
    /// can have learned that: who made it anew went by what had been there.
    pub(in crate::history) fn was_forgotten_unnoticed(&self, at: u64) -> bool {
        let again = |until| self.losses.iter().any(|again| (until + 1..=until + self.stale).contains(&again.from));
        self.losses.iter().any(|loss| loss.from <= at + self.settle && at <= loss.until && again(loss.until))
    }

    /// Whether a process may have counted a start before a loss of the group between these times, and made it only now: the
    /// server has forgotten the count, or counts anew.
    pub(in crate::history) fn held_through_a_loss(&self, process: u32, from: u64, until: u64) -> bool {
        let started = self.processes.get(&process).and_then(|process| process.started);
        started.is_some_and(|started| self.losses_between(from, until).any(|loss| started <= loss.until))
    }

    /// Whether an entry was trimmed about when the group was lost: who trims looks at the groups and then cuts, and one that is
    /// made anew further back in between comes too late.
    pub(in crate::history) fn was_cut_in_a_loss(&self, id: EntryId) -> bool {
        let cut = self.trimmed_below.iter().find(|(_, first)| id < *first);
        cut.is_some_and(|(at, _)| self.losses.iter().any(|loss| (loss.from..=loss.until + CUT_WITHIN).contains(at)))
    }

    /// Whether a process was silent at some time between these.
    pub(in crate::history) fn was_silent_between(&self, process: u32, from: u64, until: u64) -> bool {
        self.silences(process).any(|silence| silence.touches(from, until))
    }

    /// How many owners may have died, or seemed to have, in this time: from just before, since a server gives what there is
    /// also to one of which it does not know yet that it is dead.
    pub(in crate::history) fn deaths(&self, from: u64, until: u64) -> u64 {
        // Who was silent when it stopped may not have been able to give back what it had.
        let silent_at = |process: &Process, at| process.silences.iter().any(|silence| silence.touches(at, at));
        let crashed = |process: &&Process| {
            process.ended.is_some_and(|(at, how)| {
                (from.saturating_sub(SERVED_WITHIN)..=until).contains(&at)
                    && (how.is_crash()
                        || silent_at(process, at)
                        || process.stopping.is_some_and(|at| silent_at(process, at)))
            })
        };
        let silences = self.processes.values().flat_map(|process| &process.silences).chain(&self.silences);
        let counts = |silence: &&Silence| silence.cause == Cause::Server || silence.length() >= self.silence;
        let silent = silences.filter(counts).filter(|silence| silence.touches(from, until)).count();
        (self.processes.values().filter(crashed).count() + silent) as u64
    }

    /// Whether something may have kept what a process finished at `at` from being acknowledged.
    pub(in crate::history) fn may_be_unacknowledged(&self, process: u32, at: u64) -> bool {
        let until = at + self.settle;
        let crashed = self.ended(process).is_some_and(|(died, how)| how.is_crash() && (at..=until).contains(&died));
        crashed || self.silences(process).any(|silence| silence.touches(at, until)) || self.is_unaware(process, at)
    }

    /// What a process saw up to this time it had the time to tell of before it ended.
    pub(in crate::history) fn had_time_until(&self, process: u32) -> u64 {
        let Some((ended, _)) = self.ended(process) else { return u64::MAX };
        let mut until = ended.saturating_sub(self.told_within);
        let mut silences: Vec<_> = self.silences(process).collect();
        silences.sort_by_key(|silence| std::cmp::Reverse(silence.until));
        for silence in silences {
            if silence.touches(until, ended) {
                until = until.min(silence.from.saturating_sub(self.told_within));
            }
        }
        until
    }

    /// Whether somebody saw something that a failover took back: it was confirmed by a server that was being replaced, or
    /// had not been passed on.
    pub(in crate::history) fn was_taken_back(&self, at: u64) -> bool {
        self.losses.iter().any(|loss| loss.from.saturating_sub(1_000_000) <= at && at <= loss.until)
    }
}
