//! [`Pulse`]: wakes runtimes of several threads now and then, so that their clocks go on.
//!
//! One of a runtime's threads waits for the clock and the network on behalf of all. When a task wakes there and blocks,
//! none of the others takes its place before something wakes it: no lease would be renewed, and no stop would come to its
//! end. What must stay true: one thread for the whole process, however many consumers it has, and none where it has none.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};

static HEART: Mutex<Heart> = Mutex::new(Heart { beats: Vec::new(), next: 0, thread: false });
static CHANGED: Condvar = Condvar::new();

struct Heart {
    beats: Vec<Beat>,
    next: u64,
    thread: bool,
}

struct Beat {
    number: u64,
    runtime: Handle,
    every: Duration,
    at: Instant,
}

/// Keeps a runtime awake for as long as it lives.
pub(crate) struct Pulse(u64);

impl Pulse {
    /// `None` for a runtime of one thread, which nothing can help.
    pub(crate) fn of(runtime: &Handle, every: Duration) -> Option<Self> {
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return None;
        }
        let mut heart = heart();
        let number = heart.next;
        heart.next += 1;
        heart.beats.push(Beat { number, runtime: runtime.clone(), every, at: Instant::now() + every });
        if heart.thread {
            CHANGED.notify_one();
        } else {
            heart.thread = true;
            let thread = std::thread::Builder::new().name("streamkeeper-pulse".to_owned()).spawn(beat);
            if let Err(error) = thread {
                heart.thread = false;
                tracing::warn!(%error, "no thread for the pulse: a handler that blocks its thread can hold up all others");
            }
        }
        Some(Self(number))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        // The runtime is dropped after the lock: it may be its last handle, and it may take long to end.
        let beat = {
            let mut heart = heart();
            let place = heart.beats.iter().position(|beat| beat.number == self.0);
            place.map(|place| heart.beats.swap_remove(place))
        };
        CHANGED.notify_one();
        drop(beat);
    }
}

/// No invariant spans a panic while the lock is held.
fn heart() -> MutexGuard<'static, Heart> {
    HEART.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread: ends when nobody needs it.
fn beat() {
    let mut heart = heart();
    while !heart.beats.is_empty() {
        let now = Instant::now();
        for beat in heart.beats.iter_mut().filter(|beat| beat.at <= now) {
            beat.runtime.spawn(std::future::ready(()));
            beat.at = now + beat.every;
        }
        let next = heart.beats.iter().map(|beat| beat.at).min().unwrap_or(now);
        // A little later is early enough, and wakes for many at once.
        let pause = next.saturating_duration_since(now).max(Duration::from_millis(50));
        heart = CHANGED.wait_timeout(heart, pause).unwrap_or_else(PoisonError::into_inner).0;
    }
    heart.thread = false;
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
    }

    #[test]
    fn a_clock_goes_on_although_the_thread_that_waited_for_it_is_blocked() {
        let runtime = runtime();
        let _pulse = Pulse::of(runtime.handle(), Duration::from_millis(50)).unwrap();
        let (tell, told) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        // Woken by the thread that waits for the clock, and blocks it.
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = blocked.recv();
        });
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            tell.send(()).unwrap();
        });
        told.recv_timeout(Duration::from_secs(20)).expect("the clock goes on");
        release.send(()).unwrap();
    }

    #[test]
    fn the_pulse_of_one_is_not_ended_by_another() {
        let runtime = runtime();
        let pulses: Vec<_> = (0..100).map(|_| Pulse::of(runtime.handle(), Duration::from_secs(1)).unwrap()).collect();
        let numbers: Vec<_> = pulses.iter().map(|pulse| pulse.0).collect();
        let here = || heart().beats.iter().filter(|beat| numbers.contains(&beat.number)).count();
        assert_eq!(here(), 100);
        let mut pulses = pulses.into_iter();
        drop(pulses.next());
        assert_eq!(here(), 99);
        drop(pulses);
        assert_eq!(here(), 0);
    }
}
