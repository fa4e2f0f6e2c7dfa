//! The way of most entries: one at a time, to a handler that finishes at its first poll.
//!
//! What must stay true: what becomes of an entry here is what [`start`](Worker::start) would make of it. It is only done
//! without the lists that a batch needs, and the futures of all handlers take turns in one piece of memory.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use smallvec::smallvec;
use stream_core::DeadReason;
use tokio::sync::OwnedSemaphorePermit;

use super::held::Ready;
use super::job::{Members, panicked, poll_once, span_of};
use super::stream::now;
use super::worker::Worker;
use crate::guard::guarded;
use crate::observe::{Event, count};
use crate::work::{Begun, Outcomes, Work};

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
        let span = span_of(&delivery);
        let begun = guarded(|| self.work.begin(std::slice::from_ref(&delivery)));
        let Begun { future, mut undecodable } = match begun {
            Ok(begun) => begun,
            Err(panic) => {
                *clock = now();
                self.settle(slot, delivery, panicked(&panic));
                return 1;
            }
        };
        if let Some((_, error)) = undecodable.pop() {
            *clock = now();
            self.bury_delivery(slot, delivery, DeadReason::Undecodable(error));
            return 1;
        }
        let mut boxed = self.future_box.take().unwrap_or_else(|| Box::pin(None));
        boxed.set(future);
        let Some(future) = boxed.as_mut().as_pin_mut() else { return 1 };
        let poll = poll_once(future, &mut Context::from_waker(Waker::noop()), &span);
        let begin = std::mem::replace(clock, now());
        self.inline.polled(clock.saturating_duration_since(begin));
        let Poll::Ready(outcomes) = poll else {
            let members = Members { slots: smallvec![slot], deliveries: smallvec![delivery], since };
            self.register_tokens(&members);
            self.jobs.spawn(members, boxed, self.stream.config.timeout, span, smallvec![permit]);
            return 0;
        };
        let outcome = match guarded(|| boxed.set(None)) {
            Ok(()) => {
                self.future_box = Some(boxed);
                match outcomes {
                    Outcomes::All(outcome) => outcome,
                    Outcomes::Each(outcomes) => first(outcomes),
                }
            }
            Err(panic) => panicked(&panic),
        };
        self.spare.get_or_insert(permit);
        self.settle(slot, delivery, outcome);
        1
    }
}

fn first(outcomes: Vec<stream_core::Outcome>) -> stream_core::Outcome {
    let too_few = || stream_core::Outcome::failed("the batch handler returned fewer outcomes than items");
    outcomes.into_iter().next().unwrap_or_else(too_few)
}
