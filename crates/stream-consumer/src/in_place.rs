//! [`InPlace`]: the way of most entries: one at a time, to a handler that finishes at its first poll, where it is started.
//!
//! What must stay true: what comes of a delivery here is what a task of its own would make of it. It is only done without
//! the lists that a batch needs, and the futures of all handlers take turns in one piece of memory.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use stream_core::{Inline, Outcome};
use tracing::Span;

use crate::delivery::Delivery;
use crate::guard::guarded;
use crate::job::{FutureBox, panicked, poll_once, span_of};
use crate::pace::now;
use crate::work::Work;

/// What came of a delivery that was given to its handler.
pub(crate) enum Tried<W: Work> {
    /// It is finished.
    Done(Outcome),
    /// It could not be decoded, and why.
    Undecodable(String),
    /// It goes on, in the span.
    Runs(FutureBox<W>, Span),
}

/// Polls handlers where they are started, one after the other.
pub(crate) struct InPlace<W: Work> {
    /// Memory for the future of the next handler.
    memory: Option<FutureBox<W>>,
}

impl<W: Work> InPlace<W> {
    pub(crate) fn new() -> Self {
        Self { memory: None }
    }

    /// Starts a handler at the time on the `clock`, and sets that on.
    pub(crate) fn start(
        &mut self,
        work: &W,
        delivery: &Delivery,
        inline: &mut Inline,
        clock: &mut Instant,
    ) -> Tried<W> {
        let span = span_of(delivery);
        let future = match guarded(|| work.begin_one(delivery)) {
            Ok(Ok(future)) => future,
            Ok(Err(error)) => {
                *clock = now();
                return Tried::Undecodable(error);
            }
            Err(panic) => {
                *clock = now();
                return Tried::Done(panicked(&panic));
            }
        };
        let mut memory = self.memory.take().unwrap_or_else(|| Box::pin(None));
        memory.set(future);
        let Some(future) = memory.as_mut().as_pin_mut() else {
            return Tried::Done(Outcome::failed("the handler returned nothing to wait for"));
        };
        let poll = poll_once(future, &mut Context::from_waker(Waker::noop()), &span);
        let begin = std::mem::replace(clock, now());
        inline.polled(clock.saturating_duration_since(begin));
        let Poll::Ready(outcomes) = poll else { return Tried::Runs(memory, span) };
        match guarded(|| memory.set(None)) {
            Ok(()) => {
                self.memory = Some(memory);
                Tried::Done(outcomes.single())
            }
            Err(panic) => Tried::Done(panicked(&panic)),
        }
    }
}
