//! [`Jobs`]: the handlers that run, each a task of its own once it did not finish at its first poll.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use stream_core::{Outcome, Slot};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::AbortHandle;
use tracing::Span;

use crate::delivery::Delivery;
use crate::guard::guarded;
use crate::pace::now;
use crate::tasks::gated;
use crate::work::{Outcomes, Work};

/// Memory with the future of a handler, to be used again for another when it is empty.
pub(crate) type FutureBox<W> = Pin<Box<Option<<W as Work>::Future>>>;

/// The deliveries that one handler works on.
pub(crate) struct Members<S = Slot> {
    pub(crate) slots: SmallVec<[S; 1]>,
    pub(crate) deliveries: SmallVec<[Delivery; 1]>,
    /// When the lease of the oldest was certain, where there is one; else when it was started.
    pub(crate) since: Instant,
}

impl<S> Members<S> {
    /// Takes out those that could not be decoded, given by their places, each with why.
    pub(crate) fn without(self, undecodable: Vec<(usize, String)>) -> (Self, Vec<(S, Delivery, String)>) {
        if undecodable.is_empty() {
            return (self, Vec::new());
        }
        let Self { slots, deliveries, since } = self;
        let mut left = Self { slots: SmallVec::new(), deliveries: SmallVec::new(), since };
        let mut taken = Vec::with_capacity(undecodable.len());
        let mut undecodable = undecodable.into_iter().peekable();
        for (place, (slot, delivery)) in slots.into_iter().zip(deliveries).enumerate() {
            if let Some((_, error)) = undecodable.next_if(|(bad, _)| *bad == place) {
                taken.push((slot, delivery, error));
            } else {
                left.slots.push(slot);
                left.deliveries.push(delivery);
            }
        }
        (left, taken)
    }
}

/// A handler that ended.
pub(crate) struct Ended<W: Work, S = Slot> {
    pub(crate) members: Members<S>,
    pub(crate) outcomes: Outcomes,
    /// The longest time that one poll of it took.
    pub(crate) longest_poll: Duration,
    work: std::marker::PhantomData<fn(W)>,
}

struct Job<S> {
    members: Members<S>,
    abort: AbortHandle,
    detached: bool,
    /// Held while the handler runs: its own, and for a suspect those that keep others away.
    permits: SmallVec<[OwnedSemaphorePermit; 1]>,
}

/// Where a job is kept; a later job in the same place has another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    number: usize,
    generation: u32,
}

struct Done {
    place: Place,
    outcomes: Outcomes,
    longest_poll: Duration,
}

/// The handlers that run.
pub(crate) struct Jobs<W: Work, S = Slot> {
    /// With the generation of the job that is there, or of the next one.
    places: Vec<(u32, Option<Job<S>>)>,
    free: Vec<usize>,
    done: mpsc::UnboundedReceiver<Done>,
    tell: mpsc::UnboundedSender<Done>,
    work: std::marker::PhantomData<fn(W)>,
}

impl<W: Work, S> Jobs<W, S> {
    pub(crate) fn new() -> Self {
        let (tell, done) = mpsc::unbounded_channel();
        Self { places: Vec::new(), free: Vec::new(), done, tell, work: std::marker::PhantomData }
    }

    pub(crate) fn running(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Makes a task of a handler.
    pub(crate) fn spawn(
        &mut self,
        members: Members<S>,
        future: FutureBox<W>,
        limit: Option<Duration>,
        span: Span,
        permits: SmallVec<[OwnedSemaphorePermit; 1]>,
    ) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() - 1
        });
        let place = Place { number, generation: self.places[number].0 };
        let tell = self.tell.clone();
        let task = tokio::spawn(gated(async move {
            let (outcomes, longest_poll) = run(future, limit, &span).await;
            // The worker may be gone; then nobody waits for the outcome and the entry stays pending.
            let _ = tell.send(Done { place, outcomes, longest_poll });
        }));
        let abort = task.abort_handle();
        self.places[number].1 = Some(Job { members, abort, detached: false, permits });
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended<W, S>> {
        loop {
            let Poll::Ready(Some(done)) = self.done.poll_recv(cx) else { return Poll::Pending };
            if let Some(ended) = self.end(done) {
                return Poll::Ready(ended);
            }
        }
    }

    /// A handler that has returned already and that nobody has looked at yet.
    pub(crate) fn ended_now(&mut self) -> Option<Ended<W, S>> {
        loop {
            let done = self.done.try_recv().ok()?;
            if let Some(ended) = self.end(done) {
                return Some(ended);
            }
        }
    }

    /// `None` for a job that was aborted after it had ended, whatever is in its place by now.
    fn end(&mut self, done: Done) -> Option<Ended<W, S>> {
        let Done { place, outcomes, longest_poll } = done;
        let members = self.remove(place)?;
        Some(Ended { members, outcomes, longest_poll, work: std::marker::PhantomData })
    }

    /// Aborts whatever runs and gives its deliveries back.
    pub(crate) fn abort_all(&mut self) -> Vec<Members<S>> {
        let at = |number: usize, places: &[(u32, _)]| Place { number, generation: places[number].0 };
        (0..self.places.len()).filter_map(|number| self.remove(at(number, &self.places))).collect()
    }

    /// Copies the entries of handlers that have run for long out of the buffers that they share.
    pub(crate) fn detach_older_than(&mut self, now: Instant, age: Duration) {
        for job in self.places.iter_mut().filter_map(|(_, job)| job.as_mut()) {
            if !job.detached && now.saturating_duration_since(job.members.since) >= age {
                job.detached = true;
                job.members.deliveries.iter_mut().for_each(|delivery| delivery.entry.detach());
            }
        }
    }

    /// Gives back all but the first place of handlers that have run for longer than `age`.
    pub(crate) fn keep_one_place(&mut self, now: Instant, age: Duration) {
        for job in self.places.iter_mut().filter_map(|(_, job)| job.as_mut()) {
            if job.permits.len() > 1 && now.saturating_duration_since(job.members.since) >= age {
                job.permits.truncate(1);
            }
        }
    }

    fn remove(&mut self, Place { number, generation }: Place) -> Option<Members<S>> {
        let place = self.places.get_mut(number).filter(|place| place.0 == generation)?;
        let job = place.1.take()?;
        place.0 = generation.wrapping_add(1);
        job.abort.abort();
        self.free.push(number);
        Some(job.members)
    }
}

impl<W: Work, S> Drop for Jobs<W, S> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

/// Polls a handler where it is started; what is returned as an error goes on.
pub(crate) fn poll_in_place<F: Future<Output = Outcomes>>(
    mut future: Pin<Box<Option<F>>>,
    span: &Span,
) -> Result<Outcomes, Pin<Box<Option<F>>>> {
    let Some(polled) = future.as_mut().as_pin_mut() else { return Err(future) };
    match poll_once(polled, &mut Context::from_waker(Waker::noop()), span) {
        Poll::Ready(outcomes) => Ok(dropped(future, outcomes)),
        Poll::Pending => Err(future),
    }
}

/// One poll of a handler, with its panic caught.
pub(crate) fn poll_once<F: Future<Output = Outcomes>>(
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
    span: &Span,
) -> Poll<Outcomes> {
    let poll = || guarded(|| future.poll(cx)).unwrap_or_else(|panic| Poll::Ready(Outcomes::All(panicked(&panic))));
    if span.is_disabled() { poll() } else { span.in_scope(poll) }
}

/// The outcome of a handler that panicked.
pub(crate) fn panicked(panic: &str) -> Outcome {
    Outcome::failed(format_args!("the handler panicked: {panic}"))
}

/// The outcome of a handler that ran into its limit.
pub(crate) fn too_long(limit: Duration) -> Outcome {
    Outcome::failed(format_args!("the handler took longer than {limit:?}"))
}

/// The outcome once the handler is dropped, whose destructor may panic.
fn dropped<F>(future: Pin<Box<F>>, outcomes: Outcomes) -> Outcomes {
    match guarded(|| drop(future)) {
        Ok(()) => outcomes,
        Err(panic) => Outcomes::All(panicked(&panic)),
    }
}

async fn run<F: Future<Output = Outcomes>>(
    mut future: Pin<Box<Option<F>>>,
    limit: Option<Duration>,
    span: &Span,
) -> (Outcomes, Duration) {
    let mut longest = Duration::ZERO;
    let polls = poll_fn(|cx| {
        let begin = now();
        let poll = future.as_mut().as_pin_mut().map_or(Poll::Pending, |future| poll_once(future, cx, span));
        longest = longest.max(now().saturating_duration_since(begin));
        poll
    });
    let outcomes = match limit {
        None => polls.await,
        Some(limit) => match tokio::time::timeout(limit, polls).await {
            Ok(outcomes) => outcomes,
            Err(_) => Outcomes::All(too_long(limit)),
        },
    };
    // Dropped here, inside of the task, so that a panic of a destructor cannot reach the worker.
    (dropped(future, outcomes), longest)
}

/// The span that a handler runs in.
pub(crate) fn span_of(delivery: &Delivery) -> Span {
    tracing::info_span!(
        "handle",
        stream = %delivery.source.stream,
        group = delivery.source.group.as_ref().map(tracing::field::display),
        consumer = %delivery.source.consumer,
        entry = %delivery.id(),
        attempt = delivery.attempt(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;
    use crate::work::Begun;

    struct Waits;

    impl Work for Waits {
        type Future = Pin<Box<dyn Future<Output = Outcomes> + Send>>;

        fn batch(&self) -> usize {
            1
        }

        fn begin(&self, _: &[Delivery]) -> Begun<Self::Future> {
            Begun { future: None, undecodable: Vec::new() }
        }
    }

    fn spawn(jobs: &mut Jobs<Waits, u8>, name: u8, gate: &Arc<Notify>) {
        let members = Members { slots: smallvec::smallvec![name], deliveries: SmallVec::new(), since: now() };
        let gate = Arc::clone(gate);
        let future: <Waits as Work>::Future = Box::pin(async move {
            gate.notified().await;
            Outcomes::All(Outcome::Done)
        });
        jobs.spawn(members, Box::pin(Some(future)), None, Span::none(), SmallVec::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_was_aborted_as_it_ended_does_not_end_the_next_one_in_its_place() {
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut jobs = Jobs::new();
        spawn(&mut jobs, 1, &first);
        first.notify_one();
        // It has told its end, and nobody has looked.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(jobs.abort_all().iter().map(|members| members.slots[0]).collect::<Vec<_>>(), [1]);
        spawn(&mut jobs, 2, &second);
        assert!(jobs.ended_now().is_none(), "the second one runs");
        assert_eq!(jobs.running(), 1);
        second.notify_one();
        let ended = poll_fn(|cx| jobs.poll(cx)).await;
        assert_eq!((ended.members.slots[0], jobs.running()), (2, 0));
    }
}
