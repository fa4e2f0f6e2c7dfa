//! [`Health`]: how a consumer is right now, for probes; [`Pulse`]: where the loop of a stream leaves that.
//!
//! What must stay true: it costs a few relaxed stores for each turn of a loop and each reply to a read, nothing for an
//! entry, and nothing on the server. Whoever asks sees values of nearly the same moment, which is enough for a probe.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stream_core::{EntryId, StreamKey};

use crate::observe::Counters;
use crate::pace::now;

/// What a consumer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum RunState {
    /// Its reads are answered. With several streams: those of all.
    Running,
    /// It has not been connected yet.
    #[default]
    Starting,
    /// It cannot read for now and tries again: the server is away or busy, or one of its streams cannot be consumed.
    Reconnecting,
    /// It was asked to stop, and lets running handlers finish.
    Stopping,
    /// It has ended, for whatever reason.
    Ended,
}

/// How a consumer is right now; from [`HealthHandle::get`]. By default that of one that does not run yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Health {
    /// What it is doing; with several streams, the worst of them.
    pub state: RunState,
    /// How long ago the server answered a read, also an empty one; with several streams, that of the stream for which it is
    /// the longest. `None` until each has been answered once. An idle consumer is answered once in a BLOCK period; one that
    /// holds as much as it may does not read at all.
    pub since_read: Option<Duration>,
    /// How long ago a handler returned well, on any stream. `None` until one has. On a quiet stream this grows.
    pub since_success: Option<Duration>,
    /// Connections that had to be made anew so far.
    pub reconnects: u64,
    /// Entries held now: running, queued, waiting for a retry or for the confirmation of their acknowledgement.
    pub held: u64,
}

impl Health {
    /// Whether the consumer still runs: what a liveness probe asks. A server that is away does not make it false, since
    /// starting this process anew would not help.
    pub fn is_live(&self) -> bool {
        self.state != RunState::Ended
    }

    /// Whether entries that come now are taken up: what a readiness probe asks. Reads are answered, and the last answer is
    /// not older than `within` unless the consumer has entries at hand. Give several BLOCK periods.
    pub fn is_ready(&self, within: Duration) -> bool {
        self.state == RunState::Running && (self.held > 0 || self.since_read.is_some_and(|since| since <= within))
    }
}

/// Looks at a consumer while it runs. Cheap to clone, and cheap to ask: nothing is sent to the server.
#[derive(Debug, Clone)]
pub struct HealthHandle {
    pulses: Arc<[Arc<Pulse>]>,
    counters: Arc<Counters>,
}

impl HealthHandle {
    pub(crate) fn new(pulses: &Pulses, counters: &Arc<Counters>) -> Self {
        Self { pulses: Arc::clone(&pulses.0), counters: Arc::clone(counters) }
    }

    /// How it is now.
    pub fn get(&self) -> Health {
        let now = now();
        let reads = self.pulses.iter().map(|pulse| pulse.since(&pulse.read_at, now));
        Health {
            state: self.pulses.iter().map(|pulse| pulse.state()).max().unwrap_or(RunState::Starting),
            // `None` is less than any time, and one stream without an answer is the worst.
            since_read: reads.clone().all(|since| since.is_some()).then(|| reads.flatten().max()).flatten(),
            since_success: self.pulses.iter().filter_map(|pulse| pulse.since(&pulse.success_at, now)).min(),
            reconnects: self.counters.reconnects.load(Ordering::Relaxed),
            held: self.pulses.iter().map(|pulse| pulse.held.load(Ordering::Relaxed)).sum(),
        }
    }
}

/// Looks at how far an ephemeral consumer is, while it runs and after it has ended, also with an error. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Positions {
    pulses: Arc<[Arc<Pulse>]>,
    streams: Vec<StreamKey>,
}

impl Positions {
    pub(crate) fn new(pulses: &Pulses, streams: &[StreamKey]) -> Self {
        Self { pulses: Arc::clone(&pulses.0), streams: streams.to_vec() }
    }

    /// For each stream whose start is resolved, the id up to which every entry was handled or given up. What it resumes at
    /// is known from the beginning.
    pub fn get(&self) -> Vec<(StreamKey, EntryId)> {
        let at = self.streams.iter().zip(self.pulses.iter());
        at.filter_map(|(key, pulse)| Some((key.clone(), pulse.position()?))).collect()
    }
}

/// The pulses of a consumer's streams, in their order.
#[derive(Debug)]
pub(crate) struct Pulses(Arc<[Arc<Pulse>]>);

impl Pulses {
    pub(crate) fn new(streams: usize) -> Self {
        let began = now();
        Self((0..streams).map(|_| Arc::new(Pulse::new(began))).collect())
    }

    pub(crate) fn of(&self, stream: usize) -> Arc<Pulse> {
        Arc::clone(&self.0[stream])
    }

    /// Says that the consumer has ended once the guard is dropped: also when its future is.
    pub(crate) fn end_with(&self) -> EndGuard {
        EndGuard(Arc::clone(&self.0))
    }
}

pub(crate) struct EndGuard(Arc<[Arc<Pulse>]>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        for pulse in self.0.iter() {
            pulse.set(RunState::Ended);
            pulse.held.store(0, Ordering::Relaxed);
        }
    }
}

/// How the loop of one stream is.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    state: AtomicU8,
    /// Milliseconds after `began`, and one; 0 is never.
    read_at: AtomicU64,
    success_at: AtomicU64,
    held: AtomicU64,
    /// How far an ephemeral consumer is.
    position: Mutex<Option<EntryId>>,
}

impl Pulse {
    fn new(began: Instant) -> Self {
        Self {
            began,
            state: AtomicU8::new(RunState::Starting as u8),
            read_at: AtomicU64::new(0),
            success_at: AtomicU64::new(0),
            held: AtomicU64::new(0),
            position: Mutex::new(None),
        }
    }

    /// A reply to a read is complete.
    pub(crate) fn read(&self, now: Instant) {
        self.set(RunState::Running);
        self.read_at.store(self.stamp(now), Ordering::Relaxed);
    }

    /// Connected; a read is about to follow.
    pub(crate) fn opened(&self) {
        self.set(RunState::Running);
    }

    /// It cannot read for now.
    pub(crate) fn troubled(&self) {
        self.set(RunState::Reconnecting);
    }

    pub(crate) fn stopping(&self) {
        self.set(RunState::Stopping);
    }

    /// A turn of the loop: how many entries are held, and whether a handler has returned well since the last one.
    pub(crate) fn turn(&self, now: Instant, held: usize, succeeded: bool) {
        self.held.store(held as u64, Ordering::Relaxed);
        if succeeded {
            self.success_at.store(self.stamp(now), Ordering::Relaxed);
        }
    }

    pub(crate) fn moved(&self, position: EntryId) {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
    }

    pub(crate) fn position(&self) -> Option<EntryId> {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: RunState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn state(&self) -> RunState {
        use RunState::{Ended, Reconnecting, Running, Starting, Stopping};
        let stored = self.state.load(Ordering::Relaxed);
        [Running, Starting, Reconnecting, Stopping].into_iter().find(|state| *state as u8 == stored).unwrap_or(Ended)
    }

    fn stamp(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64 + 1
    }

    fn since(&self, stamp: &AtomicU64, now: Instant) -> Option<Duration> {
        let at = stamp.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_duration_since(self.began + Duration::from_millis(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(pulses: &Pulses) -> Health {
        HealthHandle::new(pulses, &Arc::default()).get()
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_streams_the_worst_is_told() {
        let pulses = Pulses::new(2);
        assert_eq!((health(&pulses).state, health(&pulses).since_read), (RunState::Starting, None));
        let (a, b) = (pulses.of(0), pulses.of(1));
        a.read(now());
        assert_eq!((health(&pulses).state, health(&pulses).since_read), (RunState::Starting, None));
        tokio::time::advance(Duration::from_secs(2)).await;
        b.read(now());
        b.turn(now(), 3, true);
        tokio::time::advance(Duration::from_secs(1)).await;
        a.turn(now(), 4, false);
        let seen = health(&pulses);
        let secs = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(
            (seen.state, seen.since_read, seen.since_success, seen.held),
            (RunState::Running, secs(3), secs(1), 7)
        );
        b.troubled();
        assert_eq!(health(&pulses).state, RunState::Reconnecting);
        drop(pulses.end_with());
        assert_eq!((health(&pulses).state, health(&pulses).held), (RunState::Ended, 0));
    }

    #[test]
    fn probes_ask_for_what_helps() {
        let seconds = Duration::from_secs;
        let healthy = Health {
            state: RunState::Running,
            since_read: Some(seconds(4)),
            since_success: None,
            reconnects: 0,
            held: 0,
        };
        assert!(healthy.is_live() && healthy.is_ready(seconds(15)) && !healthy.is_ready(seconds(3)));
        // One that is full does not read, and is none the worse for it.
        assert!(Health { held: 1, ..healthy.clone() }.is_ready(seconds(3)));
        let away = Health { state: RunState::Reconnecting, ..healthy.clone() };
        assert!(away.is_live() && !away.is_ready(seconds(15)));
        let ended = Health { state: RunState::Ended, ..healthy };
        assert!(!ended.is_live() && !ended.is_ready(seconds(15)));
    }
}
