//! Waiting for answers of the model: by waker, and by the clock where an answer is due or a read's time is over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use stream_redis::{Error, ErrorKind};
use tokio::time::{Instant, Sleep, sleep_until};

use super::link::{Answer, LinkId, Look, Ticket};
use super::state::Shared;

/// A timer that is set as one goes.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Whether `at` has come; wakes the task then.
    fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// Polls for the answer to `ticket`, at the latest until `timeout`.
pub(super) fn poll_answer(
    shared: &Shared,
    (link, ticket): (LinkId, Ticket),
    timeout: Option<Instant>,
    alarm: &mut Alarm,
    cx: &mut Context<'_>,
) -> Poll<Result<Answer, Error>> {
    loop {
        let until = match shared.with(|state| state.look(link, ticket, cx.waker())) {
            Look::Answer(answer) => return Poll::Ready(Ok(answer)),
            Look::Closed => return Poll::Ready(Err(closed())),
            Look::Wait(until) => until,
        };
        if timeout.is_some_and(|timeout| timeout <= Instant::now()) {
            return Poll::Ready(Err(Error::new(ErrorKind::Timeout, "no answer from the in-memory server in time")));
        }
        let Some(at) = until.into_iter().chain(timeout).min() else { return Poll::Pending };
        if !alarm.poll(cx, at) {
            return Poll::Pending;
        }
    }
}

/// The connection is gone.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Io, "the in-memory server closed the connection")
}
