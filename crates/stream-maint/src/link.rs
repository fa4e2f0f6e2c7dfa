//! [`Link`]: the one connection of a maintenance task, opened when it is first needed and again after it broke.
//!
//! What must stay true: maintenance never shares a connection with a consumer, so nothing that goes wrong here disturbs
//! one; and a task that is idle costs the server one connection at most.

use std::sync::Arc;

use stream_core::StreamKey;
use stream_redis::command::{Command, run};
use stream_redis::{Client, Connection, Error, NodeDoubt, Recovery, Request, Value};

/// The connection of one task about one key.
#[derive(Clone)]
pub(crate) struct Link {
    client: Client,
    key: StreamKey,
    connection: Option<Arc<dyn Connection>>,
    doubt: NodeDoubt,
}

impl Link {
    pub(crate) fn new(client: &Client, key: StreamKey) -> Self {
        Self { client: client.clone(), key, connection: None, doubt: NodeDoubt::default() }
    }

    /// The key it is about.
    pub(crate) fn key(&self) -> &StreamKey {
        &self.key
    }

    /// The open connection, or a new one.
    pub(crate) async fn connection(&mut self) -> Result<Arc<dyn Connection>, Error> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connection = self.client.connector().connect(&self.key).await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Carries out one command.
    pub(crate) async fn run<C: Command + Sync>(&mut self, command: &C) -> Result<C::Reply, Error> {
        let connection = self.connection().await?;
        let result = run(&*connection, command).await;
        self.noted(result)
    }

    /// Carries out several commands in one round trip; one result for each, in order.
    pub(crate) async fn run_all<C: Command + Sync>(
        &mut self,
        commands: &[C],
    ) -> Result<Vec<Result<C::Reply, Error>>, Error> {
        let requests: Vec<Request> = commands.iter().map(Command::request).collect();
        let replies = self.send(&requests).await?;
        Ok(commands.iter().zip(replies).map(|(command, reply)| decoded(command, reply)).collect())
    }

    /// Sends requests in one round trip; an error reply names its command and key.
    pub(crate) async fn send(&mut self, requests: &[Request]) -> Result<Vec<Result<Value, Error>>, Error> {
        let connection = self.connection().await?;
        let result = connection.send(requests).await;
        let replies = self.noted(result)?;
        let named = |(request, reply): (&Request, Result<Value, _>)| {
            let reply = reply.map_err(|error| Error::from_server(error).at(request.command(), request.stream()));
            self.noted(reply)
        };
        Ok(requests.iter().zip(replies).map(named).collect())
    }

    /// Gives the connection up where the error says that it is of no more use.
    pub(crate) fn noted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        match &result {
            Ok(_) => self.doubt.reset(),
            Err(error) if self.doubt.recovery(error) == Recovery::Reconnect => self.connection = None,
            Err(_) => {}
        }
        result
    }
}

/// The decoded reply to `command`.
pub(crate) fn decoded<C: Command>(command: &C, reply: Result<Value, Error>) -> Result<C::Reply, Error> {
    let request = command.request();
    command.decode(reply?).map_err(|error| error.at(request.command(), request.stream()))
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("key", &self.key).field("open", &self.connection.is_some()).finish_non_exhaustive()
    }
}
