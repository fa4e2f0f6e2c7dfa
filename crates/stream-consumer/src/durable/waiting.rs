//! What waits in a worker: for its turn, behind others of its key, for a time; and how it goes on.

use std::time::Instant;

use stream_core::{Lease, Slot, Stage};

use super::config::RetryOrder;
use super::held::{InLane, Ready, Recount, Waiting, Wake};
use super::worker::Worker;
use crate::work::Work;

impl<W: Work> Worker<W> {
    /// Queues a delivery, behind others of its key if it has one.
    pub(crate) fn enqueue(&mut self, ready: Ready) {
        let config = &self.stream.config;
        if config.lane_of.is_none() && config.retry_order == RetryOrder::Later {
            // As mostly: there are no lanes.
            return self.queue.push_back(ready);
        }
        if let Some(ready) = self.enter_lane(ready, None) {
            self.queue.push_back(ready);
        }
    }

    /// Lets a delivery into the lane of its key, if it has one; returned, it may start now, else it waits behind others. A
    /// `suspect` waits without its body.
    pub(crate) fn enter_lane(&mut self, ready: Ready, suspect: Option<Recount>) -> Option<Ready> {
        if self.lane_keys.contains_key(&ready.slot) {
            // It has kept its lane, or it has waited in it for its turn.
            return Some(ready);
        }
        let config = &self.stream.config;
        let key = match (&config.lane_of, config.retry_order) {
            (Some(lane_of), _) => crate::lane::lane(lane_of, &ready.delivery),
            // Without lanes, to wait in place means that the whole stream is one lane.
            (None, RetryOrder::InPlace) => Some(0),
            (None, RetryOrder::Later) => None,
        };
        let Some(key) = key else { return Some(ready) };
        self.lane_keys.insert(ready.slot, key);
        let item = match suspect {
            Some(suspect) if self.lanes.is_occupied(&key) => {
                self.release_body(ready.slot, &ready.delivery);
                InLane::Suspect(suspect)
            }
            _ => InLane::Ready(ready),
        };
        match self.lanes.push(key, item) {
            Some(InLane::Ready(ready)) => Some(ready),
            _ => None,
        }
    }

    /// The entry leaves its lane; the next of its key may start.
    pub(crate) fn leave_lane(&mut self, slot: Slot) {
        if self.lane_keys.is_empty() {
            return;
        }
        let Some(key) = self.lane_keys.remove(&slot) else { return };
        match self.lanes.finish(&key) {
            Some(InLane::Ready(next)) => self.queue.push_back(next),
            Some(InLane::Suspect(next)) => self.suspects.push_back(next),
            None => {}
        }
    }

    pub(crate) fn wait(&mut self, at: Instant, wake: Wake) {
        self.sequence += 1;
        self.waiting.push(Waiting { at, sequence: self.sequence, wake });
    }

    /// These could not be counted, and so nothing else can: all wait for the same time, in the order in which they stood. Where
    /// none is kept, these come last, so that nobody waits for ever behind one that can never be taken.
    pub(crate) fn pause_takes(&mut self, recounts: Vec<Recount>, at: Instant) {
        let at = self.takes_not_before.map_or(at, |before| before.max(at));
        self.takes_not_before = Some(at);
        if !self.is_ordered() {
            let others = self.recounts.drain(..).chain(self.suspects.drain(..)).collect::<Vec<_>>();
            self.take_again(others, at);
        }
        self.take_again(recounts, at);
    }

    pub(crate) fn take_again(&mut self, recounts: impl IntoIterator<Item = Recount>, at: Instant) {
        for recount in recounts {
            self.wait(at, Wake::Recount(recount));
        }
    }

    /// Puts an entry in the line to be counted.
    pub(crate) fn line_up(&mut self, recount: Recount) {
        let line = if recount.suspect { &mut self.suspects } else { &mut self.recounts };
        line.push_back(recount);
    }

    pub(crate) fn wake(&mut self, now: Instant) {
        self.takes_not_before.take_if(|at| *at <= now);
        while self.waiting.peek().is_some_and(|waiting| waiting.at <= now) {
            match self.waiting.pop().map(|waiting| waiting.wake) {
                // Whoever owns it now runs it; that may be this process, under another slot.
                Some(Wake::Recount(Recount { slot, .. })) if self.is_lost(slot) => self.forget(slot),
                Some(Wake::Bury(burial)) if self.is_lost(burial.slot) => self.forget(burial.slot),
                Some(Wake::Recount(recount)) => {
                    self.stream.book().ledger.set_stage(recount.slot, Stage::Queued);
                    self.line_up(recount);
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
