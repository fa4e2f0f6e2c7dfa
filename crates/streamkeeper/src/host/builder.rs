//! [`HostBuilder`]: which members a host has, checked together.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::TryFutureExt;
use stream_consumer::{
    ConfigError, DrainReport, DurableBuilder, DurableConsumer, EphemeralBuilder, EphemeralConsumer, EphemeralReport,
    FromDelivery, Handler, IntoOutcomes, Positions, RunError, Shutdown,
};
use stream_core::{EntryId, RestartPolicy, StreamKey};
use stream_maint::{ConsumerCleaner, GroupCleaner, Trimmed, Trimmer};
use tokio::sync::Mutex;

use super::member::{HealthSlot, Life, Surroundings, built, consume, maintain};
use super::{Host, HostError, HostEvent, Member, MemberEnd, Observe, OnFailure};

/// Shorter pauses of a schedule are taken for a mistake.
const LEAST_EVERY: Duration = Duration::from_millis(10);

/// Describes a [`Host`]; made by [`Host::builder`]. Every member has a name, by which logs and reports call it.
#[must_use = "a builder does nothing until it is built"]
pub struct HostBuilder {
    members: Vec<Member>,
    refused: Option<HostError>,
    restart: RestartPolicy,
    restarts: Vec<(String, RestartPolicy)>,
    on_failure: OnFailure,
    observer: Option<Observe>,
}

impl std::fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.members.iter().map(|member| &*member.name).collect();
        f.debug_struct("HostBuilder").field("members", &names).finish_non_exhaustive()
    }
}

impl HostBuilder {
    pub(super) fn new() -> Self {
        Self {
            members: Vec::new(),
            refused: None,
            restart: RestartPolicy::never(),
            restarts: Vec::new(),
            on_failure: OnFailure::default(),
            observer: None,
        }
    }

    /// Adds a durable consumer. The handler is cloned for each run, of which there is one unless the policy restarts.
    pub fn durable<H, A>(self, name: impl Into<String>, consumer: DurableBuilder, handler: H) -> Self
    where
        H: Handler<A> + Clone,
        A: 'static,
    {
        self.add_durable(name.into(), consumer, move |consumer, shutdown| {
            let handler = handler.clone();
            async move { consumer.run_with(&shutdown, handler).await }
        })
    }

    /// Adds a durable consumer whose handler takes batches of up to `most` items.
    pub fn durable_batches<T, F, Fut>(
        self,
        name: impl Into<String>,
        consumer: DurableBuilder,
        most: usize,
        handler: F,
    ) -> Self
    where
        T: FromDelivery + Send + 'static,
        F: Fn(Vec<T>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcomes,
    {
        self.add_durable(name.into(), consumer, move |consumer, shutdown| {
            let handler = handler.clone();
            async move { consumer.run_batches(&shutdown, most, handler).await }
        })
    }

    /// Adds an ephemeral consumer. Started anew after a failure, it goes on where it was, so that nothing is skipped; after
    /// an end for missing entries ([`OnGap::Fail`](stream_consumer::OnGap::Fail)) it begins in that stream as
    /// [`start`](EphemeralBuilder::start) says.
    pub fn ephemeral<H, A>(self, name: impl Into<String>, consumer: EphemeralBuilder, handler: H) -> Self
    where
        H: Handler<A> + Clone,
        A: 'static,
    {
        self.add_ephemeral(name.into(), consumer, move |consumer, shutdown| {
            let handler = handler.clone();
            async move { consumer.run_with(&shutdown, handler).await }
        })
    }

    /// Adds an ephemeral consumer whose handler takes batches of up to `most` items; else as
    /// [`ephemeral`](Self::ephemeral).
    pub fn ephemeral_batches<T, F, Fut>(
        self,
        name: impl Into<String>,
        consumer: EphemeralBuilder,
        most: usize,
        handler: F,
    ) -> Self
    where
        T: FromDelivery + Send + 'static,
        F: Fn(Vec<T>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcomes,
    {
        self.add_ephemeral(name.into(), consumer, move |consumer, shutdown| {
            let handler = handler.clone();
            async move { consumer.run_batches(&shutdown, most, handler).await }
        })
    }

    /// Adds a trimmer, which trims as often as it was built to, once in the whole fleet.
    pub fn trim(self, name: impl Into<String>, trimmer: Trimmer) -> Self {
        let every = trimmer.period();
        let trimmer = Arc::new(Mutex::new(trimmer));
        self.schedule(name.into(), every, move || {
            let trimmer = Arc::clone(&trimmer);
            async move { trimmer.lock().await.run_if_due().await.map(|trimmed| trimmed != Trimmed::NotDue) }
        })
    }

    /// Adds the removal of a group's dead consumers, as often as the cleaner was built to, once in the whole fleet.
    pub fn clean_consumers(self, name: impl Into<String>, cleaner: ConsumerCleaner) -> Self {
        let every = cleaner.period();
        let cleaner = Arc::new(Mutex::new(cleaner));
        self.schedule(name.into(), every, move || {
            let cleaner = Arc::clone(&cleaner);
            async move { cleaner.lock().await.run_if_due().await.map(|done| done.is_some()) }
        })
    }

    /// Adds the removal of abandoned groups, as often as the cleaner was built to, once in the whole fleet.
    pub fn clean_groups(self, name: impl Into<String>, cleaner: GroupCleaner) -> Self {
        let every = cleaner.period();
        let cleaner = Arc::new(Mutex::new(cleaner));
        self.schedule(name.into(), every, move || {
            let cleaner = Arc::clone(&cleaner);
            async move { cleaner.lock().await.run_if_due().await.map(|done| done.is_some()) }
        })
    }

    /// Adds maintenance of one's own: `run` now and then every `every`, counted from the end of one to the start of the
    /// next, at least 10 ms. An error or a panic is told once and followed by the next run; a stop drops what runs.
    ///
    /// ```
    /// # fn example(client: &streamkeeper::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use streamkeeper::{host::Host, maint::DeadLetters};
    /// let letters = Arc::new(tokio::sync::Mutex::new(DeadLetters::new(client, "events:dead")?));
    /// let host = Host::builder()
    ///     .every("bound the dead letters", Duration::from_secs(3600), move || {
    ///         let letters = Arc::clone(&letters);
    ///         async move { letters.lock().await.bound(100_000).await.map(drop) }
    ///     })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// # example(&stream_testkit::MemoryServer::new().client()).unwrap();
    /// ```
    pub fn every<F, Fut, E>(self, name: impl Into<String>, every: Duration, mut run: F) -> Self
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + Send + 'static,
    {
        self.schedule(name.into(), every, move || {
            let run = run();
            async move { run.await.map(|()| true) }
        })
    }

    /// Whether consumers that fail are started anew. Default: never.
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = policy;
        self
    }

    /// The same for one consumer.
    pub fn restart_of(mut self, member: impl Into<String>, policy: RestartPolicy) -> Self {
        self.restarts.push((member.into(), policy));
        self
    }

    /// What becomes of the others when a consumer has failed for good. Default: [`OnFailure::StopAll`].
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.on_failure = policy;
        self
    }

    /// Is told what happens to members; it must be quick and must not block. Default: the log alone.
    pub fn observer(mut self, observer: impl Fn(&HostEvent<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Checks the members.
    ///
    /// # Errors
    /// [`HostError`] names the member that cannot work and says why.
    pub fn build(self) -> Result<Host, HostError> {
        let Self { mut members, refused, restart, restarts, on_failure, observer } = self;
        if let Some(error) = refused {
            return Err(error);
        }
        if members.is_empty() {
            return Err(HostError::Empty);
        }
        let twice =
            members.iter().enumerate().find(|(n, one)| members[..*n].iter().any(|other| other.name == one.name));
        if let Some((_, member)) = twice {
            return Err(HostError::NamedTwice { member: member.name.to_string() });
        }
        for member in &mut members {
            member.restart = restart;
        }
        for (name, policy) in restarts {
            match members.iter_mut().find(|member| member.is_consumer && *member.name == *name) {
                Some(member) => member.restart = policy,
                None => return Err(HostError::NoSuchMember { member: name }),
            }
        }
        Ok(Host { members, on_failure, observer })
    }

    fn add_durable<F, Fut>(mut self, name: String, consumer: DurableBuilder, run: F) -> Self
    where
        F: Fn(DurableConsumer, Shutdown) -> Fut + Send + 'static,
        Fut: Future<Output = Result<DrainReport, RunError>> + Send + 'static,
    {
        self.check(&name, consumer.clone().build().err());
        let live = move |around| {
            consume(around, move |shutdown, health| {
                let consumer = built(consumer.clone().build());
                health.set(consumer.health());
                run(consumer, shutdown).map_ok(MemberEnd::Durable)
            })
        };
        self.add(name, true, move |around| Box::pin(live(around)))
    }

    fn add_ephemeral<F, Fut>(mut self, name: String, consumer: EphemeralBuilder, run: F) -> Self
    where
        F: Fn(EphemeralConsumer, Shutdown) -> Fut + Send + 'static,
        Fut: Future<Output = Result<EphemeralReport, RunError>> + Send + 'static,
    {
        self.check(&name, consumer.clone().build().err());
        let stopped_at = StoppedAt::default();
        let live = move |around| {
            consume(around, move |shutdown, health| {
                let consumer = built(stopped_at.go_on(&consumer).build());
                health.set(consumer.health());
                let (positions, stopped_at) = (consumer.positions(), stopped_at.clone());
                let run = run(consumer, shutdown);
                async move {
                    let ended = run.await;
                    stopped_at.note(ended.as_ref().err(), &positions);
                    ended.map(MemberEnd::Ephemeral)
                }
            })
        };
        self.add(name, true, move |around| Box::pin(live(around)))
    }

    fn check(&mut self, name: &str, error: Option<ConfigError>) {
        if let Some(source) = error {
            self.refused.get_or_insert(HostError::Refused { member: name.to_owned(), source });
        }
    }

    fn schedule<F, Fut, E>(mut self, name: String, every: Duration, run: F) -> Self
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<bool, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>> + Send + 'static,
    {
        if every < LEAST_EVERY {
            self.refused.get_or_insert(HostError::TooOften { member: name.clone(), every });
        }
        self.add(name, false, move |around| Box::pin(maintain(around, every, run)))
    }

    fn add(
        mut self,
        name: String,
        is_consumer: bool,
        live: impl FnOnce(Surroundings) -> Life + Send + 'static,
    ) -> Self {
        let (restart, health) = (RestartPolicy::never(), HealthSlot::default());
        self.members.push(Member { name: name.into(), restart, health, is_consumer, live: Box::new(live) });
        self
    }
}

/// Where an ephemeral consumer was when it failed.
#[derive(Clone, Default)]
struct StoppedAt(Arc<std::sync::Mutex<Option<BTreeMap<StreamKey, EntryId>>>>);

impl StoppedAt {
    /// The consumer, made to begin where the one before it was.
    fn go_on(&self, consumer: &EphemeralBuilder) -> EphemeralBuilder {
        let positions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*positions {
            Some(positions) => consumer.clone().resume(positions.iter().map(|(key, id)| (key.clone(), *id))),
            None => consumer.clone(),
        }
    }

    /// One that failed before it had begun leaves what is known.
    fn note(&self, error: Option<&RunError>, positions: &Positions) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.extend(positions.get());
        if let Some(RunError::EntriesMissing { stream }) = error {
            known.remove(stream);
        }
    }
}
