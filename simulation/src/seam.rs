//! [`Seam`]: how the library of one machine reaches the server: the in-memory one, through a network that takes its time and
//! a process that may die between any two awaits; and where the bugs of a [`Mutation`](crate::Mutation) are put in.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use stream_core::StreamKey;
use stream_redis::{
    Client, Connection, Connector, Error, ReadBatch, ReadProgress, ReadRequest, Reader, Request, Rest, ServerError,
    Value,
};
use tokio::sync::Mutex;
use tokio::time::{Sleep, sleep};

use crate::machine::{Line, Machine};
use crate::mutation::{Changed, Mutation, script};
use crate::watch::{self, Watch};

#[derive(Debug)]
struct Seam {
    machine: Arc<Machine>,
}

/// A client for the library in `machine`.
pub(crate) fn client(machine: &Arc<Machine>) -> Client {
    Client::from_connector(Seam { machine: Arc::clone(machine) })
}

/// How long a request takes to leave.
fn departure(machine: &Machine) -> Option<Duration> {
    machine.world.draw(|rng| (rng.u32(..3) == 0).then(|| Duration::from_millis(rng.u64(1..5))))
}

/// Polls what a machine does with the server over one of its lines under its name; not to its end if it dies of it.
async fn by<T>(machine: &Arc<Machine>, line: Line, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| polled_by(machine, line, || work.as_mut().poll(cx))).await
}

fn polled_by<T>(machine: &Arc<Machine>, line: Line, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    if machine.is_dead() {
        return Poll::Pending;
    }
    machine.world.state().current = Some((Arc::clone(machine), line));
    let polled = poll();
    machine.world.state().current = None;
    // Whatever came of it, nobody is there any more to see it.
    if machine.is_dead() { Poll::Pending } else { polled }
}

#[async_trait]
impl Connector for Seam {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let machine = Arc::clone(&self.machine);
        let inner = by(&machine, Line::Commands, machine.world.server.connect(key)).await?;
        Ok(Arc::new(Wire { machine, inner, turn: Mutex::new(()) }))
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        let machine = Arc::clone(&self.machine);
        let inner = by(&machine, Line::Reads, machine.world.server.open_reader(key, name)).await?;
        Ok(Box::new(Tap { machine, inner, unsent: Vec::new(), departs: None }))
    }
}

/// A connection for commands.
struct Wire {
    machine: Arc<Machine>,
    inner: Arc<dyn Connection>,
    /// Requests leave one after the other, in their order.
    turn: Mutex<()>,
}

type Replies = Vec<Result<Value, ServerError>>;

impl Wire {
    /// Sends, and sees what it has done to the server.
    async fn exchange(&self, requests: &[Request]) -> Result<Replies, Error> {
        let machine = &self.machine;
        let asked = machine.world.now();
        let turn = self.turn.lock().await;
        if let Some(departure) = departure(machine) {
            sleep(departure).await;
        }
        let renewal = requests.iter().any(|request| {
            let args: Vec<&[u8]> = request.args().take(2).collect();
            script(&args) == Some("renew")
        });
        let line = if renewal { Line::Renewals } else { Line::Commands };
        let departed = {
            let mut state = machine.world.state();
            state.departures += 1;
            state.departures
        };
        let watch = Watch::before(machine, requests, asked);
        let mut sent = pin!(self.inner.send(requests));
        // The first poll has them carried out.
        let first = poll_fn(|cx| Poll::Ready(polled_by(machine, line, || sent.as_mut().poll(cx)))).await;
        watch.after(machine, requests);
        drop(turn);
        let replies = match first {
            Poll::Ready(replies) => replies,
            Poll::Pending => by(machine, line, sent).await,
        };
        match &replies {
            Ok(replies) if replies.iter().any(Result::is_ok) => {
                machine.heard(Line::Commands, departed);
                if renewal {
                    machine.heard(Line::Renewals, departed);
                }
            }
            Ok(_) => {}
            Err(_) => {
                machine.fell_silent(line);
                watch::got_no_answer(machine, requests);
            }
        }
        replies
    }

    /// What a library with a bug would do.
    async fn mutated(&self, mutation: Mutation, request: &Request) -> Result<Replies, Error> {
        match mutation.of_request(&self.machine, request) {
            None => match (self.exchange(std::slice::from_ref(request)).await, mutation.of_silence(request)) {
                (Err(_), Some(reply)) => Ok(vec![reply]),
                (replies, _) => replies,
            },
            Some(Changed::Answered(value)) => Ok(vec![Ok(value)]),
            Some(Changed::Sent { request, answer }) => {
                let replies = self.exchange(&[request]).await?;
                let answered = |reply: Result<Value, ServerError>| reply.map(|value| answer.clone().unwrap_or(value));
                Ok(replies.into_iter().map(answered).collect())
            }
            Some(Changed::Split { first, then }) => {
                self.exchange(&[first]).await?;
                self.exchange(&[then]).await
            }
        }
    }
}

#[async_trait]
impl Connection for Wire {
    async fn send(&self, requests: &[Request]) -> Result<Replies, Error> {
        let replies = match self.machine.world.mutation {
            None => self.exchange(requests).await?,
            Some(mutation)
                if requests.len() > 1
                    && requests.iter().all(|request| mutation.of_request(&self.machine, request).is_none()) =>
            {
                self.exchange(requests).await?
            }
            Some(mutation) => {
                let mut replies = Vec::with_capacity(requests.len());
                for request in requests {
                    replies.extend(self.mutated(mutation, request).await?);
                }
                replies
            }
        };
        for (request, reply) in requests.iter().zip(&replies) {
            let there = reply.is_ok() || reply.as_ref().is_err_and(|error| error.code == "BUSYGROUP");
            if request.command() == "XGROUP CREATE" && there {
                self.machine.saw_group();
            }
        }
        Ok(replies)
    }
}

/// A connection for reads.
struct Tap {
    machine: Arc<Machine>,
    inner: Box<dyn Reader>,
    unsent: Vec<ReadRequest>,
    departs: Option<Pin<Box<Sleep>>>,
}

impl Reader for Tap {
    fn submit(&mut self, read: &ReadRequest) {
        if self.unsent.is_empty() {
            self.departs = departure(&self.machine).map(|departure| Box::pin(sleep(departure)));
        }
        self.unsent.push(read.clone());
    }

    fn in_flight(&self) -> usize {
        self.unsent.len() + self.inner.in_flight()
    }

    fn rest(&self) -> Option<Rest> {
        self.inner.rest().filter(|_| self.unsent.is_empty())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, batch: &mut ReadBatch) -> Poll<Result<ReadProgress, Error>> {
        if !self.unsent.is_empty() {
            if self.departs.as_mut().is_none_or(|departs| departs.as_mut().poll(cx).is_ready()) {
                self.departs = None;
                for read in self.unsent.drain(..) {
                    self.inner.submit(&read);
                }
            } else if self.inner.in_flight() == 0 {
                return Poll::Pending;
            }
        }
        let before = batch.entries.len();
        let polled = polled_by(&self.machine, Line::Reads, || self.inner.poll_next(cx, batch));
        match &polled {
            Poll::Ready(Ok(ReadProgress::Complete { .. })) => self.machine.heard(Line::Reads, u64::MAX),
            Poll::Ready(Err(_)) => self.machine.fell_silent(Line::Reads),
            _ => {}
        }
        watch::read(&self.machine, &batch.entries[before..]);
        polled
    }
}
