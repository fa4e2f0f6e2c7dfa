//! The way of most entries through a durable consumer: one at a time, in place.
//!
//! What must stay true: what becomes of an entry here is what [`start`](Worker::start) would make of it.

use std::time::Instant;

use smallvec::smallvec;
use stream_core::{DeadReason, Outcome};
use tokio::sync::OwnedSemaphorePermit;

use super::held::Ready;
use super::job::Members;
use super::worker::Worker;
use crate::in_place::Tried;
use crate::observe::{Event, count};
use crate::work::Work;

impl<W: Work> Worker<W> {
    /// The next entry that is still ours, and since when that is certain.
    pub(crate) fn next_ours(&mut self, now: Instant) -> Option<(Ready, Instant)> {
        loop {
            let ready = self.queue.pop_front()?;
            if let Some(since) = self.still_ours(&ready, now) {
                return Some((ready, since));
            }
        }
    }

    /// Starts a handler at the time on the `clock`, and sets that on. Returns how many entries it finished at its first poll.
    pub(crate) fn start_single(
        &mut self,
        (ready, since): (Ready, Instant),
        permit: OwnedSemaphorePermit,
        clock: &mut Instant,
    ) -> usize {
        let Ready { slot, delivery, since: _ } = ready;
        count(&self.stream.counters.started, 1);
        self.stream.tell(&Event::Started { id: delivery.id(), attempt: delivery.attempt() });
        match self.in_place.start(&self.work, &delivery, &mut self.inline, clock) {
            Tried::Done(outcome) => {
                self.spare.get_or_insert(permit);
                match outcome {
                    Outcome::Done => self.done(slot, &delivery),
                    outcome => self.settle(slot, delivery, outcome),
                }
                1
            }
            Tried::Undecodable(error) => {
                self.spare.get_or_insert(permit);
                self.bury_delivery(slot, delivery, DeadReason::Undecodable(error));
                1
            }
            Tried::Runs(future, span) => {
                let members = Members { slots: smallvec![slot], deliveries: smallvec![delivery], since };
                self.register_tokens(&members);
                self.jobs.spawn(members, future, self.work.limit(self.stream.config.timeout), span, smallvec![permit]);
                0
            }
        }
    }
}
