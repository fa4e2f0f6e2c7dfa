//! [`Worker`]: the run loop of one stream. It waits for one event at a time, then starts what can start and asks for what
//! there is room for.
//!
//! Nothing here is awaited that may not come: every wait stands beside the timer and the shutdown switch.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use stream_core::{DeadReason, InOrder, Inline, Lanes, Outcome, Verdict};
use stream_redis::ReadBatch;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, PollSemaphore};

use super::EphemeralReport;
use super::reading::{Progress, Reading};
use super::stream::Stream;
use crate::delivery::Delivery;
use crate::durable::RetryOrder;
use crate::error::RunError;
use crate::in_place::InPlace;
use crate::job::{Ended, Jobs, Members};
use crate::observe::{Event, count};
use crate::pace::now;
use crate::shutdown::Shutdown;
use crate::work::{Outcomes, Work, too_few};

mod start;

/// An entry that has run or waited for so long is copied out of the buffer that it shares with a whole batch.
const LONG: Duration = Duration::from_secs(10);

/// An entry that is held, with its number in the order of reading.
struct Held {
    number: u64,
    delivery: Delivery,
}

enum Happened<W: Work> {
    Ended(Ended<W, u64>),
    Read(Progress),
    Permit(OwnedSemaphorePermit),
    Timer,
    Stop,
}

pub(crate) struct Worker<W: Work> {
    stream: Arc<Stream>,
    work: Arc<W>,
    shutdown: Shutdown,
    reading: Reading,
    batch: ReadBatch,
    queue: VecDeque<Held>,
    /// What waits behind another of its key.
    lanes: Lanes<Held>,
    /// The lanes of what is held, by its number.
    lane_keys: HashMap<u64, u64>,
    /// By the time of their next attempt, then by their order.
    waiting: BTreeMap<(Instant, u64), Delivery>,
    jobs: Jobs<W, u64>,
    inline: Inline,
    in_place: InPlace<W>,
    order: InOrder,
    permits: Arc<Semaphore>,
    permit_wanted: PollSemaphore,
    spare: Option<OwnedSemaphorePermit>,
    starved: bool,
    /// Whether there is more to start although nothing new has happened.
    again: bool,
    held: usize,
    held_bytes: usize,
    /// Whether a handler has returned well since the last turn.
    succeeded: bool,
    unstarted: u64,
    swept: Instant,
    timer: Pin<Box<Sleep>>,
    ready_told: bool,
    /// Nothing more is started.
    stopped_by_handler: bool,
}

impl<W: Work> Worker<W> {
    pub(crate) fn new(stream: &Arc<Stream>, work: Arc<W>, permits: &Arc<Semaphore>, shutdown: &Shutdown) -> Self {
        Self {
            reading: Reading::new(stream),
            stream: Arc::clone(stream),
            work,
            shutdown: shutdown.clone(),
            batch: ReadBatch::default(),
            queue: VecDeque::new(),
            lanes: Lanes::new(),
            lane_keys: HashMap::new(),
            waiting: BTreeMap::new(),
            jobs: Jobs::new(),
            inline: Inline::new(),
            in_place: InPlace::new(),
            order: InOrder::new(stream.resume.unwrap_or_default()),
            permits: Arc::clone(permits),
            permit_wanted: PollSemaphore::new(Arc::clone(permits)),
            spare: None,
            starved: false,
            again: false,
            held: 0,
            held_bytes: 0,
            succeeded: false,
            unstarted: 0,
            swept: now(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            ready_told: false,
            stopped_by_handler: false,
        }
    }

    /// Runs until a stop is asked for or it cannot go on.
    pub(crate) async fn run(mut self) -> Result<EphemeralReport, RunError> {
        let key = self.stream.source.stream.clone();
        let end = loop {
            match self.next(true).await {
                Happened::Stop => break None,
                Happened::Read(Progress::Failed(source)) => break Some(RunError::Stream { stream: key, source }),
                Happened::Read(Progress::Missing) => {
                    // What the read has brought is told as not started.
                    self.take_up_read();
                    break Some(RunError::EntriesMissing { stream: key });
                }
                event => {
                    let read = matches!(event, Happened::Read(_));
                    self.take_in(event);
                    self.go_on(read);
                }
            }
        };
        self.stream.pulse.stopping();
        self.reading.close();
        let report = self.drain().await;
        end.map_or(Ok(report), Err)
    }

    /// Lets everything happen that can happen without another event; `read` tells whether the one before was a read.
    fn go_on(&mut self, read: bool) {
        let now = now();
        self.wake(now);
        let asked = self.reading.ask_ahead(self.held, self.held_bytes);
        if !self.queue.is_empty() && (asked || read && self.reading.is_behind(self.held, self.held_bytes)) {
            // The server works while handlers run: what it has answered is taken in first, and the next read is written.
            self.again = true;
        } else {
            self.start_ready();
        }
        self.sweep(now);
        self.beat(now);
        self.reading.top_up(self.held, self.held_bytes, self.queue.is_empty());
    }

    /// Leaves for probes how it is, and for who goes on after it how far it is.
    fn beat(&mut self, now: Instant) {
        self.stream.pulse.turn(now, self.held, std::mem::take(&mut self.succeeded));
        if self.ready_told {
            self.stream.pulse.moved(self.order.position());
        }
    }

    async fn next(&mut self, running: bool) -> Happened<W> {
        let due = self.due();
        if let Some(due) = due {
            self.timer.as_mut().reset(due.into());
        }
        let shutdown = self.shutdown.clone();
        let stopping = shutdown.stopping();
        tokio::pin!(stopping);
        poll_fn(|cx| {
            if running && stopping.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Happened::Stop);
            }
            self.poll(cx, running, due.is_some())
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>, running: bool, timed: bool) -> Poll<Happened<W>> {
        if let Poll::Ready(ended) = self.jobs.poll(cx) {
            return Poll::Ready(Happened::Ended(ended));
        }
        if !running {
            return Poll::Pending;
        }
        if timed && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Happened::Timer);
        }
        if self.starved
            && let Poll::Ready(Some(permit)) = self.permit_wanted.poll_acquire(cx)
        {
            return Poll::Ready(Happened::Permit(permit));
        }
        match self.reading.poll(cx, &mut self.batch, (self.held, self.held_bytes)) {
            Poll::Ready(progress) => Poll::Ready(Happened::Read(progress)),
            Poll::Pending if self.again => Poll::Ready(Happened::Timer),
            Poll::Pending => Poll::Pending,
        }
    }

    fn take_in(&mut self, event: Happened<W>) {
        match event {
            Happened::Ended(ended) => {
                self.inline.polled(ended.longest_poll);
                self.settle_all(ended.members, ended.outcomes);
            }
            Happened::Permit(permit) => {
                self.spare = Some(permit);
                self.starved = false;
            }
            Happened::Read(Progress::Opened(cursor)) => {
                self.order.restart(cursor);
                if !std::mem::replace(&mut self.ready_told, true) {
                    self.stream.tell(&Event::Ready);
                }
            }
            Happened::Read(Progress::Moved(cursor)) => self.order.restart(cursor),
            Happened::Read(Progress::Entries) => self.take_up_read(),
            Happened::Read(Progress::Failed(_) | Progress::Missing) | Happened::Timer | Happened::Stop => {}
        }
    }

    /// Entries that a read has brought.
    fn take_up_read(&mut self) {
        let mut bytes = 0;
        let mut batch = std::mem::take(&mut self.batch);
        let received = batch.entries.len();
        for entry in batch.entries.drain(..) {
            bytes += entry.size();
            let number = self.order.push(entry.id());
            let delivery = Delivery::new(entry, 1, Arc::clone(&self.stream.source));
            self.enqueue(Held { number, delivery });
        }
        self.batch = batch;
        self.held += received;
        self.held_bytes += bytes;
        self.reading.received(received, bytes);
        count(&self.stream.counters.received, received as u64);
    }

    /// When the loop has to look again although nothing happened.
    fn due(&self) -> Option<Instant> {
        let wake = self.waiting.keys().next().map(|(at, _)| *at);
        let sweep = (self.held > 0).then(|| self.swept + LONG);
        [wake, sweep].into_iter().flatten().min()
    }

    /// Retries whose time has come go before what was not started yet.
    fn wake(&mut self, now: Instant) {
        let later = self.waiting.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.waiting, later);
        let in_place = self.stream.config.retry_order == RetryOrder::InPlace;
        for ((_, number), delivery) in due.into_iter().rev() {
            if in_place || self.stream.config.lane_of.is_none() {
                // It has kept its lane, if there are any.
                self.queue.push_front(Held { number, delivery });
            } else {
                self.enqueue(Held { number, delivery });
            }
        }
    }

    /// Queues an entry, behind others of its key if it has one.
    fn enqueue(&mut self, held: Held) {
        let key = self.stream.config.lane_of.as_ref().and_then(|lane_of| crate::lane::lane(lane_of, &held.delivery));
        let Some(key) = key else { return self.queue.push_back(held) };
        self.lane_keys.insert(held.number, key);
        if let Some(held) = self.lanes.push(key, held) {
            self.queue.push_back(held);
        }
    }

    /// The next of its key may start.
    fn leave_lane(&mut self, number: u64) {
        if self.lane_keys.is_empty() {
            return;
        }
        if let Some(key) = self.lane_keys.remove(&number)
            && let Some(next) = self.lanes.finish(&key)
        {
            self.queue.push_back(next);
        }
    }

    fn settle_all(&mut self, members: Members<u64>, outcomes: Outcomes) {
        if let Outcomes::All(Outcome::Done) = outcomes {
            for (number, delivery) in members.slots.into_iter().zip(&members.deliveries) {
                self.done(number, delivery);
            }
            return;
        }
        let (all, mut each) = match outcomes {
            Outcomes::All(outcome) => (Some(outcome), Vec::new().into_iter()),
            Outcomes::Each(outcomes) => (None, outcomes.into_iter()),
        };
        for (number, delivery) in members.slots.into_iter().zip(members.deliveries) {
            let outcome = all.clone().or_else(|| each.next()).unwrap_or_else(too_few);
            self.settle(number, delivery, &outcome);
        }
    }

    /// Its handler returned well.
    fn done(&mut self, number: u64, delivery: &Delivery) {
        count(&self.stream.counters.handled, 1);
        self.succeeded = true;
        self.stream.tell(&Event::Handled { id: delivery.id(), attempt: delivery.attempt() });
        self.finish(number, delivery);
    }

    fn settle(&mut self, number: u64, delivery: Delivery, outcome: &Outcome) {
        if *outcome == Outcome::Done {
            return self.done(number, &delivery);
        }
        let (id, attempt) = (delivery.id(), delivery.attempt());
        if let Outcome::Stop { acknowledge } = outcome {
            self.stopped_by_handler = true;
            self.shutdown.stop_gently();
            if !acknowledge {
                // Whoever goes on from the position gets it: that does not pass it.
                self.unstarted += 1;
                return;
            }
        }
        match self.stream.config.retry.verdict(attempt, outcome, fastrand::f64()) {
            Verdict::Acknowledge => self.done(number, &delivery),
            Verdict::RetryAfter(after) => {
                count(&self.stream.counters.retried, 1);
                self.stream.tell(&Event::Retrying { id, attempt, after });
                if self.stream.config.retry_order == RetryOrder::Later {
                    self.leave_lane(number);
                }
                let source = Arc::clone(&delivery.source);
                let again = Delivery::new(delivery.entry, attempt.saturating_add(1), source);
                self.waiting.insert((now() + after, number), again);
            }
            Verdict::DeadLetter(reason) => self.give_up(number, &delivery, &reason),
            // Not handled by us, but perhaps by whoever goes on from the position, which does not pass it.
            _ if self.shutdown.is_stopping() => self.unstarted += 1,
            _ => {
                let reason = "released, and an ephemeral consumer has nobody to give it back to";
                self.give_up(number, &delivery, &DeadReason::Rejected(reason.to_owned()));
            }
        }
    }

    fn give_up(&mut self, number: u64, delivery: &Delivery, reason: &DeadReason) {
        count(&self.stream.counters.given_up, 1);
        self.stream.tell(&Event::GivenUp { id: delivery.id(), reason });
        self.finish(number, delivery);
    }

    fn finish(&mut self, number: u64, delivery: &Delivery) {
        self.held = self.held.saturating_sub(1);
        self.held_bytes = self.held_bytes.saturating_sub(delivery.entry().size());
        self.order.finish(number);
        self.leave_lane(number);
    }

    /// Copies what has been held for long out of the read buffers that it shares with whole batches.
    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) < LONG {
            return;
        }
        self.swept = now;
        self.jobs.detach_older_than(now, LONG);
        self.waiting.values_mut().for_each(|delivery| delivery.entry.detach());
    }

    /// Reads nothing more, starts nothing more, and lets what runs finish within the grace period.
    async fn drain(mut self) -> EphemeralReport {
        self.unstarted += (self.queue.len() + self.waiting.len() + self.lanes.held()) as u64;
        self.queue.clear();
        // Its lane goes with it, or the end of what runs would bring the next one up.
        self.lanes = Lanes::new();
        self.waiting.clear();
        let shutdown = self.shutdown.clone();
        let end = tokio::time::sleep(self.stream.config.grace);
        tokio::pin!(end);
        let mut aborted = 0;
        while self.jobs.running() > 0 {
            tokio::select! {
                biased;
                () = shutdown.immediate() => {}
                () = &mut end => {}
                event = self.next(false) => {
                    self.take_in(event);
                    self.beat(now());
                    continue;
                }
            }
            // What has returned by now is settled by its outcome.
            while let Some(ended) = self.jobs.ended_now() {
                self.take_in(Happened::Ended(ended));
            }
            for members in self.jobs.abort_all() {
                aborted += 1;
                members.deliveries.iter().filter_map(Delivery::token).for_each(CancellationToken::cancel);
            }
        }
        self.beat(now());
        let unstarted = self.unstarted + self.waiting.len() as u64;
        // Left out where the start was not resolved: `0-0` would stand for the whole stream.
        let positions = self.stream.pulse.position().map(|at| (self.stream.source.stream.clone(), at));
        EphemeralReport { positions: positions.into_iter().collect(), unstarted, aborted, ..EphemeralReport::default() }
    }
}
