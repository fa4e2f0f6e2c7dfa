//! [`Link`]: the command connection of one consumer, made anew when it fails, paced by the backoff.
//!
//! A new attempt never comes before its pause is over, and the pause is reset by a command that succeeded, not by a
//! connection that was accepted: a port that accepts and closes must still be backed off from.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stream_core::{Backoff, BackoffPolicy, DeadLetter, EntryId, StreamKey};
use stream_redis::command::{self, Command};
use stream_redis::{Client, Connection, Error, Fenced, Owner, Recovery, Taken};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::durable::DeadLetterLayout;

pub(crate) struct Link {
    client: Client,
    key: StreamKey,
    state: Mutex<State>,
    /// Whether the last command failed, so that success has something to reset.
    troubled: AtomicBool,
    fenced: Fenced,
}

struct State {
    connection: Option<Arc<dyn Connection>>,
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Link {
    pub(crate) fn new(client: Client, key: StreamKey, backoff: BackoffPolicy) -> Self {
        let state = State { connection: None, backoff: Backoff::new(backoff), not_before: None };
        Self { client, key, state: Mutex::new(state), troubled: AtomicBool::new(false), fenced: Fenced::new() }
    }

    /// Runs a command.
    pub(crate) async fn run<C: Command + Sync>(&self, command: &C) -> Result<C::Reply, Error> {
        let connection = self.connection().await?;
        let result = command::run(connection.as_ref(), command).await;
        self.judged(&connection, result).await
    }

    pub(crate) async fn renew(&self, owner: &Owner, ids: &[EntryId], lease: Duration) -> Result<Vec<EntryId>, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.renew(connection.as_ref(), owner, ids, lease).await;
        self.judged(&connection, result).await
    }

    pub(crate) async fn hand_back(&self, owner: &Owner, entries: &[(EntryId, u64)]) -> Result<u64, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.hand_back(connection.as_ref(), owner, entries).await;
        self.judged(&connection, result).await
    }

    /// Sets delivery counts and fetches bodies.
    pub(crate) async fn take(
        &self,
        owner: &Owner,
        entries: &[(EntryId, u64)],
        lease: Duration,
    ) -> Result<Vec<Taken>, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.take(connection.as_ref(), owner, entries, true, lease).await;
        self.judged(&connection, result).await
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
        self.judged(&connection, result).await
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
        self.judged(&connection, result).await
    }

    pub(crate) async fn remove_consumer(&self, owner: &Owner) -> Result<bool, Error> {
        let connection = self.connection().await?;
        let result = self.fenced.remove_consumer(connection.as_ref(), owner).await;
        self.judged(&connection, result).await
    }

    /// The connection, made anew if need be.
    async fn connection(&self) -> Result<Arc<dyn Connection>, Error> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok(Arc::clone(connection));
        }
        if let Some(not_before) = state.not_before {
            // Whoever gives up waiting leaves the pause in force for the next.
            sleep_until(not_before).await;
            state.not_before = None;
        }
        match self.client.connector().connect(&self.key).await {
            Ok(connection) => {
                state.connection = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Err(error) => {
                self.troubled.store(true, Ordering::Relaxed);
                state.not_before = Some(Instant::now() + state.backoff.next(fastrand::f64()));
                Err(error)
            }
        }
    }

    /// Draws the conclusions from how a command on `connection` ended.
    async fn judged<T>(&self, connection: &Arc<dyn Connection>, result: Result<T, Error>) -> Result<T, Error> {
        match result.as_ref().err().map(Error::recovery) {
            Some(Recovery::Reconnect) => {
                self.troubled.store(true, Ordering::Relaxed);
                let mut state = self.state.lock().await;
                if state.connection.as_ref().is_some_and(|held| Arc::ptr_eq(held, connection)) {
                    state.connection = None;
                    state.not_before = Some(Instant::now() + state.backoff.next(fastrand::f64()));
                }
            }
            None if self.troubled.swap(false, Ordering::Relaxed) => self.state.lock().await.backoff.reset(),
            _ => {}
        }
        result
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
        if let Ok(mut state) = self.state.try_lock() {
            self.troubled.store(true, Ordering::Relaxed);
            if state.connection.take().is_some() {
                state.not_before = Some(Instant::now() + state.backoff.next(fastrand::f64()));
            }
        }
        Err(Error::new(stream_redis::ErrorKind::Timeout, format!("no answer within {limit:?}")))
    }
}
