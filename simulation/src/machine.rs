//! [`Machine`]: a simulated process: consumer, publisher or maintenance. It runs, is frozen, or is dead.
//!
//! Whatever it does ends between two polls of its tasks: nothing of a frozen machine is polled, and what is left of a dead one
//! is dropped. Commands that it has sent by then have been carried out; their answers come when it thaws, or to nobody.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use stream_consumer::simulation::{Passage, Process};
use stream_testkit::history::Cause;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// Which of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    Commands,
    Reads,
    /// Renewals of leases: others of the commands may get through while one after the other of these does not.
    Renewals,
}

impl Line {
    pub(crate) const ALL: [Self; 3] = [Self::Commands, Self::Reads, Self::Renewals];
}

pub(crate) struct Machine {
    /// Each used once: who is started again is another machine.
    pub(crate) number: u32,
    /// Its name in the journal; of a consumer, the name that it consumes under.
    pub(crate) name: String,
    /// Which group it consumes in.
    pub(crate) group: Option<usize>,
    pub(crate) world: Arc<World>,
    dead: CancellationToken,
    inner: Mutex<Inner>,
}

struct Inner {
    passage: Passage,
    wakers: Vec<Waker>,
    frozen_at: u64,
    /// Since when, and since which departure, the commands of a line may not have got through, in the order of the lines.
    silent_since: [Vec<(u64, u64)>; 3],
    /// Whether it knows that its group is there.
    seen_group: bool,
}

impl Machine {
    pub(crate) fn new(world: &Arc<World>, number: u32, name: String, group: Option<usize>) -> Arc<Self> {
        let inner = Inner {
            passage: Passage::Open,
            wakers: Vec::new(),
            frozen_at: 0,
            silent_since: std::array::from_fn(|_| Vec::new()),
            seen_group: false,
        };
        Arc::new(Self {
            number,
            name,
            group,
            world: Arc::clone(world),
            dead: CancellationToken::new(),
            inner: Mutex::new(inner),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.inner().passage == Passage::Dead
    }

    /// Completes when it is dead.
    pub(crate) async fn died(&self) {
        self.dead.cancelled().await;
    }

    /// Ends it here and now.
    pub(crate) fn kill(&self) {
        let (wakers, frozen) = {
            let mut inner = self.inner();
            let before = std::mem::replace(&mut inner.passage, Passage::Dead);
            (std::mem::take(&mut inner.wakers), (before == Passage::Closed).then_some(inner.frozen_at))
        };
        if let Some(since) = frozen {
            self.world.silence(self, Cause::Frozen, since);
        }
        self.dead.cancel();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Stops it, as SIGSTOP does.
    pub(crate) fn freeze(&self) {
        let now = self.world.now();
        let mut inner = self.inner();
        if inner.passage == Passage::Open {
            (inner.passage, inner.frozen_at) = (Passage::Closed, now);
        }
    }

    /// Whether it was stopped since then, and goes on.
    pub(crate) fn froze_since(&self, at: u64) -> bool {
        let frozen_at = self.inner().frozen_at;
        frozen_at > 0 && frozen_at >= at
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        let (wakers, since) = {
            let mut inner = self.inner();
            if inner.passage != Passage::Closed {
                return;
            }
            inner.passage = Passage::Open;
            (std::mem::take(&mut inner.wakers), inner.frozen_at)
        };
        self.world.silence(self, Cause::Frozen, since);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Something keeps what it sends, or the answers, from getting through.
    pub(crate) fn fell_silent(&self, line: Line) {
        let since = (self.world.now(), self.world.state().departures);
        self.inner().silent_since[line as usize].push(since);
    }

    /// An answer came to what left as number `departure`; one to what left before the silence does not end it.
    pub(crate) fn heard(&self, line: Line, departure: u64) {
        let over = {
            let mut inner = self.inner();
            let silences = &mut inner.silent_since[line as usize];
            // They are in the order in which they began.
            silences.drain(..silences.partition_point(|(_, first)| *first <= departure)).next()
        };
        if let Some((since, _)) = over {
            self.world.silence(self, Cause::Network, since);
        }
    }

    /// What is not over yet at the end of its life, or of the run.
    pub(crate) fn close_silences(&self) {
        for line in Line::ALL {
            self.heard(line, u64::MAX);
        }
    }

    /// Notes that its group is there; whether that was known.
    pub(crate) fn saw_group(&self) -> bool {
        std::mem::replace(&mut self.inner().seen_group, true)
    }

    pub(crate) fn knows_group(&self) -> bool {
        self.inner().seen_group
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("number", &self.number).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Process for Machine {
    fn passage(&self, waker: &Waker) -> Passage {
        let mut inner = self.inner();
        if inner.passage == Passage::Closed && !inner.wakers.iter().any(|known| known.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        inner.passage
    }

    fn wall_ms(&self) -> u64 {
        self.world.wall_ms()
    }
}
