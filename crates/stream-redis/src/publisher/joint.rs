//! [`Joint`]: one connection for the publishers of all partitions, where the server serves all keys.
//!
//! What must stay true: whoever asks a second time has found the connection to be of no more use, and never gets it again;
//! the time that an answer may take does not pass because of what others have put before it.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use stream_core::StreamKey;
use tokio::sync::{Mutex, Semaphore};

use crate::{Client, Connection, Connector, Error, ErrorKind, Reader, Request, ServerError, Value};

/// So many batches of all partitions are on their way at a time. The others wait before they are written, where no time
/// for an answer runs yet.
const TURNS: usize = 4;

pub(super) struct Joint {
    client: Client,
    /// Locked while a connection is made, so that the others wait for it and do not make one each.
    held: Mutex<Option<Held>>,
}

struct Held {
    /// It ends with the last who uses it.
    connection: Weak<dyn Connection>,
    given_to: HashSet<StreamKey>,
}

impl Joint {
    pub(super) fn new(client: &Client) -> Self {
        Self { client: client.clone(), held: Mutex::default() }
    }
}

impl fmt::Debug for Joint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joint").field("client", &self.client).finish_non_exhaustive()
    }
}

#[async_trait]
impl Connector for Joint {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_mut()
            && let Some(connection) = held.connection.upgrade()
            && held.given_to.insert(key.clone())
        {
            return Ok(connection);
        }
        *held = None;
        let connection = self.client.connector().connect(key).await?;
        let connection: Arc<dyn Connection> = Arc::new(Turns { connection, turns: Semaphore::new(TURNS) });
        *held = Some(Held { connection: Arc::downgrade(&connection), given_to: HashSet::from([key.clone()]) });
        Ok(connection)
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        self.client.connector().open_reader(key, name).await
    }
}

/// A connection on which those who send wait for their turn.
struct Turns {
    connection: Arc<dyn Connection>,
    turns: Semaphore,
}

#[async_trait]
impl Connection for Turns {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let closed = |_| Error::new(ErrorKind::Io, "the connection is closed");
        let _turn = self.turns.acquire().await.map_err(closed)?;
        self.connection.send(requests).await
    }
}
