//! Maintenance for as long as a process lives: one of the fleet at a time, paced, and quiet about lasting trouble.
//!
//! The lease is a key that is set if it is not there and expires before the next run is due. It is never deleted: that it
//! lives on is what keeps the others from doing the same work within the same period. Nobody waits for it, a holder that
//! dies leaves nothing to clean up, and two holders at the same time would only do the same work twice.

use std::future::Future;
use std::time::Duration;

use stream_core::{NameError, StreamKey};
use stream_redis::{Error, ErrorKind, Request, Value};

use crate::link::Link;

const DEFAULT_PERIOD: Duration = Duration::from_mins(1);
/// What shorter pacing is raised to.
const LEAST_PERIOD: Duration = Duration::from_secs(1);

/// What a cleaner that runs again and again did in all.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # server.add("orders", [("item", "1")]);
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "old-pod"])?;
/// # tokio::time::advance(std::time::Duration::from_secs(2 * 24 * 3600)).await;
/// use std::time::Duration;
/// use stream_core::ConsumerPolicy;
/// use stream_maint::ConsumerCleaner;
/// let mut cleaner = ConsumerCleaner::new(&client, "orders", "billing", ConsumerPolicy::default())?;
/// let ten_minutes = tokio::time::sleep(Duration::from_secs(599));
/// let totals = cleaner.run_every(ten_minutes, |_| {}).await;
/// assert_eq!((totals.runs, totals.removed, totals.failures), (10, 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CleanupTotals {
    /// Runs, without those that were not due.
    pub runs: u64,
    /// Consumers or groups that were removed.
    pub removed: u64,
    /// Runs that failed.
    pub failures: u64,
}

/// How often a task runs in the fleet, and the key by which that is agreed.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    period: Duration,
    lease: Option<StreamKey>,
}

impl Schedule {
    /// Once a minute, agreed by a key with this name in the slot of `stream`.
    pub(crate) fn new(stream: &StreamKey, name: &[u8]) -> Result<Self, NameError> {
        Ok(Self { period: DEFAULT_PERIOD, lease: Some(beside(stream, name)?) })
    }

    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    pub(crate) fn set_period(&mut self, period: Duration) {
        self.period = period.max(LEAST_PERIOD);
    }

    /// Agrees by another key, or with nobody.
    pub(crate) fn set_lease(&mut self, lease: Option<StreamKey>) {
        self.lease = lease;
    }

    /// Whether this process is the one to do it now.
    pub(crate) async fn is_due(&mut self, link: &mut Link) -> Result<bool, Error> {
        let Some(key) = &self.lease else { return Ok(true) };
        let request = Request::new("SET").key(key).arg("1").arg("NX").arg("PX").int(lifetime(self.period));
        let Some(reply) = link.send(&[request]).await?.pop() else { return Ok(true) };
        match reply {
            Ok(Value::Nil) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoPermission => {
                tracing::warn!(
                    %error,
                    "the fleet cannot agree on who does maintenance, so each of its members does; allow SET on the lease key"
                );
                self.lease = None;
                Ok(true)
            }
            // Trimming is what helps then.
            Err(error) if error.code() == Some("OOM") => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// A task that runs again and again.
pub(crate) trait Periodic: Send {
    /// What comes of one try.
    type Report: Send;
    /// How log lines name it.
    const TASK: &'static str;

    fn stream(&self) -> &StreamKey;
    fn period(&self) -> Duration;

    /// Whether the work was done, rather than left to somebody else.
    fn is_done(report: &Self::Report) -> bool;

    /// Does the work, unless somebody else has done it within the period.
    fn once(&mut self) -> impl Future<Output = Result<Self::Report, Error>> + Send;
}

/// Which kinds of failure were told since the work was done last.
#[derive(Debug, Default)]
struct Told(Vec<ErrorKind>);

impl Told {
    /// Whether a failure of this kind is news.
    fn failed(&mut self, kind: ErrorKind) -> bool {
        let news = !self.0.contains(&kind);
        if news {
            self.0.push(kind);
        }
        news
    }

    /// What fails from now on is news.
    fn done(&mut self) {
        self.0.clear();
    }
}

/// Runs `task` now and once in each period until `shutdown` is done; returns how often it failed. Each kind of failure is
/// logged once until the work is done again: that it was somebody else's turn meanwhile mends nothing.
pub(crate) async fn run_every<P: Periodic, S: Future>(
    task: &mut P,
    shutdown: S,
    mut observe: impl FnMut(&Result<P::Report, Error>),
) -> u64 {
    let mut failures = 0;
    let forever = async {
        let mut told = Told::default();
        loop {
            let result = task.once().await;
            match &result {
                Ok(report) if P::is_done(report) => told.done(),
                Ok(_) => {}
                Err(error) => {
                    failures += 1;
                    if told.failed(error.kind()) {
                        let (stream, task) = (task.stream(), P::TASK);
                        tracing::warn!(%stream, %error, "{task} failed; it is tried again every period");
                    }
                }
            }
            observe(&result);
            tokio::time::sleep(task.period()).await;
        }
    };
    tokio::select! {
        biased;
        _ = shutdown => {}
        () = forever => {}
    }
    failures
}

/// Milliseconds that the lease lives: a little less than the period, so that its holder is not late by a whole one.
fn lifetime(period: Duration) -> u64 {
    u64::try_from(period.as_millis() / 10 * 9).unwrap_or(u64::MAX).clamp(1, 1 << 53)
}

/// A key in the same slot as `stream`.
fn beside(stream: &StreamKey, suffix: &[u8]) -> Result<StreamKey, NameError> {
    let name = stream.as_bytes();
    let parts: [&[u8]; 4] = if name.contains(&b'{') { [name, suffix, b"", b""] } else { [b"{", name, b"}", suffix] };
    StreamKey::new(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_lies_in_the_slot_of_its_stream() {
        let check = |stream: &str, expected: &str| {
            let key = beside(&StreamKey::new(stream).unwrap(), b":x").unwrap();
            assert_eq!(key.to_string(), expected);
        };
        check("orders", "{orders}:x");
        check("{shop}orders", "{shop}orders:x");
    }
}
