//! Suspects: entries that are started one at a time, and at their last attempt with nothing beside them, since their owner may
//! have died of them.
//!
//! What must stay true: while the count of an entry on the server says that it runs alone, it does. Whatever has run for a
//! whole lease has not killed its process the way the last one died, and keeps nothing from others any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stream_core::{Slot, Stage};

use super::flight::{PAUSE, Places, share, take_suspect};
use super::held::Recount;
use super::stream::now;
use super::worker::Worker;
use crate::work::Work;

/// A suspect that has all places for itself until it is settled: until then, the death of this process would be blamed on
/// it, and only what it does itself may be.
pub(crate) struct Alone {
    recount: Recount,
    /// When its handler returned, and what it returned was to be written.
    handled: Option<Instant>,
    /// When others are to be let in although it still runs. `None` while its count is being set for that, and afterwards.
    share_at: Option<Instant>,
    /// All that there are, and the lane of the suspects.
    places: Places,
}

impl Alone {
    pub(crate) fn new(recount: Recount, places: Places, lease: Duration) -> Self {
        Self { recount, handled: None, share_at: Some(now() + lease), places }
    }

    /// When there is something to do about it. Its acknowledgement may take a `lease`.
    pub(crate) fn due(&self, lease: Duration) -> Option<Instant> {
        self.handled.map_or(self.share_at, |since| Some(since + lease))
    }
}

impl<W: Work> Worker<W> {
    /// Starts the next suspect when no other runs; its last attempt with nothing beside it.
    pub(crate) fn start_suspect(&mut self) {
        if let Some(at) = self.takes_not_before {
            let line = std::mem::take(&mut self.suspects);
            return self.take_again(line, at);
        }
        if self.suspect_under_way {
            return;
        }
        let recount = loop {
            let Some(recount) = self.suspects.pop_front() else { return };
            if !self.is_lost(recount.slot) {
                break recount;
            }
            self.forget(recount.slot);
        };
        self.suspect_under_way = true;
        let (fleet, stream) = (self.fleet.clone(), Arc::clone(&self.stream));
        self.spare = None;
        self.send(Box::pin(take_suspect(stream, recount, fleet)));
    }

    /// Frees the places of a suspect that is settled. One whose acknowledgement cannot be written is not waited for, nor one
    /// whose handler does not end.
    pub(crate) fn let_others_in(&mut self, now: Instant) {
        let lease = self.stream.config.lease.lease();
        let Some(alone) = &mut self.alone else { return };
        let stage = self.stream.book().ledger.stage(alone.recount.slot);
        let given_up = |since: Instant| now.saturating_duration_since(since) >= lease;
        if matches!(stage, None | Some(Stage::Waiting)) || alone.handled.is_some_and(given_up) {
            self.alone = None;
        } else if alone.handled.is_none() && alone.share_at.take_if(|at| *at <= now).is_some() {
            let recount = alone.recount;
            self.send(Box::pin(share(Arc::clone(&self.stream), recount)));
        }
    }

    /// Whether the count of a suspect that runs alone could be set, so that others may run beside it.
    pub(crate) fn shared(&mut self, slot: Slot, done: bool) {
        let Some(alone) = self.alone.as_mut().filter(|alone| alone.recount.slot == slot) else { return };
        if done {
            // Its handler needs one of the places, and the lane is for the next suspect.
            let one = alone.places.first_mut().and_then(|all| all.split(1));
            alone.places = one.into_iter().collect();
        } else {
            alone.share_at = Some(now() + self.stream.config.lease.renew_every().max(PAUSE));
        }
    }

    /// Notes that the handler of the suspect that runs alone has ended. Returns whether it was that.
    pub(crate) fn is_over_alone(&mut self, slot: Slot) -> bool {
        let alone = self.alone.as_mut().filter(|alone| alone.recount.slot == slot);
        alone.map(|alone| alone.handled.get_or_insert_with(now)).is_some()
    }
}
