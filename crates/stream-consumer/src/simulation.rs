//! Simulated processes: several in one runtime, each of which can be frozen or killed as a whole.
//!
//! A task that the library spawns belongs to the process of the task that spawned it, and is polled only while that runs. So
//! a frozen process does nothing at all, whatever of its timers and replies come in meanwhile, and a dead one is gone between
//! two awaits. What must stay true: outside of [`within`] nothing here has an effect, and without the feature `simulation`
//! none of it is compiled.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Whether a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Its tasks are polled.
    Open,
    /// They are not, for now.
    Closed,
    /// They never are again.
    Dead,
}

/// A simulated process.
pub trait Process: Send + Sync {
    /// Whether its tasks may be polled; where they may not for now, `waker` is woken when they may again.
    fn passage(&self, waker: &Waker) -> Passage;

    /// Its clock, in milliseconds since 1970.
    fn wall_ms(&self) -> u64;
}

thread_local! {
    /// The process whose task is polled now.
    static CURRENT: RefCell<Option<Arc<dyn Process>>> = const { RefCell::new(None) };
}

/// Runs `future`, and every task that comes of it, as a part of `process`.
pub fn within<F: Future>(process: Arc<dyn Process>, future: F) -> impl Future<Output = F::Output> {
    as_part_of(Some(process), future)
}

/// Runs `future` as a part of the process that spawns it.
pub(crate) fn gated<F: Future>(future: F) -> impl Future<Output = F::Output> {
    as_part_of(current(), future)
}

/// The clock of the process whose task is polled now; `None` outside of one.
pub(crate) fn wall_ms() -> Option<u64> {
    current().map(|process| process.wall_ms())
}

fn current() -> Option<Arc<dyn Process>> {
    CURRENT.with_borrow(Clone::clone)
}

fn as_part_of<F: Future>(process: Option<Arc<dyn Process>>, future: F) -> impl Future<Output = F::Output> {
    let mut future = Some(Box::pin(future));
    poll_fn(move |cx| match &process {
        None => poll(&mut future, cx),
        Some(process) => match process.passage(cx.waker()) {
            Passage::Open => {
                let _entered = Entered::enter(process);
                poll(&mut future, cx)
            }
            Passage::Closed => Poll::Pending,
            Passage::Dead => {
                future = None;
                Poll::Pending
            }
        },
    })
}

fn poll<F: Future>(future: &mut Option<Pin<Box<F>>>, cx: &mut Context<'_>) -> Poll<F::Output> {
    future.as_mut().map_or(Poll::Pending, |future| future.as_mut().poll(cx))
}

/// Marks a process as the current one until it is dropped, also by a panic.
struct Entered(Option<Arc<dyn Process>>);

impl Entered {
    fn enter(process: &Arc<dyn Process>) -> Self {
        Self(CURRENT.replace(Some(Arc::clone(process))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use stream_testkit::MemoryServer;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{Consumer, Shutdown};

    /// A process that can be frozen and killed.
    struct Machine {
        passage: Mutex<(Passage, Vec<Waker>)>,
    }

    impl Machine {
        fn new() -> Arc<Self> {
            Arc::new(Self { passage: Mutex::new((Passage::Open, Vec::new())) })
        }

        fn set(&self, passage: Passage) {
            let mut state = self.passage.lock().unwrap();
            state.0 = passage;
            state.1.drain(..).for_each(Waker::wake);
        }
    }

    impl Process for Machine {
        fn passage(&self, waker: &Waker) -> Passage {
            let mut state = self.passage.lock().unwrap();
            if state.0 == Passage::Closed {
                state.1.push(waker.clone());
            }
            state.0
        }

        fn wall_ms(&self) -> u64 {
            1_234
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_process_does_nothing_and_goes_on_where_it_was() {
        let server = MemoryServer::new();
        for n in 0..3 {
            server.add("s", [("n", n.to_string())]);
        }
        let machine = Machine::new();
        let handled = Arc::new(AtomicU64::new(0));
        let shutdown = Shutdown::new();
        let (count, stop) = (Arc::clone(&handled), shutdown.clone());
        let consumer = Consumer::durable(&server.client()).stream("s").group("g").consumer("c").build().unwrap();
        let run = tokio::spawn(within(machine.clone(), async move {
            let handler = move || {
                let count = Arc::clone(&count);
                async move {
                    sleep(Duration::from_secs(10)).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            consumer.run_with(&stop, handler).await
        }));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(server.pending("s", "g").len(), 3);
        machine.set(Passage::Closed);
        let before = server.commands();
        sleep(Duration::from_mins(10)).await;
        assert_eq!((server.commands(), handled.load(Ordering::Relaxed)), (before, 0));
        machine.set(Passage::Open);
        let thawed = Instant::now();
        while !server.pending("s", "g").is_empty() {
            sleep(Duration::from_millis(100)).await;
        }
        assert!(thawed.elapsed() < Duration::from_secs(2), "{:?}", thawed.elapsed());
        assert_eq!(handled.load(Ordering::Relaxed), 3);
        shutdown.stop();
        run.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_process_leaves_no_task_and_no_connection() {
        let server = MemoryServer::new();
        server.add("s", [("n", "1")]);
        let machine = Machine::new();
        let consumer = Consumer::durable(&server.client()).stream("s").group("g").consumer("c").build().unwrap();
        let run = tokio::spawn(within(machine.clone(), async move {
            consumer.run_with(&Shutdown::new(), std::future::pending::<()>).await
        }));
        sleep(Duration::from_secs(5)).await;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert!(tasks > 2 && server.open_connections() == 2, "{tasks}");
        machine.set(Passage::Dead);
        run.abort();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(server.open_connections(), 0);
        let before = server.commands();
        sleep(Duration::from_mins(10)).await;
        assert_eq!((server.commands(), server.pending("s", "g").len()), (before, 1));
    }
}
