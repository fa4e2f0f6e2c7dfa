//! Connections to the model: [`Connector`] for [`MemoryServer`], and [`Connection`] over one of its links.

use std::future::poll_fn;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use stream_core::StreamKey;
use stream_redis::{Connection, Connector, Error, ErrorKind, Reader, Request, ServerError, Value};
use tokio::time::Instant;

use super::fault::{Fault, Label};
use super::link::{LinkId, Ticket};
use super::reader::MemoryReader;
use super::server::MemoryServer;
use super::state::Shared;
use super::wait::{Alarm, closed, poll_answer};

#[async_trait]
impl Connector for MemoryServer {
    async fn connect(&self, _key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let link = open(self.shared(), None).await?;
        Ok(Arc::new(MemoryConnection { shared: self.shared().clone(), link }))
    }

    async fn open_reader(&self, _key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        let link = open(self.shared(), Some(name.to_owned())).await?;
        Ok(Box::new(MemoryReader::new(self.shared().clone(), link)))
    }
}

/// Opens a link, unless the server is down or a fault says otherwise.
async fn open(shared: &Arc<Shared>, name: Option<String>) -> Result<LinkId, Error> {
    // A real connection takes at least a turn of the event loop; without it, a caller in a loop would starve the others.
    tokio::task::yield_now().await;
    let label = Label::connect();
    let fault = shared.with(|state| {
        *state.counts.entry(label.name.clone()).or_default() += 1;
        state.faults.take(&label)
    });
    match fault {
        None => {}
        Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Error(error)) => return Err(Error::from_server(error)),
        Some(Fault::CutBefore | Fault::CutAfter | Fault::CutAfterEntries(_)) => return Err(closed()),
    }
    shared.with(|state| if state.down { None } else { Some(state.open(name)) }).ok_or_else(refused)
}

fn refused() -> Error {
    Error::new(ErrorKind::Io, "the in-memory server is down and refuses connections")
}

/// A connection for commands.
struct MemoryConnection {
    shared: Arc<Shared>,
    link: LinkId,
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.shared.with(|state| state.close(self.link));
    }
}

#[async_trait]
impl Connection for MemoryConnection {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let requests: Vec<Vec<Bytes>> = requests.iter().map(args).collect();
        self.shared.observe(&requests);
        let (tickets, timeout) = self.shared.with(|state| (state.submit(self.link, requests), state.response_timeout));
        let tickets = tickets.ok_or_else(closed)?;
        let _forget = Forget { connection: self, tickets: &tickets };
        // The commands are carried out now; their replies take a turn of the event loop at least. A caller that gives up
        // here has lost the replies, not the commands, just as with a real server.
        tokio::task::yield_now().await;
        let timeout = timeout.map(|timeout| Instant::now() + timeout);
        let mut alarm = Alarm::default();
        let mut replies = Vec::with_capacity(tickets.len());
        for &ticket in &tickets {
            let answer = poll_fn(|cx| poll_answer(&self.shared, (self.link, ticket), timeout, &mut alarm, cx)).await;
            match answer {
                Ok(answer) if answer.torn.is_none() => replies.push(answer.reply),
                Ok(_) => return Err(closed()),
                Err(error) => {
                    self.shared.with(|state| state.hang_up(self.link));
                    return Err(error);
                }
            }
        }
        Ok(replies)
    }
}

/// Drops the answers that a given up `send` does not wait for any more.
struct Forget<'a> {
    connection: &'a MemoryConnection,
    tickets: &'a [Ticket],
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.connection.shared.with(|state| state.abandon(self.connection.link, self.tickets));
    }
}

/// The arguments of a request as the server gets them.
pub(super) fn args(request: &Request) -> Vec<Bytes> {
    request.args().map(Bytes::copy_from_slice).collect()
}
