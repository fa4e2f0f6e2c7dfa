//! [`eventually`]: waiting for a condition of something that cannot tell when it is there. [`work_for`]: time that is meant to
//! pass.
//!
//! The only module of the workspace's test code that sleeps: a test that pauses for a guessed time is either slow or
//! wrong, one that asks again until a deadline is neither.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// Between two looks. Short, since a look at a local server takes less.
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `probe` until it returns `Some`, and returns what is in it.
///
/// `what` completes the sentence "waited ... for ...". A probe that has begun is let finish, so the deadline can pass by
/// the length of one look.
///
/// # Panics
/// With `what` when `deadline` has passed: the test has failed.
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let mut looks = 0;
/// let found = stream_testkit::eventually(Duration::from_secs(5), "the third look", || {
///     looks += 1;
///     let look = looks;
///     async move { (look == 3).then_some(look) }
/// })
/// .await;
/// assert_eq!(found, 3);
/// # }
/// ```
pub async fn eventually<T, F>(deadline: Duration, what: impl Display, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(started.elapsed() < deadline, "waited {deadline:?} for {what}, in vain");
        pause().await;
    }
}

/// Takes `duration`, as the work of a slow handler does.
///
/// Only for a test whose subject is that something takes long, such as a handler that outlives its lease. To wait for
/// something, use [`eventually`].
pub async fn work_for(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The pause between two looks, also for the loops of this crate that cannot panic.
pub(crate) async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_never_holds_is_looked_at_until_the_deadline_and_then_named() {
        let looks = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = looks.clone();
        let waiting = tokio::spawn(eventually(Duration::from_secs(1), "a door", move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async { None::<()> }
        }));
        let panic = waiting.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "waited 1s for a door, in vain");
        assert_eq!(looks.load(std::sync::atomic::Ordering::Relaxed), 101);
    }

    #[tokio::test(start_paused = true)]
    async fn a_condition_that_holds_at_once_costs_no_pause() {
        let before = Instant::now();
        assert_eq!(eventually(Duration::ZERO, "nothing", || async { Some(7) }).await, 7);
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
