//! What waits in a worker: for its turn, behind others of its key, for a time; and how it goes on.

use std::time::Instant;

use stream_core::{Lease, Slot, Stage};

use super::config::RetryOrder;
use super::held::{Ready, Recount, Waiting, Wake};
use super::worker::Worker;
use crate::work::Work;

impl<W: Work> Worker<W> {
    /// Queues a delivery, behind others of its key if it has one.
    pub(crate) fn enqueue(&mut self, ready: Ready) {
        let config = &self.stream.config;
        let key = match (&config.lane_of, config.retry_order) {
            (Some(lane_of), _) => crate::lane::lane(lane_of, &ready.delivery),
            // Without lanes, to wait in place means that the whole stream is one lane.
            (None, RetryOrder::InPlace) => Some(0),
            (None, RetryOrder::Later) => None,
        };
        let Some(key) = key else { return self.queue.push_back(ready) };
        if self.lane_keys.insert(ready.slot, key).is_some() {
            // It is a retry that kept its lane.
            return self.queue.push_back(ready);
        }
        if let Some(ready) = self.lanes.push(key, ready) {
            self.queue.push_back(ready);
        }
    }

    pub(crate) fn wait(&mut self, at: Instant, wake: Wake) {
        self.sequence += 1;
        self.waiting.push(Waiting { at, sequence: self.sequence, wake });
    }

    pub(crate) fn wake(&mut self, now: Instant) {
        while self.waiting.peek().is_some_and(|waiting| waiting.at <= now) {
            match self.waiting.pop().map(|waiting| waiting.wake) {
                // Whoever owns it now runs it; that may be this process, under another slot.
                Some(Wake::Recount(Recount { slot, .. })) if self.is_lost(slot) => self.forget(slot),
                Some(Wake::Bury(burial)) if self.is_lost(burial.slot) => self.forget(burial.slot),
                Some(Wake::Recount(recount)) => {
                    self.stream.book().ledger.set_stage(recount.slot, Stage::Queued);
                    // A count that says that nothing runs beside it has to stay true, also where it could not be set at once.
                    let line = if recount.alone { &mut self.suspects } else { &mut self.recounts };
                    line.push_back(recount);
                }
                Some(Wake::Bury(burial)) => self.bury(*burial),
                None => {}
            }
        }
    }

    /// Lets go of what waits here and is somebody else's now, so that nothing stands behind it.
    pub(crate) fn let_go_of_lost(&mut self) {
        let mut lost = Vec::new();
        {
            let book = self.stream.book();
            let mut keep = |slot: Slot| {
                let keep = book.ledger.lease(slot) != Lease::Lost;
                if !keep {
                    lost.push(slot);
                }
                keep
            };
            self.waiting.retain(|waiting| keep(waiting.wake.slot()));
            self.recounts.retain(|recount| keep(recount.slot));
            self.suspects.retain(|recount| keep(recount.slot));
        }
        for slot in lost {
            self.forget(slot);
        }
    }

    pub(crate) fn is_lost(&self, slot: Slot) -> bool {
        self.stream.book().ledger.lease(slot) == Lease::Lost
    }
}
