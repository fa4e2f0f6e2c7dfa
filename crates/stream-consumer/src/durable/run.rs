//! Running the streams of one consumer side by side: the loop of each is a task, and beside it is its steward.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::held::Fleet;
use super::stop::last_words;
use super::stream::Stream;
use super::worker::Worker;
use super::{Acknowledge, DrainReport, DurableConsumer, steward};
use crate::delivery::Source;
use crate::error::RunError;
use crate::link::Links;
use crate::pulse::Pulse;
use crate::shutdown::Shutdown;
use crate::tasks::{Loops, PULSE, gated};
use crate::work::Work;

impl DurableConsumer {
    pub(crate) async fn run_work<W: Work>(self, shutdown: &Shutdown, work: Arc<W>) -> Result<DrainReport, RunError> {
        let config = &self.config;
        let fleet = Fleet {
            permits: Arc::new(Semaphore::new(config.concurrency)),
            suspect: Arc::new(Semaphore::new(1)),
            settling: Arc::default(),
            shutdown: shutdown.child(),
        };
        let mut links = Links::new(&config.client, config.backoff);
        let _pulse = Pulse::of(&Handle::current(), PULSE.min(config.lease.renew_every()));
        // A worker that is held up cannot be ended, but its steward can, and with it the renewing of leases.
        let mut loops = Loops::new();
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        let _ended = self.pulses.end_with();
        for (place, key) in config.streams.iter().enumerate() {
            let source =
                Source { stream: key.clone(), group: Some(config.group.clone()), consumer: config.consumer.clone() };
            let stream = Arc::new(Stream::new(config, source, &links.of(key), &self.counters, self.pulses.of(place)));
            let (send, receive) = mpsc::channel(4);
            let worker = Worker::new(&stream, Arc::clone(&work), fleet.clone(), receive);
            let end = end.child_token();
            if config.acknowledge != Acknowledge::NoAck {
                tokio::spawn(gated(steward::run(Arc::clone(&stream), send, end.clone())));
            }
            loops.spawn(&Arc::clone(&stream.source), stream, async move {
                let _end = end.drop_guard();
                worker.run().await
            });
        }
        let ended = loops.end(&fleet.shutdown, config.grace, last_words(config.grace)).await;
        let mut report = DrainReport { consumer_removed: true, ..DrainReport::default() };
        ended.reports.iter().for_each(|drained| report.merge(drained));
        ended.stuck.iter().for_each(|stream| report.merge(&DrainReport::of_stuck(stream)));
        report.stats = self.counters.snapshot();
        ended.failure.map_or(Ok(report), Err)
    }
}
