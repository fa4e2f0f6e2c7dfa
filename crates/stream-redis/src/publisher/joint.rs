//! [`Joint`]: one connection for the publishers of all partitions, where the server serves all keys.
//!
//! What must stay true: whoever asks a second time has found the connection to be of no more use, and never gets it again.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use stream_core::StreamKey;
use tokio::sync::Mutex;

use crate::{Client, Connection, Connector, Error, Reader};

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
        *held = Some(Held { connection: Arc::downgrade(&connection), given_to: HashSet::from([key.clone()]) });
        Ok(connection)
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        self.client.connector().open_reader(key, name).await
    }
}
