//! Running the streams of one consumer side by side, and ending whatever becomes of them.
//!
//! Each stream is a task, and beside it is its steward. What must stay true: everything ends with the future of
//! [`run_work`](DurableConsumer::run_work), and that future ends within its bound after a stop also where a handler blocks
//! its thread for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::held::Fleet;
use super::stop::overdue;
use super::stream::Stream;
use super::worker::Worker;
use super::{Acknowledge, DrainReport, DurableConsumer, steward};
use crate::delivery::Source;
use crate::error::RunError;
use crate::link::Links;
use crate::pulse::Pulse;
use crate::shutdown::Shutdown;
use crate::work::Work;

/// How often a runtime is woken at least, so that its clock goes on.
const PULSE: Duration = Duration::from_secs(1);

impl DurableConsumer {
    pub(crate) async fn run_work<W: Work>(self, shutdown: &Shutdown, work: Arc<W>) -> Result<DrainReport, RunError> {
        let config = &self.config;
        let fleet = Fleet {
            permits: Arc::new(Semaphore::new(config.concurrency)),
            suspect: Arc::new(Semaphore::new(1)),
            shutdown: shutdown.child(),
        };
        let mut links = Links::new(&config.client, config.backoff);
        let _pulse = Pulse::of(&Handle::current(), PULSE.min(config.lease.renew_every()));
        // The tasks end with this future: what is dropped is not left running behind its caller's back. A worker that is
        // held up cannot be ended, but its steward can, and with it the renewing of leases.
        let mut tasks = JoinSet::new();
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        let mut streams = HashMap::with_capacity(config.streams.len());
        let _ended = self.pulses.end_with();
        for (place, key) in config.streams.iter().enumerate() {
            let source =
                Source { stream: key.clone(), group: Some(config.group.clone()), consumer: config.consumer.clone() };
            let stream = Arc::new(Stream::new(config, source, &links.of(key), &self.counters, self.pulses.of(place)));
            let (send, receive) = mpsc::channel(4);
            let worker = Worker::new(&stream, Arc::clone(&work), fleet.clone(), receive);
            let end = end.child_token();
            if config.acknowledge != Acknowledge::NoAck {
                tokio::spawn(steward::run(Arc::clone(&stream), send, end.clone()));
            }
            let task = tasks.spawn(async move {
                let _end = end.drop_guard();
                worker.run().await
            });
            streams.insert(task.id(), stream);
        }
        let mut report = DrainReport { consumer_removed: true, ..DrainReport::default() };
        let mut failure = None;
        let overdue = overdue(&fleet.shutdown, config.grace);
        tokio::pin!(overdue);
        loop {
            let joined = tokio::select! {
                biased;
                joined = tasks.join_next_with_id() => joined,
                () = &mut overdue => None,
            };
            let error = match joined {
                Some(Ok((id, drained))) => {
                    streams.remove(&id);
                    match drained {
                        Ok(drained) => {
                            report.merge(&drained);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Some(Err(ended)) => match streams.remove(&ended.id()) {
                    Some(stream) if ended.is_panic() => RunError::Panicked { stream: stream.owner.key.clone() },
                    _ => continue,
                },
                None => break,
            };
            // One stream cannot go on for good. The others stop as well, gracefully: a consumer that runs on with a part of
            // its streams looks healthy and is not.
            failure.get_or_insert(error);
            if !fleet.shutdown.is_stopping() {
                fleet.shutdown.stop();
            }
        }
        for stream in streams.values() {
            tracing::error!(
                stream = %stream.owner.key, group = %stream.owner.group, consumer = %stream.owner.consumer,
                "the run loop did not end: a handler blocks its thread; what is held is left to its lease"
            );
            report.merge(&DrainReport::of_stuck(stream));
        }
        report.stats = self.counters.snapshot();
        match failure {
            None => Ok(report),
            Some(error) => Err(error),
        }
    }
}
