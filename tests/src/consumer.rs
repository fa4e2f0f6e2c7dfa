//! [`Running`]: a consumer under test, with its switch, its counters and everything it told its observer.

use std::sync::{Arc, Mutex, PoisonError};

use streamkeeper::{DrainReport, DurableBuilder, Event, Handler, RunError, Shutdown, StatsHandle, StreamKey};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What a consumer told. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<Vec<Told>>>);

/// One event.
#[derive(Debug, Clone)]
pub struct Told {
    /// When.
    pub at: Instant,
    /// The whole event as text; it begins with its name.
    pub text: String,
}

impl Events {
    /// How many events have this name.
    pub fn count(&self, name: &str) -> usize {
        self.named(name).len()
    }

    /// The events of this name.
    pub fn named(&self, name: &str) -> Vec<Told> {
        self.all().into_iter().filter(|told| told.text.starts_with(name)).collect()
    }

    /// All events.
    pub fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes down an event.
    pub fn add(&self, event: &Event<'_>) {
        let told = Told { at: Instant::now(), text: format!("{event:?}") };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

/// A consumer that runs.
#[derive(Debug)]
pub struct Running {
    /// Its switch.
    pub shutdown: Shutdown,
    /// Its counters.
    pub stats: StatsHandle,
    /// What it told.
    pub events: Events,
    task: JoinHandle<Result<DrainReport, RunError>>,
}

/// Builds and starts a consumer.
///
/// # Panics
/// When a setting is refused.
pub fn start<H, A>(builder: DurableBuilder, handler: H) -> Running
where
    H: Handler<A>,
    A: 'static,
{
    let events = Events::default();
    let told = events.clone();
    let consumer = builder.observer(move |_: &StreamKey, event: &Event<'_>| told.add(event)).build().unwrap();
    let (stats, shutdown) = (consumer.stats(), Shutdown::new());
    let switch = shutdown.clone();
    let task = tokio::spawn(async move { consumer.run_with(&switch, handler).await });
    Running { shutdown, stats, events, task }
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// Why it could not go on.
    ///
    /// # Panics
    /// When it panicked.
    pub async fn ended(self) -> Result<DrainReport, RunError> {
        self.task.await.unwrap()
    }

    /// Stops it gracefully.
    ///
    /// # Panics
    /// When it had ended with an error.
    pub async fn stop(self) -> DrainReport {
        self.shutdown.stop();
        self.ended().await.unwrap()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it as a kill of its process would: nothing is handed back, acknowledged or finished.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
