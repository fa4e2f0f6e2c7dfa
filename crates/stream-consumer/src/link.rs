//! [`Link`]: the command connection of one consumer, made anew when it fails, paced by the backoff.
//!
//! A new attempt never comes before its pause is over, and the pause is reset by a command that succeeded, not by a
//! connection that was accepted: a port that accepts and closes must still be backed off from.
//!
//! Several tasks share it, and one of them may be held up for ever by a handler that blocks its thread. So nobody keeps a
//! lock across an await here, nobody stands in a line in which a turn could be given to who does not come, and a
//! connection is made by a task of its own.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Moment};

use stream_core::{Backoff, BackoffPolicy, DeadLetter, EntryId, StreamKey};
use stream_redis::command::{self, Command};
use stream_redis::{
    Client, Connection, Error, ErrorKind, Fenced, HandedBack, NodeDoubt, Owner, Recovery, Renewed, Taken,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::durable::DeadLetterLayout;
use crate::pace::now;
use crate::tasks::gated;

pub(crate) struct Link {
    shared: Arc<Shared>,
    /// Whether the last command failed, so that success has something to reset.
    troubled: AtomicBool,
    fenced: Fenced,
}

/// The links of a consumer's streams: one for all, or one for each where a connection does not serve every key. The
/// trouble of a node is then not that of the streams of another.
pub(crate) struct Links {
    client: Client,
    backoff: BackoffPolicy,
    shared: Option<Arc<Link>>,
}

impl Links {
    pub(crate) fn new(client: &Client, backoff: BackoffPolicy) -> Self {
        Self { client: client.clone(), backoff, shared: None }
    }

    pub(crate) fn of(&mut self, key: &StreamKey) -> Arc<Link> {
        let new = || Arc::new(Link::new(self.client.clone(), key.clone(), self.backoff));
        if self.client.connector().serves_all_keys() { Arc::clone(self.shared.get_or_insert_with(new)) } else { new() }
    }
}

struct Shared {
    client: Client,
    key: StreamKey,
    state: Mutex<State>,
    /// Told when an attempt to connect is over.
    over: Notify,
}

struct State {
    connection: Option<Arc<dyn Connection>>,
    /// Whether somebody is making one.
    connecting: bool,
    backoff: Backoff,
    doubt: NodeDoubt,
    not_before: Option<Instant>,
}

impl State {
    fn pause(&mut self) {
        self.not_before = Some(Instant::now() + self.backoff.next(fastrand::f64()));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the connection, once its pause is over. Whoever gives up leaves the pause in force for the next.
    async fn connect(&self) -> Result<Arc<dyn Connection>, Error> {
        let not_before = self.state().not_before;
        if let Some(not_before) = not_before {
            sleep_until(not_before).await;
            self.state().not_before = None;
        }
        let made = self.client.connector().connect(&self.key).await;
        let mut state = self.state();
        match &made {
            Ok(connection) => state.connection = Some(Arc::clone(connection)),
            Err(_) => state.pause(),
        }
        made
    }
}

/// The turn of one caller to make the connection; at its end, however it comes, the next may try.
struct Turn(Arc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().connecting = false;
        self.0.over.notify_waiters();
    }
}

impl Link {
    pub(crate) fn new(client: Client, key: StreamKey, backoff: BackoffPolicy) -> Self {
        let (backoff, doubt) = (Backoff::new(backoff), NodeDoubt::default());
        let state = State { connection: None, connecting: false, backoff, doubt, not_before: None };
        let shared = Arc::new(Shared { client, key, state: Mutex::new(state), over: Notify::new() });
        Self { shared, troubled: AtomicBool::new(false), fenced: Fenced::new() }
    }

    /// Runs a command.
    pub(crate) async fn run<C: Command + Sync>(&self, command: &C) -> Result<C::Reply, Error> {
        let connection = self.connection().await?;
        let result = command::run(connection.as_ref(), command).await;
        self.judged(&connection, result)
    }

    /// Runs a command that must not be sent after `until`, however long the connection takes to be made; `None` if it was
    /// too late, and nothing was sent.
    pub(crate) async fn run_until<C: Command + Sync>(
        &self,
        command: &C,
        until: Moment,
    ) -> Result<Option<C::Reply>, Error> {
        let connection = self.connection().await?;
        if now() >= until {
            return Ok(None);
        }
        let result = command::run(connection.as_ref(), command).await;
        self.judged(&connection, result).map(Some)
    }

    /// Makes the connection if there is none.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.connection().await.map(drop)
    }

    pub(crate) async fn renew(&self, owner: &Owner, ids: &[EntryId], lease: Duration) -> Result<Renewed, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.renew(connection.as_ref(), owner, ids, lease).await;
        self.judged(&connection, result)
    }

    pub(crate) async fn hand_back(&self, owner: &Owner, entries: &[(EntryId, u64)]) -> Result<HandedBack, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.hand_back(connection.as_ref(), owner, entries).await;
        self.judged(&connection, result)
    }

    /// Sets delivery counts, and fetches `bodies`.
    pub(crate) async fn take(
        &self,
        owner: &Owner,
        entries: &[(EntryId, u64)],
        bodies: bool,
        lease: Duration,
    ) -> Result<Vec<Taken>, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.take(connection.as_ref(), owner, entries, bodies, lease).await;
        self.judged(&connection, result)
    }

    /// Acknowledges with a check of the owner, and deletes where nobody else needs it; returns the ids that were not ours.
    pub(crate) async fn acknowledge(
        &self,
        owner: &Owner,
        ids: &[EntryId],
        lease: Duration,
        delete: bool,
    ) -> Result<Vec<EntryId>, Error> {
        let connection = self.connection().await?;
        let result = if delete {
            self.fenced.acknowledge_and_delete(connection.as_ref(), owner, ids, lease).await
        } else {
            self.fenced.acknowledge(connection.as_ref(), owner, ids, lease).await
        };
        self.judged(&connection, result)
    }

    pub(crate) async fn dead_letter(
        &self,
        owner: &Owner,
        letter: &DeadLetter,
        layout: DeadLetterLayout,
        target: &StreamKey,
        bound: Option<u64>,
    ) -> Result<bool, Error> {
        let connection = self.connection().await?;
        let result = match layout {
            DeadLetterLayout::Prefect => self.fenced.dead_letter_hash(connection.as_ref(), owner, target, letter).await,
            DeadLetterLayout::Stream => {
                let (id, fields) = (letter.entry.id(), letter.to_fields());
                let written = self.fenced.dead_letter(connection.as_ref(), owner, id, target, bound, &fields).await;
                written.map(|written| written.is_some())
            }
        };
        self.judged(&connection, result)
    }

    pub(crate) async fn remove_consumer(&self, owner: &Owner) -> Result<bool, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.remove_consumer(connection.as_ref(), owner).await;
        self.judged(&connection, result)
    }

    /// Has the connection made anew, since it seems to lead to another server than that of a reader.
    pub(crate) fn leave(&self) {
        self.shared.state().connection = None;
    }

    /// The connection, made anew if need be.
    async fn connection(&self) -> Result<Arc<dyn Connection>, Error> {
        loop {
            let over = self.shared.over.notified();
            {
                let mut state = self.shared.state();
                if let Some(connection) = &state.connection {
                    return Ok(Arc::clone(connection));
                }
                if !state.connecting {
                    state.connecting = true;
                    break;
                }
            }
            over.await;
        }
        let turn = Turn(Arc::clone(&self.shared));
        // It ends with this future, and does not wait for it to be polled.
        let mut attempt = JoinSet::new();
        attempt.spawn(gated(async move { turn.0.connect().await }));
        let made = match attempt.join_next().await {
            Some(Ok(made)) => made,
            Some(Err(ended)) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            _ => Err(Error::new(ErrorKind::Io, "the attempt to connect was given up, since the runtime shuts down")),
        };
        if made.is_err() {
            self.troubled.store(true, Ordering::Relaxed);
        }
        made
    }

    /// Draws the conclusions from how a command on `connection` ended.
    fn judged<T>(&self, connection: &Arc<dyn Connection>, result: Result<T, Error>) -> Result<T, Error> {
        let failed = result.as_ref().err();
        match failed.map(|error| self.shared.state().doubt.recovery(error)) {
            Some(Recovery::Reconnect) => {
                self.troubled.store(true, Ordering::Relaxed);
                let mut state = self.shared.state();
                if state.connection.as_ref().is_some_and(|held| Arc::ptr_eq(held, connection)) {
                    state.connection = None;
                    state.pause();
                }
            }
            Some(Recovery::Retry) => self.troubled.store(true, Ordering::Relaxed),
            None if self.troubled.swap(false, Ordering::Relaxed) => {
                let mut state = self.shared.state();
                state.backoff.reset();
                state.doubt.reset();
            }
            _ => {}
        }
        result
    }

    /// Whether there is a connection that is not known to have failed.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.state().connection.is_some()
    }

    /// Whether the server has refused scripts.
    pub(crate) fn is_plain(&self) -> bool {
        self.fenced.is_plain()
    }

    /// Whether the last command failed or no connection could be made.
    pub(crate) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }

    /// Gives up the connection when `work` takes longer than `limit`: a reply that never comes must not hold up renewals.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if let Ok(result) = tokio::time::timeout(limit, work).await {
            return result;
        }
        let mut state = self.shared.state();
        self.troubled.store(true, Ordering::Relaxed);
        if state.connection.take().is_some() {
            state.pause();
        }
        Err(Error::new(ErrorKind::Timeout, format!("no answer within {limit:?}")))
    }
}

#[cfg(test)]
mod tests {
    use stream_redis::command::XInfoStream;
    use stream_testkit::MemoryServer;
    use stream_testkit::memory::Fault;
    use tokio::time::timeout;

    use super::*;

    fn link(server: &MemoryServer) -> Link {
        server.add("s", [("data", "0")]);
        Link::new(server.client(), StreamKey::new("s").unwrap(), BackoffPolicy::default())
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_began_to_connect_and_is_held_up_holds_up_nobody() {
        let server = MemoryServer::new();
        let link = link(&server);
        let info = XInfoStream { key: StreamKey::new("s").unwrap() };
        let mut first = Box::pin(link.run(&info));
        let mut second = Box::pin(link.run(&info));
        // Both are begun and not polled again: one makes the connection, one waits for it.
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        for _ in 0..3 {
            timeout(Duration::from_mins(1), link.run(&info)).await.expect("an answer").unwrap();
        }
        assert_eq!(server.count("CONNECT"), 1);
        first.await.unwrap();
        second.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_to_connect_that_is_given_up_leaves_its_turn_to_the_next() {
        let server = MemoryServer::new();
        let link = link(&server);
        let info = XInfoStream { key: StreamKey::new("s").unwrap() };
        server.fail_next("CONNECT", Fault::Hang);
        let waits = async {
            tokio::task::yield_now().await;
            link.run(&info).await
        };
        let (given_up, waited) = tokio::join!(timeout(Duration::from_secs(1), link.run(&info)), waits);
        assert!(given_up.is_err());
        waited.unwrap();
        assert_eq!(server.count("CONNECT"), 2);
    }
}
