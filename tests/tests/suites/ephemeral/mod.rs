//! Ephemeral consumers: nothing is left on the server, nothing is skipped, and what is gone is told.

mod exact;
mod faults;
mod order;
mod report;
mod servers;

use std::sync::{Arc, Mutex, PoisonError};

use streamkeeper::{
    Consumer, Context, EntryId, EphemeralBuilder, EphemeralReport, Event, Handler, RunError, Shutdown, StatsHandle,
    StreamKey,
};
use streamkeeper_tests::Events;
use tokio::task::JoinHandle;

/// An ephemeral consumer that runs.
struct Running {
    shutdown: Shutdown,
    stats: StatsHandle,
    events: Events,
    task: JoinHandle<Result<EphemeralReport, RunError>>,
}

fn run<H, A>(builder: EphemeralBuilder, handler: H) -> Running
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
    async fn stop(self) -> EphemeralReport {
        self.shutdown.stop();
        self.task.await.unwrap().unwrap()
    }

    /// Whether nothing was told but what is in order.
    fn is_calm(&self) -> bool {
        let ordinary = ["Ready", "Started", "Handled"];
        self.events.all().iter().all(|told| ordinary.iter().any(|name| told.text.starts_with(name)))
    }

    fn is_ready(&self) -> bool {
        self.events.count("Ready") > 0
    }
}

/// The entries that handlers got, in the order of their starts.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, EntryId)>>>);

impl Seen {
    fn note(&self, cx: &Context) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((cx.stream().to_string(), cx.id()));
    }

    fn ids(&self) -> Vec<EntryId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, id)| *id).collect()
    }

    fn of(&self, stream: &str) -> Vec<EntryId> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|(key, _)| key == stream).map(|(_, id)| *id).collect()
    }

    fn len(&self) -> usize {
        self.ids().len()
    }

    /// A handler that notes what it gets.
    fn handler(&self) -> impl Fn(Context) -> std::future::Ready<()> + Clone + Send + Sync + 'static {
        let seen = self.clone();
        move |cx| {
            seen.note(&cx);
            std::future::ready(())
        }
    }
}

fn ephemeral(client: &streamkeeper::Client, key: &str) -> EphemeralBuilder {
    Consumer::ephemeral(client).stream(key)
}
