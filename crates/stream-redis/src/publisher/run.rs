//! The task of a [`Publisher`](super::Publisher): connects, writes batches, waits when the server is away.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stream_core::{Backoff, BackoffPolicy, Entry, EntryId, StreamKey};
use tokio::sync::{Notify, Semaphore, TryAcquireError, oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::form::{Form, Marker, REMEMBERED};
use super::queue::{Queue, Settled};
use super::{PublishError, Receipt, Unconfirmed};
use crate::appender::Reply;
use crate::command::Trim;
use crate::{Appender, Client, Error, ErrorKind, NodeDoubt, Recovery};

/// Rejections in a row, after a session that was fine, that are taken for a change of passwords in progress.
const ROTATION_ATTEMPTS: u32 = 3;

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) key: StreamKey,
    pub(super) trim: Option<Trim>,
    pub(super) batch: usize,
    pub(super) linger: Duration,
    pub(super) backoff: BackoffPolicy,
    pub(super) idempotent: bool,
}

/// Who waits for an entry.
type Waiter = oneshot::Sender<Result<EntryId, PublishError>>;

/// What the publisher and its task have in common.
pub(super) struct Shared {
    state: Mutex<State>,
    /// A place in the buffer for each entry that is not settled.
    room: Semaphore,
    /// There is something to write, or a reason not to wait for more.
    wake: Notify,
    /// [`Queue::floor`], for those who wait for it.
    floor: watch::Sender<u64>,
}

struct State {
    queue: Queue<Waiter>,
    closed: bool,
    /// Entries with smaller numbers do not linger.
    urgent: u64,
    /// When a batch of so many entries is complete, the task is to be woken.
    wanted: Option<usize>,
}

impl Shared {
    pub(super) fn new(buffer: usize) -> Self {
        Self {
            state: Mutex::new(State { queue: Queue::new(), closed: false, urgent: 0, wanted: None }),
            room: Semaphore::new(buffer),
            wake: Notify::new(),
            floor: watch::Sender::new(0),
        }
    }

    /// Waits for room and takes the entry in.
    pub(super) async fn accept(
        self: Arc<Self>,
        entry: Entry,
        marker: Option<Box<Marker>>,
    ) -> Result<Receipt, PublishError> {
        // Whoever publishes without end lets others run, also while there is room.
        tokio::task::coop::consume_budget().await;
        let place = match self.room.try_acquire() {
            Err(TryAcquireError::NoPermits) => self.room.acquire().await.map_err(|_| PublishError::Closed)?,
            place => place.map_err(|_| PublishError::Closed)?,
        };
        // It is given back when the entry is settled, with those that are settled together with it.
        place.forget();
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.closed {
            return Err(PublishError::Closed);
        }
        state.queue.push(entry, marker, sender);
        let wake = state.wanted.is_some_and(|wanted| state.queue.is_complete(wanted));
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(Receipt(receiver))
    }

    pub(super) async fn flush(&self) {
        let target = {
            let mut state = self.state();
            state.urgent = state.queue.next();
            state.urgent
        };
        self.wake.notify_one();
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.floor.subscribe().wait_for(|floor| *floor >= target).await;
    }

    pub(super) fn unconfirmed(&self) -> usize {
        self.state().queue.len()
    }

    /// Accepts no more.
    pub(super) fn refuse(&self) {
        self.state().closed = true;
        self.room.close();
    }

    /// Takes out what is left and tells those who wait for it.
    pub(super) fn drain(&self) -> Vec<Unconfirmed> {
        let left = self.state().queue.drain();
        self.settled();
        left.into_iter()
            .map(|(sender, unconfirmed)| {
                let _ = sender.send(Err(PublishError::Closed));
                unconfirmed
            })
            .collect()
    }

    /// Fails everything that is accepted, for a reason that waiting does not change.
    fn fail_all(&self, error: Error) {
        let left = self.state().queue.drain();
        self.settled();
        tracing::error!(%error, entries = left.len(), "entries cannot be published");
        let error = Arc::new(error);
        self.room.add_permits(left.len());
        for (sender, unconfirmed) in left {
            let _ = sender.send(Err(PublishError::failed(error.clone(), unconfirmed.maybe_written)));
        }
    }

    fn settled(&self) {
        let now = self.state().queue.floor();
        // Two tasks may come here at a time, and the later one is not to be undone by the earlier.
        self.floor.send_if_modified(|floor| std::mem::replace(floor, now.max(*floor)) < now);
    }

    /// Waits until a batch is complete, has lingered, or is wanted now. Nothing is on its way meanwhile.
    async fn ready(&self, batch: usize, linger: Duration) {
        let waits = |wanted: usize| {
            let mut state = self.state();
            state.wanted = Some(wanted);
            !state.queue.is_complete(wanted) && state.queue.floor() >= state.urgent
        };
        while waits(1) {
            self.wake.notified().await;
        }
        let deadline = Instant::now() + linger;
        while !linger.is_zero() && waits(batch) {
            if timeout_at(deadline, self.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Puts out as many batches as may be on their way. Returns whether another may be once it is complete.
    fn write(&self, link: &mut Link, batch: usize) -> bool {
        let most = if link.idempotent { batch.min(REMEMBERED) } else { batch };
        let mut state = self.state();
        let state = &mut *state;
        state.wanted = None;
        while state.queue.batches() < link.appender.depth() {
            if !state.queue.may_take(most, &link.form) {
                state.wanted = Some(most).filter(|most| !state.queue.is_complete(*most));
                break;
            }
            let count = state.queue.take(most, link.loaded, &link.form, &mut link.appender.out());
            link.appender.sent(count);
        }
        state.wanted.is_some()
    }

    /// Settles what the next replies are to and tells those who wait for it. `again` is the first error for which entries
    /// stay.
    fn settle(&self, key: &StreamKey, replies: &mut Vec<Reply>, again: &mut Option<Error>) -> Landed {
        let Settled { told, landed, loaded, forgotten } = self.state().queue.settle(key, replies.drain(..), again);
        self.room.add_permits(told.len());
        self.settled();
        let mut ok = false;
        for (sender, told) in told {
            ok |= told.is_ok();
            if let Err(Err(error)) = sender.send(told)
                && !matches!(error, PublishError::Duplicate)
            {
                tracing::error!(error = &error as &dyn std::error::Error, "an entry failed and nobody waits for it");
            }
        }
        Landed { ok, batch: landed, loaded, forgotten }
    }

    /// No invariant spans a panic while the lock is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("unconfirmed", &self.unconfirmed()).finish_non_exhaustive()
    }
}

/// What came of some replies.
struct Landed {
    /// Whether an entry was confirmed.
    ok: bool,
    /// Whether all of a batch was answered.
    batch: bool,
    /// Whether the script was loaded,
    loaded: bool,
    /// and whether the server does not know it.
    forgotten: bool,
}

/// A connection, and what is known of its server.
struct Link {
    appender: Appender,
    form: Form,
    /// Whether the server recognises what it was given before.
    idempotent: bool,
    /// Whether the script that appends once was loaded.
    loaded: bool,
}

/// How it has gone so far.
struct Course {
    backoff: Backoff,
    doubt: NodeDoubt,
    /// Whether there was a session that worked,
    known: bool,
    /// and how often the server has refused the password since.
    rejections: u32,
}

pub(super) async fn run(shared: Arc<Shared>, client: Client, settings: Settings) {
    let producer = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let backoff = Backoff::new(settings.backoff);
    let mut course = Course { backoff, doubt: NodeDoubt::default(), known: false, rejections: 0 };
    let mut link: Option<Link> = None;
    loop {
        shared.ready(settings.batch, settings.linger).await;
        link.take_if(|link| link.appender.is_over());
        let open = match &mut link {
            Some(link) => link,
            none => match connect(&client, &settings, &producer).await {
                Ok(new) => none.insert(new),
                Err(error) if is_final(&error, course.known, course.rejections) => {
                    shared.fail_all(error);
                    // What is accepted next is not a reason to knock again at once.
                    sleep(course.backoff.next(fastrand::f64())).await;
                    continue;
                }
                Err(error) => {
                    course.rejections += u32::from(error.kind() == ErrorKind::Authentication);
                    wait(&mut course.backoff, &error).await;
                    continue;
                }
            },
        };
        let mut again = None;
        match exchange(&shared, open, &settings, &mut course, &mut again).await {
            Ok(()) => {
                let Some(error) = again else { continue };
                if course.doubt.recovery(&error) == Recovery::Reconnect {
                    link = None;
                }
                wait(&mut course.backoff, &error).await;
            }
            Err(error) => {
                shared.state().queue.lose();
                link = None;
                wait(&mut course.backoff, &error).await;
            }
        }
    }
}

/// Writes what there is and settles what comes back, until nothing is on its way. Once there is something to write
/// `again`, nothing more is written: it goes first.
async fn exchange(
    shared: &Shared,
    link: &mut Link,
    settings: &Settings,
    course: &mut Course,
    again: &mut Option<Error>,
) -> Result<(), Error> {
    let mut replies = Vec::new();
    loop {
        let more = again.is_none() && shared.write(link, settings.batch);
        if shared.state().queue.batches() == 0 {
            return Ok(());
        }
        tokio::select! {
            biased;
            landed = poll_fn(|cx| link.appender.poll_replies(cx, &mut replies)) => landed?,
            () = shared.wake.notified(), if more => continue,
        }
        let landed = shared.settle(&settings.key, &mut replies, again);
        link.loaded = (link.loaded || landed.loaded) && !landed.forgotten;
        course.known |= landed.ok;
        if landed.batch && again.is_none() {
            course.backoff.reset();
            course.doubt.reset();
            course.rejections = 0;
        }
    }
}

async fn connect(client: &Client, settings: &Settings, producer: &str) -> Result<Link, Error> {
    let mut appender = client.connector().open_appender(&settings.key).await?;
    let idempotent = settings.idempotent && appender.recognises(&settings.key).await?;
    let form = Form::new(&settings.key, settings.trim, producer, idempotent);
    Ok(Link { appender, form, idempotent, loaded: false })
}

/// Whether trying again to connect is of no use. `known` tells that there was a session that worked, `rejections` how often
/// the server has refused the password since.
fn is_final(error: &Error, known: bool, rejections: u32) -> bool {
    let rotating = known && error.kind() == ErrorKind::Authentication && rejections < ROTATION_ATTEMPTS;
    !rotating && !matches!(error.recovery(), Recovery::Retry | Recovery::Reconnect)
}

async fn wait(backoff: &mut Backoff, error: &Error) {
    let delay = backoff.next(fastrand::f64());
    // One line for an outage, the rest for those who want to see it.
    if backoff.attempts() == 1 {
        tracing::warn!(%error, ?delay, "publishing is interrupted");
    } else {
        tracing::debug!(%error, ?delay, attempts = backoff.attempts(), "publishing is still interrupted");
    }
    sleep(delay).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_after_a_good_session_is_given_some_time() {
        let rejected = Error::new(ErrorKind::Authentication, "x");
        assert!(is_final(&rejected, false, 0));
        assert!(!is_final(&rejected, true, ROTATION_ATTEMPTS - 1));
        assert!(is_final(&rejected, true, ROTATION_ATTEMPTS));
        assert!(!is_final(&Error::new(ErrorKind::Io, "x"), false, 1000));
        assert!(is_final(&Error::new(ErrorKind::Tls, "x"), true, 0));
    }
}
