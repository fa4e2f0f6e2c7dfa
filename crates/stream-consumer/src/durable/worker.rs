//! [`Worker`]: the run loop of one stream. It waits for one event at a time and then starts, settles and asks for what
//! there is to start, settle and ask for.
//!
//! The loop awaits and carries out; what is decided is decided by the pure types it holds. Nothing here is awaited that may
//! not come: every wait stands beside the timer and the shutdown switch.

use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use stream_core::{Certainty, EntryId, Inline, Lanes, Slot};
use stream_redis::ReadBatch;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Sleep;
use tokio_util::sync::PollSemaphore;

use super::config::RetryOrder;
use super::flight::{Flight, Landed};
use super::flights::Flights;
use super::held::{Fleet, InLane, Ready, Recount, TakenOver, Waiting};
use super::job::{Ended, Jobs};
use super::reading::{Progress, Reading};
use super::stream::{Stream, now};
use super::suspects::Alone;
use crate::error::RunError;
use crate::in_place::InPlace;
use crate::observe::Event;
use crate::spare;
use crate::work::Work;

enum Happened<W: Work> {
    Ended(Ended<W>),
    Landed(Box<Landed>),
    TakenOver(TakenOver),
    /// Leases were lost.
    Lost,
    Read(Progress),
    Permit(OwnedSemaphorePermit),
    Timer,
    Stop,
}

pub(crate) struct Worker<W: Work> {
    pub(crate) stream: Arc<Stream>,
    pub(crate) work: Arc<W>,
    pub(crate) fleet: Fleet,
    pub(crate) reading: Reading,
    pub(crate) batch: ReadBatch,
    pub(crate) queue: VecDeque<Ready>,
    /// Entries of one key wait here for the one before them; with the key, to free the lane by.
    pub(crate) lanes: Lanes<InLane>,
    pub(crate) lane_keys: HashMap<Slot, u64>,
    pub(crate) line: super::first::Line,
    pub(crate) recounts: VecDeque<Recount>,
    pub(crate) recounting: bool,
    /// The one whose body was fetched although the bytes did not allow it, so that it is not kept waiting by a backlog.
    pub(crate) oversize: Option<Slot>,
    /// Whether counts wait for memory.
    pub(crate) full: bool,
    /// How often in a row counts could not be set.
    pub(crate) takes_failed: u32,
    /// Until then none are tried, since the last could not be.
    pub(crate) takes_not_before: Option<Instant>,
    pub(crate) suspects: VecDeque<Recount>,
    pub(crate) suspect_under_way: bool,
    /// The suspect that nothing may run beside.
    pub(crate) alone: Option<Alone>,
    pub(crate) waiting: BinaryHeap<Waiting>,
    pub(crate) sequence: u64,
    pub(crate) jobs: Jobs<W>,
    pub(crate) inline: Inline,
    /// Which leases are certain at the moment.
    pub(crate) certainty: Certainty,
    pub(crate) in_place: InPlace<W>,
    permits: PollSemaphore,
    /// Whether this loop stands in the line for a place.
    in_line: bool,
    pub(crate) spare: Option<OwnedSemaphorePermit>,
    pub(crate) starved: bool,
    /// Whether there is more to start although nothing new has happened.
    pub(crate) again: bool,
    pub(crate) acks: Vec<(Slot, EntryId)>,
    pub(crate) acks_since: Option<Instant>,
    pub(crate) acks_in_flight: usize,
    pub(crate) acks_settling: usize,
    /// How many of those the other streams know of.
    pub(crate) settling_told: usize,
    pub(crate) acks_not_before: Option<Instant>,
    /// How often in a row the server refused them.
    pub(crate) acks_refused: u32,
    /// Those that were sent and got no answer, until they get one.
    pub(crate) acks_unanswered: HashSet<EntryId>,
    pub(crate) flush: bool,
    flights: Flights,
    /// Whether there are commands that were not polled yet, and so not sent.
    unsent: bool,
    /// Whether a command was sent that the connection's task has not seen yet.
    sent: bool,
    /// What has happened, and is looked at in the next turn.
    happened: Option<Happened<W>>,
    pub(crate) held_bytes: usize,
    /// Whether a handler has returned well since the last turn.
    pub(crate) succeeded: bool,
    /// Whether what is queued has to run even after a stop: it was acknowledged beforehand, or it is lost.
    pub(crate) owes: bool,
    /// Entries on their way back to the group.
    pub(crate) handing_back: u64,
    /// Those that were given back in the end.
    pub(crate) given_back: HashSet<EntryId>,
    taken_over: mpsc::Receiver<TakenOver>,
    pub(crate) last_sweep: Instant,
    timer: Pin<Box<Sleep>>,
    ready_told: bool,
    /// A handler has asked for the stop that is about to be noticed: nothing more is started until then.
    pub(crate) stopped_by_handler: bool,
    pub(crate) report: super::DrainReport,
}

impl<W: Work> Worker<W> {
    pub(crate) fn new(stream: &Arc<Stream>, work: Arc<W>, fleet: Fleet, taken_over: mpsc::Receiver<TakenOver>) -> Self {
        Self {
            reading: Reading::new(stream, work.batch()),
            stream: Arc::clone(stream),
            work,
            permits: PollSemaphore::new(Arc::clone(&fleet.permits)),
            fleet,
            batch: ReadBatch::default(),
            queue: VecDeque::new(),
            lanes: Lanes::new(),
            lane_keys: HashMap::new(),
            line: super::first::Line::default(),
            recounts: VecDeque::new(),
            recounting: false,
            oversize: None,
            full: false,
            takes_failed: 0,
            takes_not_before: None,
            suspects: VecDeque::new(),
            suspect_under_way: false,
            alone: None,
            waiting: BinaryHeap::new(),
            sequence: 0,
            jobs: Jobs::new(),
            inline: Inline::new(),
            certainty: stream.config.lease.certainty(now()),
            in_place: InPlace::new(),
            in_line: false,
            spare: None,
            starved: false,
            again: false,
            acks: Vec::new(),
            acks_since: None,
            acks_in_flight: 0,
            acks_settling: 0,
            settling_told: 0,
            acks_not_before: None,
            acks_refused: 0,
            acks_unanswered: HashSet::new(),
            flush: false,
            flights: Flights::new(),
            unsent: false,
            sent: false,
            happened: None,
            held_bytes: 0,
            succeeded: false,
            owes: stream.config.acknowledge.is_beforehand(),
            handing_back: 0,
            given_back: HashSet::new(),
            taken_over,
            last_sweep: now(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            ready_told: false,
            stopped_by_handler: false,
            report: super::DrainReport::default(),
        }
    }

    /// Runs until a stop is asked for or it cannot go on.
    pub(crate) async fn run(mut self) -> Result<super::DrainReport, RunError> {
        let mut end = None;
        while end.is_none() {
            match self.next(true).await {
                Happened::Stop => break,
                Happened::Read(Progress::Failed(source)) => {
                    end = Some(RunError::Stream { stream: self.stream.owner.key.clone(), source });
                }
                Happened::Read(Progress::GroupLost) => {
                    end = Some(RunError::GroupLost { stream: self.stream.owner.key.clone() });
                }
                event => self.take_in(event),
            }
            self.go_on();
        }
        // Whatever the end was: what is finished is acknowledged and what is not is handed back.
        self.drain().await;
        match end {
            None => Ok(self.report),
            Some(error) => Err(error),
        }
    }

    /// Lets everything happen that can happen without another event.
    fn go_on(&mut self) {
        let now = now();
        self.stream.begin_turn(now);
        self.wake(now);
        self.let_others_in(now);
        self.start_suspect();
        self.start_recounts();
        self.start_ready();
        self.leave_line();
        // Who cannot start what it has takes over no more.
        let in_line = if self.takes_failed > 0 { usize::MAX } else { self.recounts.len() + self.suspects.len() };
        self.stream.set_in_line(in_line);
        self.flush_if_due(now);
        // What was withheld is settled without a command that would come back.
        self.let_others_in(now);
        self.sweep(now);
        let held = self.beat(now);
        if self.may_read() {
            self.reading.top_up(held.saturating_sub(self.waiting.len() + self.acks_settling), self.held_bytes);
        }
        spare::give_back(&mut self.queue);
        self.stream.end_turn();
    }

    /// Has a command carried out; what it has answered comes as an event.
    pub(crate) fn send(&mut self, flight: Flight) {
        self.flights.push(flight);
        self.unsent = true;
    }

    /// Whether commands are under way.
    pub(crate) fn is_sending(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Whether something has happened that nobody has looked at yet.
    pub(crate) fn has_happened(&self) -> bool {
        self.happened.is_some()
    }

    /// Waits for no answer any more.
    pub(crate) fn give_up_answers(&mut self) {
        self.flights.clear();
    }

    /// Leaves for probes how it is; returns how many entries are held.
    fn beat(&mut self, now: Instant) -> usize {
        let held = self.stream.book().ledger.len();
        self.stream.pulse.turn(now, held, std::mem::take(&mut self.succeeded));
        held
    }

    /// Keeps no place that nothing is going to use: it would be kept from the other streams, and from a suspect that waits
    /// to be alone.
    fn leave_line(&mut self) {
        self.spare = None;
        self.starved &= !(self.queue.is_empty() && self.recounts.is_empty());
        if self.in_line && !self.starved {
            // A place may have been given to the line meanwhile, and nobody would take it up.
            self.permits = PollSemaphore::new(Arc::clone(&self.fleet.permits));
            self.in_line = false;
        }
    }

    /// Waits while draining: nothing is read, nothing new is started. `None` when an immediate stop is asked for.
    pub(crate) async fn settle_next(&mut self) {
        let event = self.next(false).await;
        self.take_in(event);
        let now = now();
        self.stream.begin_turn(now);
        self.wake(now);
        self.let_others_in(now);
        if self.owes {
            self.start_ready();
            self.leave_line();
        }
        self.flush_if_due(now);
        self.sweep(now);
        self.beat(now);
        self.stream.end_turn();
    }

    /// Entries that the steward has taken over and nobody has looked at yet.
    pub(crate) fn taken_over_now(&mut self) -> Option<TakenOver> {
        self.taken_over.try_recv().ok()
    }

    fn may_read(&mut self) -> bool {
        // Entries that wait take no memory, but they are held; so are those whose acknowledgement is awaited.
        self.may_settle_more() && self.waiting.len() < self.stream.config.waiting && !self.is_behind()
    }

    /// Whether the order of entries is kept.
    pub(crate) fn is_ordered(&self) -> bool {
        self.stream.config.lane_of.is_some() || self.stream.config.retry_order == RetryOrder::InPlace
    }

    /// Whether entries that were delivered before wait for their bodies: where order is kept, nothing is read past them.
    fn is_behind(&self) -> bool {
        self.is_ordered() && (self.recounting || !self.recounts.is_empty() || self.takes_not_before.is_some())
    }

    async fn next(&mut self, running: bool) -> Happened<W> {
        let due = self.due();
        if let Some(due) = due {
            self.timer.as_mut().reset(due.into());
        }
        let shutdown = self.fleet.shutdown.clone();
        let stopping = shutdown.stopping();
        tokio::pin!(stopping);
        poll_fn(|cx| {
            if running && stopping.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Happened::Stop);
            }
            if let Some(happened) = self.happened.take() {
                return Poll::Ready(happened);
            }
            let happened = self.poll(cx, running, due.is_some());
            if std::mem::take(&mut self.sent) && self.inline.allowed() && happened.is_ready() {
                // The connection's task was woken and is the next to run on this thread, and on no other. Handlers may be
                // polled in what comes now, and one that blocks would keep it, and every renewal of a lease with it, from
                // ever running.
                if let Poll::Ready(happened) = happened {
                    self.happened = Some(happened);
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            happened
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>, running: bool, timed: bool) -> Poll<Happened<W>> {
        if let Poll::Ready(ended) = self.jobs.poll(cx) {
            return Poll::Ready(Happened::Ended(ended));
        }
        self.sent |= self.unsent;
        if let Poll::Ready(landed) = self.flights.poll(cx) {
            return Poll::Ready(Happened::Landed(Box::new(landed)));
        }
        self.unsent = false;
        if self.stream.poll_lost(cx) {
            return Poll::Ready(Happened::Lost);
        }
        if timed && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Happened::Timer);
        }
        if let Poll::Ready(Some(entries)) = self.taken_over.poll_recv(cx) {
            return Poll::Ready(Happened::TakenOver(entries));
        }
        if !running && !self.owes {
            return Poll::Pending;
        }
        if self.starved {
            if let Poll::Ready(Some(permit)) = self.permits.poll_acquire(cx) {
                self.in_line = false;
                return Poll::Ready(Happened::Permit(permit));
            }
            self.in_line = true;
        }
        if !running {
            return if self.again { Poll::Ready(Happened::Timer) } else { Poll::Pending };
        }
        spare::borrow(&mut self.batch);
        let read = self.reading.poll(cx, &mut self.batch);
        spare::give_back(&mut self.batch);
        match read {
            Poll::Ready(progress) => Poll::Ready(Happened::Read(progress)),
            Poll::Pending if self.again => Poll::Ready(Happened::Timer),
            Poll::Pending => Poll::Pending,
        }
    }

    fn take_in(&mut self, event: Happened<W>) {
        match event {
            Happened::Ended(ended) => self.ended(ended),
            Happened::Landed(landed) => self.landed(*landed),
            Happened::TakenOver(entries) => self.take_over(entries),
            Happened::Lost => self.let_go_of_lost(),
            Happened::Permit(permit) => {
                self.spare = Some(permit);
                self.starved = false;
            }
            Happened::Read(Progress::Opened { undelivered }) => {
                if !self.ready_told {
                    self.ready_told = true;
                    self.stream.tell(&Event::Ready);
                }
                self.take_up_undelivered(undelivered);
                self.stream.set_cut(false);
            }
            Happened::Read(Progress::Entries { complete }) => {
                self.flush |= complete;
                self.take_up_read();
            }
            Happened::Read(Progress::Failed(_) | Progress::GroupLost) | Happened::Timer | Happened::Stop => {}
        }
    }

    /// When the loop has to look again although nothing happened.
    fn due(&self) -> Option<Instant> {
        // With as many commands under way as there may be, the next event is an answer and not a time: a time that has
        // passed already would make the loop spin.
        let may_flush = !self.acks.is_empty() && self.acks_in_flight < super::settle::MOST_IN_FLIGHT;
        let linger = self.acks_since.filter(|_| may_flush).map(|since| {
            let due = since + super::settle::LINGER;
            self.acks_not_before.map_or(due, |not_before| due.max(not_before))
        });
        let lease = self.stream.config.lease;
        let wake = self.waiting.peek().map(|waiting| waiting.at);
        let held = self.jobs.running() > 0 || !self.queue.is_empty() || self.lanes.held() > 0;
        let sweep = held.then(|| self.next_sweep());
        let alone = self.alone.as_ref().and_then(|alone| alone.due(lease.lease()));
        // Reads may be held up until then, also where what was to be counted is lost by now.
        [linger, wake, sweep, alone, self.takes_not_before].into_iter().flatten().min()
    }
}
