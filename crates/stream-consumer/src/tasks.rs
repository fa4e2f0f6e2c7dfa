//! [`Loops`]: the run loops of one consumer, a task for each of its streams, and their common end.
//!
//! What must stay true: all end with the future that holds them; when one cannot go on, the others stop; and after a stop
//! the end comes within its bound, also where a handler blocks its thread for ever.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};

use crate::delivery::Source;
use crate::error::RunError;
use crate::shutdown::Shutdown;

/// How often a runtime is woken at least, so that its clock goes on.
pub(crate) const PULSE: Duration = Duration::from_secs(1);

/// How much longer than it can take a stop may take on a machine that is busy, before a stream counts as stuck.
const PATIENCE: Duration = Duration::from_secs(3);

/// Loops that run, each with its stream.
pub(crate) struct Loops<S, R> {
    /// Aborted when they are dropped: nothing is left running behind the caller's back.
    tasks: JoinSet<Result<R, RunError>>,
    streams: HashMap<Id, (Arc<Source>, S)>,
}

#[cfg(feature = "simulation")]
pub(crate) use crate::simulation::gated;

/// What every task is made of: the future itself, except in a simulation, where it is a part of the process that spawns it.
#[cfg(not(feature = "simulation"))]
#[inline]
pub(crate) fn gated<F: Future>(future: F) -> F {
    future
}

/// How they ended.
pub(crate) struct End<S, R> {
    /// Of those that ended well.
    pub(crate) reports: Vec<R>,
    /// The streams whose loops did not end.
    pub(crate) stuck: Vec<S>,
    /// Why the first ended that could not go on.
    pub(crate) failure: Option<RunError>,
}

impl<S, R: Send + 'static> Loops<S, R> {
    pub(crate) fn new() -> Self {
        Self { tasks: JoinSet::new(), streams: HashMap::new() }
    }

    pub(crate) fn spawn(
        &mut self,
        source: &Arc<Source>,
        stream: S,
        run: impl Future<Output = Result<R, RunError>> + Send + 'static,
    ) {
        let task = self.tasks.spawn(gated(run));
        self.streams.insert(task.id(), (Arc::clone(source), stream));
    }

    /// Waits until all have ended. After a stop, what runs may take as long as `grace`, and the loops for `last_words` more.
    pub(crate) async fn end(mut self, shutdown: &Shutdown, grace: Duration, last_words: Duration) -> End<S, R> {
        let mut end = End { reports: Vec::with_capacity(self.streams.len()), stuck: Vec::new(), failure: None };
        let overdue = overdue(shutdown, grace, last_words + PATIENCE);
        tokio::pin!(overdue);
        loop {
            let joined = tokio::select! {
                biased;
                joined = self.tasks.join_next_with_id() => joined,
                () = &mut overdue => None,
            };
            let error = match joined {
                Some(Ok((id, drained))) => {
                    self.streams.remove(&id);
                    match drained {
                        Ok(report) => {
                            end.reports.push(report);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Some(Err(ended)) => match self.streams.remove(&ended.id()) {
                    Some((source, _)) if ended.is_panic() => RunError::Panicked { stream: source.stream.clone() },
                    _ => continue,
                },
                None => break,
            };
            // One stream cannot go on for good. The others stop as well, gracefully: a consumer that runs on with a part of
            // its streams looks healthy and is not.
            end.failure.get_or_insert(error);
            shutdown.stop_gently();
        }
        for (source, stream) in self.streams.into_values() {
            tracing::error!(
                stream = %source.stream,
                group = source.group.as_ref().map(tracing::field::display),
                consumer = %source.consumer,
                "the run loop did not end: a handler blocks its thread; what is held is left"
            );
            end.stuck.push(stream);
        }
        end
    }
}

/// Completes when every stream that can stop has stopped, some time after a stop was asked for.
async fn overdue(shutdown: &Shutdown, grace: Duration, last_words: Duration) {
    shutdown.stopping().await;
    tokio::select! {
        biased;
        () = tokio::time::sleep(grace.saturating_add(last_words)) => {}
        () = async { shutdown.immediate().await; tokio::time::sleep(last_words).await } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use stream_core::{ConsumerName, StreamKey};

    use super::*;
    use crate::pace::now;

    const SECOND: Duration = Duration::from_secs(1);

    fn source(stream: &str) -> Arc<Source> {
        let (stream, consumer) = (StreamKey::new(stream).unwrap(), ConsumerName::new("c").unwrap());
        Arc::new(Source { stream, group: None, consumer })
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_whose_loop_panicked_is_named_and_the_others_stop() {
        let shutdown = Shutdown::new();
        let mut loops = Loops::new();
        let stops = shutdown.clone();
        loops.spawn(&source("a"), "a", async move {
            stops.stopping().await;
            Ok("a has stopped")
        });
        loops.spawn(&source("b"), "b", async { panic!("b cannot go on") });
        let end = loops.end(&shutdown, SECOND, SECOND).await;
        assert!(
            matches!(&end.failure, Some(RunError::Panicked { stream }) if stream.to_string() == "b"),
            "{:?}",
            end.failure
        );
        assert_eq!((end.reports, end.stuck), (vec!["a has stopped"], vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_is_not_waited_for_after_its_bound() {
        for (immediate, bound) in [(false, SECOND * 12 + PATIENCE), (true, SECOND * 2 + PATIENCE)] {
            let shutdown = Shutdown::new();
            let mut loops = Loops::<_, ()>::new();
            loops.spawn(&source("a"), "a", async { Ok(()) });
            loops.spawn(&source("b"), "b", pending());
            let began = now();
            shutdown.stop();
            if immediate {
                shutdown.stop();
            }
            let end = loops.end(&shutdown, SECOND * 10, SECOND * 2).await;
            assert!(end.failure.is_none());
            assert_eq!((end.reports.len(), end.stuck), (1, vec!["b"]));
            let took = now().saturating_duration_since(began);
            assert!(took >= bound && took < bound + SECOND, "{took:?}");
        }
    }
}
