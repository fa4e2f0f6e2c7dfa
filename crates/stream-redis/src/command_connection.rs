//! [`CommandConnection`]: commands over one greeted stream, through `redis`'s multiplexed connection.
//!
//! What must stay true: replies belong to their requests; a connection that failed once stays failed, so that nobody
//! waits behind a reply that never comes; no type of `redis` gets out.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use crate::options::ConnectOptions;
use crate::transport::Stream;
use crate::{Connection, Error, ErrorKind, Request, ServerError, Value};

/// A multiplexed connection for commands that do not block.
///
/// Dropping a future of [`send`](Connection::send) is safe: `redis` takes the replies off in order and forgets them.
///
/// After a timeout the connection is closed. `redis` itself would stay in step, but replies come in order: whoever asks
/// next would wait behind the same silence, and a connection that swallowed one reply is most likely dead.
pub(crate) struct CommandConnection {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
    timeout: Duration,
}

impl CommandConnection {
    /// Takes over a stream that is greeted.
    pub(crate) async fn new(stream: Stream, options: &ConnectOptions) -> Result<Self, Error> {
        // Everything that `redis` could say first was said in our greeting. With RESP2, database 0, no password and no
        // library name it sends nothing at all; its parser takes RESP3 whatever is declared here.
        let silent = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        let timeout = options.response_timeout();
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(Some(timeout));
        let (connection, driver) = MultiplexedConnection::new_with_config(&silent, stream, config)
            .await
            .map_err(|error| classify(error, timeout))?;
        Ok(Self { connection, driver: tokio::spawn(driver), timeout })
    }

    fn failed(&self, error: redis::RedisError) -> Error {
        self.driver.abort();
        classify(error, self.timeout)
    }
}

impl Drop for CommandConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[async_trait]
impl Connection for CommandConnection {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let mut connection = self.connection.clone();
        let replies = match requests {
            [] => Vec::new(),
            // Not as a pipeline of one: that would lose the cause of a broken connection.
            [request] => {
                vec![connection.send_packed_command(&pack(request)).await.map_err(|error| self.failed(error))?]
            }
            requests => {
                let mut pipeline = redis::Pipeline::with_capacity(requests.len());
                for request in requests {
                    pipeline.add_command(pack(request));
                }
                connection
                    .send_packed_commands(&pipeline, 0, requests.len())
                    .await
                    .map_err(|error| self.failed(error))?
            }
        };
        replies.into_iter().map(reply).collect()
    }
}

fn pack(request: &Request) -> redis::Cmd {
    let args = request.args();
    let mut command = redis::Cmd::with_capacity(args.len(), request.size());
    for argument in args {
        command.arg(argument);
    }
    command
}

fn reply(value: redis::Value) -> Result<Result<Value, ServerError>, Error> {
    match value {
        redis::Value::ServerError(error) => Ok(Err(server_error(&error))),
        value => convert(value).map(Ok),
    }
}

/// Moves a reply into ours; nothing that holds bytes is copied.
fn convert(value: redis::Value) -> Result<Value, Error> {
    Ok(match value {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::BulkString(bytes) => Value::Bulk(Bytes::from(bytes)),
        redis::Value::SimpleString(text) | redis::Value::VerbatimString { text, .. } => Value::Bulk(Bytes::from(text)),
        redis::Value::Okay => Value::Bulk(Bytes::from_static(b"OK")),
        redis::Value::Array(items) | redis::Value::Set(items) | redis::Value::Push { data: items, .. } => {
            Value::Array(items.into_iter().map(convert).collect::<Result<_, _>>()?)
        }
        redis::Value::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(name, value)| Ok((convert(name)?, convert(value)?)))
                .collect::<Result<_, Error>>()?,
        ),
        redis::Value::Attribute { data, .. } => convert(*data)?,
        redis::Value::Double(number) => Value::Double(number),
        redis::Value::Boolean(truth) => Value::Bool(truth),
        redis::Value::ServerError(error) => Value::Error(server_error(&error)),
        // Big numbers, which no command of ours answers with.
        _ => return Err(Error::new(ErrorKind::Protocol, "the server answered with a type that is not used here")),
    })
}

fn server_error(error: &redis::ServerError) -> ServerError {
    ServerError::parse(&format!("{} {}", error.code(), error.details().unwrap_or_default()))
}

fn classify(error: redis::RedisError, timeout: Duration) -> Error {
    if error.is_timeout() {
        return Error::new(ErrorKind::Timeout, format!("no answer within {timeout:?}")).with_source(error);
    }
    match error.kind() {
        redis::ErrorKind::Io => Error::new(ErrorKind::Io, "the connection is gone").with_source(error),
        // The cause is left out: it quotes the reply.
        redis::ErrorKind::Parse => Error::new(ErrorKind::Protocol, "the server sent something that is not RESP"),
        _ => Error::new(ErrorKind::Protocol, "the connection is of no more use").with_source(error),
    }
}

#[cfg(test)]
mod tests;
