//! The life of a member: a consumer that is started anew as its policy says, or maintenance on a schedule.
//!
//! What must stay true: a member ends by itself only when it is asked to stop or has failed for good, and maintenance never
//! fails for good: whatever a run of it ends with, a panic included, is told once and followed by the next.

use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use stream_consumer::{ConfigError, HealthHandle, RunError, Shutdown};
use stream_core::{Restart, RestartPolicy, Restarts};
use tokio::time::{Instant, sleep};

use super::report::{HostEvent, Maintained, MemberEnd};
use crate::chain::chain;

/// What a member's life gets from its host.
#[derive(Clone)]
pub(super) struct Surroundings {
    pub(super) name: Arc<str>,
    pub(super) shutdown: Shutdown,
    pub(super) restart: RestartPolicy,
    pub(super) observer: Option<super::Observe>,
    pub(super) health: HealthSlot,
}

/// The health of a member's present run; empty for maintenance.
#[derive(Debug, Clone, Default)]
pub(super) struct HealthSlot(Arc<Mutex<Option<HealthHandle>>>);

impl HealthSlot {
    pub(super) fn set(&self, health: HealthHandle) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
    }

    pub(super) fn get(&self) -> Option<HealthHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How a life has ended, and how many restarts it had.
pub(super) type Lived = (MemberEnd, u64);
pub(super) type Life = Pin<Box<dyn Future<Output = Lived> + Send>>;

impl Surroundings {
    fn tell(&self, event: &HostEvent<'_>) {
        if let Some(observer) = &self.observer {
            // An observer that panics must not take a member down.
            if std::panic::catch_unwind(AssertUnwindSafe(|| observer(event))).is_err() {
                tracing::error!(member = %self.name, "the observer of the host panicked");
            }
        }
    }
}

/// Runs a consumer, and runs it again as the policy says. `run` makes and runs one.
pub(super) async fn consume<F, Fut>(around: Surroundings, mut run: F) -> Lived
where
    F: FnMut(Shutdown, HealthSlot) -> Fut,
    Fut: Future<Output = Result<MemberEnd, RunError>>,
{
    let mut restarts = Restarts::new(around.restart);
    loop {
        let began = Instant::now();
        let error = match run(around.shutdown.clone(), around.health.clone()).await {
            Ok(end) => return (end, restarts.total()),
            Err(error) => error,
        };
        let member = &*around.name;
        let decision = if around.shutdown.is_stopping() {
            Restart::End
        } else {
            restarts.failed(began.elapsed(), fastrand::f64())
        };
        let Restart::After(after) = decision else {
            tracing::error!(member, error = chain(&error), "a consumer has failed");
            around.tell(&HostEvent::Failed { member, error: &error });
            return (MemberEnd::Failed(error), restarts.total());
        };
        tracing::error!(member, error = chain(&error), ?after, "a consumer has failed and is started anew");
        around.tell(&HostEvent::Restarting { member, error: &error, after });
        tokio::select! {
            biased;
            // It was failing when it was told to stop: that is how it ended.
            () = around.shutdown.stopping() => return (MemberEnd::Failed(error), restarts.total()),
            () = sleep(after) => {}
        }
    }
}

/// What was built once, to see whether it can be, can be built again.
pub(super) fn built<C>(built: Result<C, ConfigError>) -> C {
    built.unwrap_or_else(|error| unreachable!("settings that were taken before are refused: {error}"))
}

/// Runs maintenance now and after each pause until the host stops. A run says whether it was this process's turn.
pub(super) async fn maintain<F, Fut, E>(around: Surroundings, every: Duration, mut run: F) -> Lived
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool, E>>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut outcomes = Outcomes { around: &around, failing: false, totals: Maintained::default() };
    let forever = async {
        loop {
            match guarded(&mut run).await {
                Ok(turn) => outcomes.succeeded(turn),
                Err(error) => outcomes.failed(error.as_ref()),
            }
            sleep(every).await;
        }
    };
    tokio::select! {
        biased;
        () = around.shutdown.stopping() => {}
        () = forever => {}
    }
    (MemberEnd::Maintenance(outcomes.totals), 0)
}

/// One run whose panic is an error like any other.
async fn guarded<Fut, E>(run: impl FnOnce() -> Fut) -> Result<bool, Box<dyn StdError + Send + Sync>>
where
    Fut: Future<Output = Result<bool, E>>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let run = AssertUnwindSafe(async { run().await });
    match run.catch_unwind().await {
        Ok(result) => result.map_err(Into::into),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            Err(format!("the maintenance panicked: {}", text.unwrap_or("no message")).into())
        }
    }
}

/// How the runs of a schedule came out; each trouble is told once.
struct Outcomes<'a> {
    around: &'a Surroundings,
    failing: bool,
    totals: Maintained,
}

impl Outcomes<'_> {
    fn succeeded(&mut self, turn: bool) {
        self.totals.runs += u64::from(turn);
        // That it was somebody else's turn says nothing about what fails here.
        if turn && std::mem::take(&mut self.failing) {
            let member = &*self.around.name;
            tracing::info!(member, "maintenance works again");
            self.around.tell(&HostEvent::MaintenanceMended { member });
        }
    }

    fn failed(&mut self, error: &(dyn StdError + Send + Sync + 'static)) {
        self.totals.failures += 1;
        if !std::mem::replace(&mut self.failing, true) {
            let member = &*self.around.name;
            tracing::warn!(member, error = chain(error), "maintenance failed; it is tried again");
            self.around.tell(&HostEvent::MaintenanceFailed { member, error });
        }
    }
}
