//! [`Cli`]: just enough RESP to ask a server something, so that tests need no client program and do not check the
//! library with the library.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use stream_redis::{ServerError, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a connection or a reply is waited for: a test that waits longer hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// Why a command gave no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The connection failed.
    #[error("no connection to {address}")]
    Connect {
        /// Where to.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] io::Error),
    /// No answer in time.
    #[error("no answer within {LIMIT:?}")]
    Timeout,
    /// What came is not RESP.
    #[error("not a reply: {0}")]
    Protocol(String),
    /// The server refused.
    #[error("the server says: {0}")]
    Reply(ServerError),
}

impl CliError {
    /// The error reply, if it was one.
    pub fn reply(&self) -> Option<&ServerError> {
        match self {
            Self::Reply(error) => Some(error),
            Self::Connect { .. } | Self::Io(_) | Self::Timeout | Self::Protocol(_) => None,
        }
    }
}

/// A connection that speaks RESP2, one command at a time.
#[derive(Debug)]
pub struct Cli {
    stream: BufReader<TcpStream>,
}

impl Cli {
    /// Connects, and gives `credentials` (user and password) if there are any.
    ///
    /// # Errors
    /// [`CliError`]: no connection within 10 seconds, or the credentials are refused.
    pub async fn connect(address: &str, credentials: Option<(Option<String>, String)>) -> Result<Self, CliError> {
        let connected = timeout(LIMIT, TcpStream::connect(address)).await.map_err(|_| CliError::Timeout)?;
        let stream = connected.map_err(|source| CliError::Connect { address: address.to_owned(), source })?;
        stream.set_nodelay(true)?;
        let mut this = Self { stream: BufReader::new(stream) };
        if let Some((user, password)) = credentials {
            let mut auth = vec!["AUTH".to_owned()];
            auth.extend(user);
            auth.push(password);
            this.command(&auth).await?;
        }
        Ok(this)
    }

    /// Runs one command and returns its reply. An error inside of an array is a [`Value::Error`].
    ///
    /// # Errors
    /// [`CliError`]: the connection broke, no answer within 10 seconds, or an error reply. After all but the last the
    /// connection is of no more use.
    pub async fn command<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Value, CliError> {
        let mut out = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command.iter().map(AsRef::as_ref) {
            out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            out.extend_from_slice(argument);
            out.extend_from_slice(b"\r\n");
        }
        let reply = async {
            self.stream.write_all(&out).await?;
            self.read().await
        };
        match timeout(LIMIT, reply).await.map_err(|_| CliError::Timeout)?? {
            Value::Error(error) => Err(CliError::Reply(error)),
            value => Ok(value),
        }
    }

    /// Reads one reply. Arrays are collected on a stack of their own, so that depth needs no recursion.
    async fn read(&mut self) -> Result<Value, CliError> {
        let mut open: Vec<(usize, Vec<Value>)> = Vec::new();
        loop {
            let mut value = match self.read_part().await? {
                Part::Value(value) => value,
                Part::Array(0) => Value::Array(Vec::new()),
                Part::Array(length) => {
                    open.push((length, Vec::new()));
                    continue;
                }
            };
            loop {
                let Some((length, mut items)) = open.pop() else { return Ok(value) };
                items.push(value);
                if items.len() < length {
                    open.push((length, items));
                    break;
                }
                value = Value::Array(items);
            }
        }
    }

    async fn read_part(&mut self) -> Result<Part, CliError> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).await?;
        if !line.ends_with(b"\r\n") {
            return Err(CliError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        let text = String::from_utf8_lossy(&line[..line.len() - 2]);
        let mut letters = text.chars();
        let kind = letters.next().ok_or_else(|| CliError::Protocol("an empty line".to_owned()))?;
        let rest = letters.as_str();
        let number = || rest.parse::<i64>().map_err(|_| CliError::Protocol(format!("{kind} without a number")));
        Ok(match kind {
            '+' => Part::Value(Value::bulk(rest)),
            '-' => Part::Value(Value::Error(ServerError::parse(rest))),
            ':' => Part::Value(Value::Int(number()?)),
            '$' | '*' if number()? < 0 => Part::Value(Value::Nil),
            '$' => {
                let mut body = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut body).await?;
                body.truncate(body.len() - 2);
                Part::Value(Value::Bulk(Bytes::from(body)))
            }
            '*' => Part::Array(number()? as usize),
            other => return Err(CliError::Protocol(format!("a reply that begins with {other:?}"))),
        })
    }
}

enum Part {
    Value(Value),
    Array(usize),
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What a command returns when the server sends `reply`.
    async fn reply(reply: &'static [u8]) -> Result<Value, CliError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut command = [0; b"*1\r\n$4\r\nPING\r\n".len()];
            stream.read_exact(&mut command).await.unwrap();
            stream.write_all(reply).await.unwrap();
        });
        let mut cli = Cli::connect(&address, None).await.unwrap();
        let value = cli.command(&["PING"]).await;
        server.await.unwrap();
        value
    }

    #[tokio::test]
    async fn every_kind_of_reply_is_read() {
        async fn check(sent: &'static [u8], expected: Value) {
            assert_eq!(reply(sent).await.unwrap(), expected);
        }
        check(b"+PONG\r\n", Value::bulk("PONG")).await;
        check(b":-7\r\n", Value::Int(-7)).await;
        check(b"$-1\r\n", Value::Nil).await;
        check(b"*-1\r\n", Value::Nil).await;
        check(b"*0\r\n", Value::Array(vec![])).await;
        check(b"$4\r\na\r\nb\r\n", Value::bulk("a\r\nb")).await;
        check(
            b"*3\r\n*2\r\n*0\r\n*1\r\n:1\r\n-ERR no\r\n$0\r\n\r\n",
            Value::Array(vec![
                Value::Array(vec![Value::Array(vec![]), Value::Array(vec![Value::Int(1)])]),
                Value::Error(ServerError::parse("ERR no")),
                Value::bulk(""),
            ]),
        )
        .await;
    }

    #[tokio::test]
    async fn an_error_reply_and_a_cut_one_are_errors() {
        assert_eq!(reply(b"-NOGROUP no such\r\n").await.unwrap_err().reply().unwrap().code, "NOGROUP");
        assert!(matches!(reply(b"$10\r\nabc").await.unwrap_err(), CliError::Io(_)));
        assert!(matches!(reply(b"hello\r\n").await.unwrap_err(), CliError::Protocol(_)));
    }
}
