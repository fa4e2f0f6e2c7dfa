//! [`Flights`]: the commands of one stream that are under way, and what each will have answered.
//!
//! What must stay true: a command that is polled for the first time wakes nobody. The set underneath wakes its own task
//! whenever it has polled all that it holds, and on a runtime of several threads a task that wakes itself is offered to the
//! other threads: each acknowledgement woke one of them, which took the loop away to its own processor, and the entries of
//! the next read came after it. No wake is lost for that: one that comes while the set is polled has it polled again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::task::AtomicWaker;

use super::flight::{Flight, Landed};

/// So often the set is polled in a row before its task is woken after all: others want their turn.
const ROUNDS: usize = 3;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

pub(crate) struct Flights {
    set: FuturesUnordered<Flight>,
    bell: Arc<Bell>,
    /// The bell as the set sees it.
    waker: Waker,
}

/// Wakes the loop, except while the loop polls the set.
struct Bell {
    state: AtomicU8,
    worker: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.compare_exchange(POLLED, WOKEN, Ordering::AcqRel, Ordering::Acquire) == Err(IDLE) {
            self.worker.wake();
        }
    }
}

impl Flights {
    pub(crate) fn new() -> Self {
        let bell = Arc::new(Bell { state: AtomicU8::new(IDLE), worker: AtomicWaker::new() });
        Self { set: FuturesUnordered::new(), waker: Waker::from(Arc::clone(&bell)), bell }
    }

    pub(crate) fn push(&mut self, flight: Flight) {
        self.set.push(flight);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Waits for no answer any more.
    pub(crate) fn clear(&mut self) {
        self.set.clear();
    }

    /// The next answer; without commands under way there is none to come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Landed> {
        if self.set.is_empty() {
            return Poll::Pending;
        }
        self.bell.worker.register(cx.waker());
        for _ in 0..ROUNDS {
            self.bell.state.store(POLLED, Ordering::Release);
            let landed = self.set.poll_next_unpin(&mut Context::from_waker(&self.waker));
            let woken = self.bell.state.swap(IDLE, Ordering::AcqRel) == WOKEN;
            match landed {
                Poll::Ready(Some(landed)) => return Poll::Ready(landed),
                Poll::Pending if woken => {}
                _ => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll(flights: &mut Flights, count: &Arc<Count>) -> bool {
        let waker = Waker::from(Arc::clone(count));
        flights.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn wakes(count: &Count) -> usize {
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn a_command_that_is_sent_wakes_nobody() {
        let (mut flights, count) = (Flights::new(), Arc::default());
        for _ in 0..3 {
            flights.push(Box::pin(pending()));
            assert!(!poll(&mut flights, &count));
        }
        assert_eq!(wakes(&count), 0);
    }

    #[test]
    fn an_answer_wakes_the_loop_also_where_it_came_while_it_was_polled() {
        let (mut flights, count) = (Flights::new(), Arc::default());
        // Woken from without, between polls.
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        flights.push(Box::pin(async {
            let _ = receive.await;
            Landed::TakenBack
        }));
        assert!(!poll(&mut flights, &count));
        send.send(()).unwrap();
        assert_eq!(wakes(&count), 1);
        assert!(poll(&mut flights, &count));
        // Woken within the poll: it is polled again, and nobody has to be woken.
        let mut begun = false;
        flights.push(Box::pin(poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut begun, true) { Poll::Ready(Landed::TakenBack) } else { Poll::Pending }
        })));
        assert!(poll(&mut flights, &count));
        assert_eq!(wakes(&count), 1);
    }

    #[test]
    fn a_command_that_always_wakes_itself_gives_others_their_turn() {
        let (mut flights, count) = (Flights::new(), Arc::default());
        flights.push(Box::pin(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        assert!(!poll(&mut flights, &count));
        assert_eq!(wakes(&count), 1);
    }
}
