//! [`Appender`]: a connection for appends, several batches of which are on their way at a time.
//!
//! What must stay true: replies come in the order of the commands, one each; a connection that failed is of no more use;
//! and where commands that were written one after the other could be carried out in another order, as in a cluster whose
//! slots move, only one batch is on its way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use stream_core::{EntryId, StreamKey};

use crate::capability::Probe;
use crate::options::ConnectOptions;
use crate::transport::Stream;
use crate::{Capabilities, Capability, Connection, Error, ErrorKind, Request, ServerError, Value};

mod socket;

use socket::Socket;

/// Batches on their way on a connection of our own. The server is never without work while one is encoded and the replies
/// to another are looked at, and what a cut leaves in doubt stays small.
const BATCHES: usize = 4;

/// A connection for appends, opened by [`Connector::open_appender`](crate::Connector::open_appender) and used by the
/// [`Publisher`](crate::Publisher).
pub struct Appender(Kind);

enum Kind {
    Socket(Box<Socket<Stream>>),
    Commands(Commands),
}

/// A connection for commands of any kind. What it is given is sent in one go.
struct Commands {
    connection: Arc<dyn Connection>,
    requests: Vec<Request>,
    sending: Option<Sending>,
}

type Sending = Pin<Box<dyn Future<Output = Result<Vec<Result<Value, ServerError>>, Error>> + Send>>;

/// What a server answers to a command that appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The id of the entry.
    Id(EntryId),
    Nil,
    Error(ServerError),
    /// No reply to a command that appends.
    Other,
}

/// Where commands are put that are to be written next.
pub(crate) enum Out<'a> {
    /// As they go over the wire.
    Wire(&'a mut Vec<u8>),
    Requests(&'a mut Vec<Request>),
}

impl Appender {
    /// Appends through `connection`, one batch at a time.
    pub fn over(connection: Arc<dyn Connection>) -> Self {
        Self(Kind::Commands(Commands { connection, requests: Vec::new(), sending: None }))
    }

    /// Takes over a stream that is greeted, with nothing in flight.
    pub(crate) fn on(stream: Stream, options: &ConnectOptions) -> Self {
        Self(Kind::Socket(Box::new(Socket::new(stream, options))))
    }

    /// How many batches may be on their way.
    pub(crate) fn depth(&self) -> usize {
        match &self.0 {
            Kind::Socket(_) => BATCHES,
            Kind::Commands(_) => 1,
        }
    }

    /// Where the commands of the next batch go; [`sent`](Self::sent) says how many there are.
    pub(crate) fn out(&mut self) -> Out<'_> {
        match &mut self.0 {
            Kind::Socket(socket) => Out::Wire(socket.out()),
            Kind::Commands(commands) => Out::Requests(&mut commands.requests),
        }
    }

    /// So many commands were put out. They are written by [`poll_replies`](Self::poll_replies).
    pub(crate) fn sent(&mut self, count: usize) {
        match &mut self.0 {
            Kind::Socket(socket) => socket.sent(count),
            Kind::Commands(commands) => commands.send(),
        }
    }

    /// Writes what was put out, and waits for replies: some at least, in the order of the commands.
    ///
    /// # Errors
    /// The connection failed: any of the commands without a reply may or may not have been carried out. The replies that
    /// were added before are valid.
    pub(crate) fn poll_replies(&mut self, cx: &mut Context<'_>, replies: &mut Vec<Reply>) -> Poll<Result<(), Error>> {
        match &mut self.0 {
            Kind::Socket(socket) => socket.poll_replies(cx, replies),
            Kind::Commands(commands) => commands.poll_replies(cx, replies),
        }
    }

    /// Whether the connection is known to be over, though nothing is on its way.
    pub(crate) fn is_over(&mut self) -> bool {
        match &mut self.0 {
            Kind::Socket(socket) => socket.is_over(),
            Kind::Commands(_) => false,
        }
    }

    /// Whether the server recognises what was appended before. Asked before anything is sent.
    pub(crate) async fn recognises(&mut self, key: &StreamKey) -> Result<bool, Error> {
        let wanted = [Capability::Idempotent];
        let found = match &mut self.0 {
            Kind::Commands(commands) => Capabilities::probe_for(&*commands.connection, key, &wanted).await?,
            Kind::Socket(socket) => {
                let mut probe = Probe::new(key, &wanted);
                while !probe.requests().is_empty() {
                    let replies = socket.ask(probe.requests()).await?;
                    probe.answered(&replies)?;
                }
                probe.found()
            }
        };
        Ok(found.has(Capability::Idempotent))
    }
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender").field("depth", &self.depth()).finish_non_exhaustive()
    }
}

impl Commands {
    fn send(&mut self) {
        let (connection, requests) = (Arc::clone(&self.connection), std::mem::take(&mut self.requests));
        self.sending = Some(Box::pin(async move {
            let replies = connection.send(&requests).await?;
            if replies.len() == requests.len() {
                Ok(replies)
            } else {
                let message = format!("{} replies to {} requests", replies.len(), requests.len());
                Err(Error::new(ErrorKind::Protocol, message))
            }
        }));
    }

    fn poll_replies(&mut self, cx: &mut Context<'_>, replies: &mut Vec<Reply>) -> Poll<Result<(), Error>> {
        let Some(sending) = &mut self.sending else { return Poll::Pending };
        let received = ready!(sending.as_mut().poll(cx));
        self.sending = None;
        replies.extend(received?.into_iter().map(Reply::from));
        Poll::Ready(Ok(()))
    }
}

impl From<Result<Value, ServerError>> for Reply {
    fn from(reply: Result<Value, ServerError>) -> Self {
        match reply {
            Ok(Value::Nil) => Self::Nil,
            Ok(Value::Bulk(text)) => EntryId::parse(&text).map_or(Self::Other, Self::Id),
            Ok(_) => Self::Other,
            Err(error) => Self::Error(error),
        }
    }
}
