//! The task of a [`Publisher`](super::Publisher): connects, writes batches, waits when the server is away.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stream_core::{Backoff, BackoffPolicy, Entry, EntryId, StreamKey};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::queue::{Form, Marker, Queue};
use super::{PublishError, Receipt, Unconfirmed};
use crate::command::{Script, Trim};
use crate::{Capabilities, Capability, Client, Connection, Error, ErrorKind, NodeDoubt, Recovery};

/// What a server remembers of one producer by default. A batch within that is recognised as a whole.
const REMEMBERED: usize = 100;
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

/// Who waits for an entry, and its place in the buffer.
type Waiter = (oneshot::Sender<Result<EntryId, PublishError>>, OwnedSemaphorePermit);

/// What the publisher and its task have in common.
pub(super) struct Shared {
    state: Mutex<State>,
    room: Arc<Semaphore>,
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
}

impl Shared {
    pub(super) fn new(buffer: usize) -> Self {
        Self {
            state: Mutex::new(State { queue: Queue::new(), closed: false, urgent: 0 }),
            room: Arc::new(Semaphore::new(buffer)),
            wake: Notify::new(),
            floor: watch::Sender::new(0),
        }
    }

    /// Waits for room and takes the entry in.
    pub(super) async fn accept(self: Arc<Self>, entry: Entry, marker: Option<Marker>) -> Result<Receipt, PublishError> {
        let permit = self.room.clone().acquire_owned().await.map_err(|_| PublishError::Closed)?;
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.closed {
            return Err(PublishError::Closed);
        }
        state.queue.push(entry, marker, (sender, permit));
        drop(state);
        self.wake.notify_one();
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
            .map(|((sender, _), unconfirmed)| {
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
        for ((sender, _), _) in left {
            let _ = sender.send(Err(PublishError::Failed(error.clone())));
        }
    }

    fn settled(&self) {
        let floor = self.state().queue.floor();
        self.floor.send_replace(floor);
    }

    /// Waits until a batch is complete, has lingered, or is wanted now.
    async fn ready(&self, batch: usize, linger: Duration) {
        let look = || {
            let state = self.state();
            (state.queue.len(), state.queue.floor() < state.urgent)
        };
        while look().0 == 0 {
            self.wake.notified().await;
        }
        let deadline = Instant::now() + linger;
        loop {
            let (waiting, urgent) = look();
            if waiting >= batch || urgent || timeout_at(deadline, self.wake.notified()).await.is_err() {
                return;
            }
        }
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

/// A connection, and whether its server recognises what it was given before.
struct Link {
    connection: Arc<dyn Connection>,
    idempotent: bool,
    /// Whether the script that appends once was loaded.
    loaded: bool,
}

pub(super) async fn run(shared: Arc<Shared>, client: Client, settings: Settings) {
    let producer = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
    let mut backoff = Backoff::new(settings.backoff);
    let mut link: Option<Link> = None;
    let mut known = false;
    let mut rejections = 0;
    let mut doubt = NodeDoubt::default();
    loop {
        shared.ready(settings.batch, settings.linger).await;
        let Link { connection, idempotent, loaded } = match &mut link {
            Some(link) => link,
            none => match connect(&client, &settings).await {
                Ok(new) => none.insert(new),
                Err(error) if is_final(&error, known, rejections) => {
                    shared.fail_all(error);
                    // What is accepted next is not a reason to knock again at once.
                    sleep(backoff.next(fastrand::f64())).await;
                    continue;
                }
                Err(error) => {
                    rejections += u32::from(error.kind() == ErrorKind::Authentication);
                    wait(&mut backoff, &error).await;
                    continue;
                }
            },
        };
        let form = Form { key: &settings.key, trim: settings.trim, producer: &producer, idempotent: *idempotent };
        let most = if *idempotent { settings.batch.min(REMEMBERED) } else { settings.batch };
        let (mut requests, script) = {
            let queue = &mut shared.state().queue;
            (queue.take(most, form), queue.needs_script() && !*loaded)
        };
        if script {
            requests.insert(0, Script::publish_once().load());
        }
        match connection.send(&requests).await {
            Ok(mut replies) => {
                let refusal = if script && !replies.is_empty() { replies.remove(0).err() } else { None };
                *loaded |= script && refusal.is_none();
                let settled = shared.state().queue.settle(&settings.key, replies, refusal.as_ref());
                shared.settled();
                for ((sender, _), told) in settled.told {
                    known |= told.is_ok();
                    if let Err(Err(error)) = sender.send(told)
                        && !matches!(error, PublishError::Duplicate)
                    {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "an entry failed and nobody waits for it"
                        );
                    }
                }
                match settled.again {
                    None => {
                        backoff.reset();
                        doubt.reset();
                        rejections = 0;
                    }
                    Some(error) => {
                        *loaded &= error.kind() != ErrorKind::NoScript;
                        if doubt.recovery(&error) == Recovery::Reconnect {
                            link = None;
                        }
                        wait(&mut backoff, &error).await;
                    }
                }
            }
            Err(error) => {
                shared.state().queue.lose();
                link = None;
                wait(&mut backoff, &error).await;
            }
        }
    }
}

async fn connect(client: &Client, settings: &Settings) -> Result<Link, Error> {
    let connection = client.connector().connect(&settings.key).await?;
    let idempotent = settings.idempotent
        && Capabilities::probe_for(&*connection, &settings.key, &[Capability::Idempotent])
            .await?
            .has(Capability::Idempotent);
    Ok(Link { connection, idempotent, loaded: false })
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
