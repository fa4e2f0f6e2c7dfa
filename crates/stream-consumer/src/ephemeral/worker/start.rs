//! Starting handlers: in place while they are known to be quick, else as tasks.

use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use stream_core::{DeadReason, Outcome};
use tokio::sync::OwnedSemaphorePermit;

use super::{Held, Worker};
use crate::durable::RetryOrder;
use crate::guard::guarded;
use crate::in_place::Tried;
use crate::job::{Members, panicked, poll_in_place, span_of};
use crate::observe::{Event, count};
use crate::pace::now;
use crate::work::{Begun, Outcomes, Work};

/// So many handlers are started before the loop looks at its events again.
const BURST: usize = 1_024;
impl<W: Work> Worker<W> {
    /// Starts what is ready, as far as there are free places and the order allows.
    pub(super) fn start_ready(&mut self) {
        // Without lanes, to wait in place means that the whole stream waits.
        let in_place = self.stream.config.retry_order == RetryOrder::InPlace && self.stream.config.lane_of.is_none();
        let most = self.work.batch();
        // One look at the clock for each handler: the end of one is the beginning of the next.
        let mut clock = now();
        let mut left = BURST;
        while !self.queue.is_empty() && left > 0 && !self.stopped_by_handler {
            if in_place && (self.jobs.running() > 0 || !self.waiting.is_empty()) {
                break;
            }
            let Some(permit) = self.spare.take().or_else(|| Arc::clone(&self.permits).try_acquire_owned().ok()) else {
                self.starved = true;
                break;
            };
            left -= 1;
            if most == 1
                && self.inline.allowed()
                && let Some(held) = self.queue.pop_front()
            {
                self.start_single(held, permit, &mut clock);
                continue;
            }
            let number = self.queue.len().min(most);
            let (mut slots, mut deliveries) = (SmallVec::with_capacity(number), SmallVec::with_capacity(number));
            for Held { number, delivery } in self.queue.drain(..number) {
                slots.push(number);
                deliveries.push(delivery);
            }
            self.start(Members { slots, deliveries, since: clock }, permit);
            clock = now();
        }
        // Not kept: another stream may want it.
        self.spare = None;
        self.again = left == 0;
    }

    /// Starts a handler at the time on the `clock`, and sets that on.
    fn start_single(&mut self, Held { number, delivery }: Held, permit: OwnedSemaphorePermit, clock: &mut Instant) {
        count(&self.stream.counters.started, 1);
        self.stream.tell(&Event::Started { id: delivery.id(), attempt: delivery.attempt() });
        let since = *clock;
        match self.in_place.start(&self.work, &delivery, &mut self.inline, clock) {
            Tried::Done(outcome) => {
                self.spare.get_or_insert(permit);
                match outcome {
                    Outcome::Done => self.done(number, &delivery),
                    outcome => self.settle(number, delivery, &outcome),
                }
            }
            Tried::Undecodable(error) => {
                self.spare.get_or_insert(permit);
                self.give_up(number, &delivery, &DeadReason::Undecodable(error));
            }
            Tried::Runs(future, span) => {
                let members = Members { slots: smallvec![number], deliveries: smallvec![delivery], since };
                self.jobs.spawn(members, future, self.work.limit(self.stream.config.timeout), span, smallvec![permit]);
            }
        }
    }

    fn start(&mut self, members: Members<u64>, permit: OwnedSemaphorePermit) {
        count(&self.stream.counters.started, members.slots.len() as u64);
        for delivery in &members.deliveries {
            self.stream.tell(&Event::Started { id: delivery.id(), attempt: delivery.attempt() });
        }
        let span = span_of(&members.deliveries[0]);
        let begin = now();
        let Begun { future, undecodable } = match guarded(|| self.work.begin(&members.deliveries)) {
            Ok(begun) => begun,
            Err(panic) => return self.settle_all(members, Outcomes::All(panicked(&panic))),
        };
        let (left, undecodable) = members.without(undecodable);
        for (number, delivery, error) in undecodable {
            self.give_up(number, &delivery, &DeadReason::Undecodable(error));
        }
        let Some(future) = future else { return };
        let mut future = Box::pin(Some(future));
        if self.inline.allowed() {
            let poll = poll_in_place(future, &span);
            self.inline.polled(now().saturating_duration_since(begin));
            match poll {
                Ok(outcomes) => {
                    self.spare.get_or_insert(permit);
                    return self.settle_all(left, outcomes);
                }
                Err(goes_on) => future = goes_on,
            }
        }
        self.jobs.spawn(left, future, self.work.limit(self.stream.config.timeout), span, smallvec![permit]);
    }
}
