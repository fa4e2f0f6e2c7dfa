//! What a racer says about itself in the end: how long it took from the first entry to the last, its processor time
//! meanwhile, its allocations, and latencies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::Task;

/// The number of allocations of this process so far.
pub type Allocations = fn() -> u64;

/// The latencies' shares that are printed, for a picture of the distribution.
const SHARES: [f64; 22] = [
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995,
    0.9998, 0.9999, 1.0,
];

/// Looks at each entry, and keeps the time. Cheap to clone, and cheap to ask.
#[derive(Debug, Clone)]
pub(crate) struct Watch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    live: bool,
    expect: u64,
    allocations: Option<Allocations>,
    begun: OnceLock<Moment>,
    /// When the last entry was seen.
    ended: OnceLock<Moment>,
    seen: AtomicU64,
    bytes: AtomicU64,
    latencies: Mutex<Vec<u64>>,
}

#[derive(Debug)]
struct Moment {
    at: Instant,
    cpu: Duration,
    allocations: u64,
}

#[derive(Serialize)]
struct Report {
    n: u64,
    seconds: f64,
    cpu_seconds: f64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations: Option<u64>,
    #[serde(flatten)]
    latencies: Option<Latencies>,
}

#[derive(Serialize)]
struct Latencies {
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Pairs of a share and the latency that it does not exceed.
    quantiles_us: Vec<(f64, f64)>,
}

impl Watch {
    pub(crate) fn new(task: &Task, allocations: Option<Allocations>) -> Self {
        let room = if task.live { task.expect as usize } else { 0 };
        Self(Arc::new(Inner {
            live: task.live,
            expect: task.expect,
            allocations,
            begun: OnceLock::new(),
            ended: OnceLock::new(),
            seen: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            latencies: Mutex::new(Vec::with_capacity(room)),
        }))
    }

    /// Starts the clock, unless it runs.
    pub(crate) fn begin(&self) {
        self.0.begun.get_or_init(|| self.moment());
    }

    /// What a handler does with a payload that does nothing: looks at it. Returns how many were seen.
    pub(crate) fn see(&self, payload: &[u8]) -> u64 {
        self.begin();
        self.0.bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
        if self.0.live
            && let Some(sent) = sent_at(payload)
        {
            let latency = now_ns().saturating_sub(sent);
            self.0.latencies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(latency);
        }
        let seen = self.0.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if seen == self.0.expect {
            self.0.ended.get_or_init(|| self.moment());
        }
        seen
    }

    pub(crate) fn seen(&self) -> u64 {
        self.0.seen.load(Ordering::Relaxed)
    }

    /// Prints the line that tells how it went until the last expected entry was seen, or until now.
    pub(crate) fn report(&self) {
        let end = self.0.ended.get_or_init(|| self.moment());
        let begin = self.0.begun.get_or_init(|| self.moment());
        let latencies =
            std::mem::take(&mut *self.0.latencies.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let report = Report {
            n: if self.0.seen.load(Ordering::Relaxed) == 0 { self.0.expect } else { self.seen().min(self.0.expect) },
            seconds: end.at.saturating_duration_since(begin.at).as_secs_f64(),
            cpu_seconds: end.cpu.saturating_sub(begin.cpu).as_secs_f64(),
            bytes: self.0.bytes.load(Ordering::Relaxed),
            allocations: self.0.allocations.map(|_| end.allocations - begin.allocations),
            latencies: summary(latencies),
        };
        // A report is numbers alone, which always become JSON.
        println!("{}", serde_json::to_string(&report).unwrap_or_default());
    }

    fn moment(&self) -> Moment {
        let allocations = self.0.allocations.map_or(0, |count| count());
        Moment { at: Instant::now(), cpu: cpu_time(), allocations }
    }
}

fn summary(mut latencies: Vec<u64>) -> Option<Latencies> {
    latencies.sort_unstable();
    let last = latencies.len().checked_sub(1)?;
    let at = |share: f64| latencies[(last as f64 * share) as usize] as f64 / 1e3;
    let quantiles_us = SHARES.map(|share| (share, at(share))).to_vec();
    Some(Latencies { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999), quantiles_us })
}

/// The processor time of this process, all threads together.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds since 1970: 19 digits.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The nanoseconds that a payload begins with; a JSON string has a quotation mark before.
fn sent_at(payload: &[u8]) -> Option<u64> {
    let digits = payload.strip_prefix(b"\"").unwrap_or(payload).get(..19)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stamp_is_read_back() {
        let payload = format!("{:019}xxx", 1_700_000_000_123_456_789_u64);
        assert_eq!(sent_at(payload.as_bytes()), Some(1_700_000_000_123_456_789));
        assert_eq!(sent_at(format!("\"{payload}\"").as_bytes()), Some(1_700_000_000_123_456_789));
        assert_eq!(sent_at(b"short"), None);
    }

    #[test]
    fn shares_of_a_known_distribution() {
        let latencies = summary((0..=1_000).rev().map(|us| us * 1_000).collect()).unwrap();
        assert_eq!((latencies.p50_us, latencies.p99_us, latencies.p999_us), (500.0, 990.0, 999.0));
        assert_eq!(latencies.quantiles_us.last(), Some(&(1.0, 1_000.0)));
        assert!(summary(Vec::new()).is_none());
    }
}
