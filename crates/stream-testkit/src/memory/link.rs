//! [`Link`]: one open connection as the server sees it: what it was asked, what it has answered, whether it lives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::reply::Reply;

/// Names a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId(pub(super) u64);

/// Names a request of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

#[derive(Debug, Default)]
pub(super) struct Link {
    /// Of a reader, as given when it was opened.
    pub(super) name: Option<String>,
    pub(super) inbox: VecDeque<Queued>,
    answers: BTreeMap<Ticket, Answer>,
    awaited: BTreeSet<Ticket>,
    pub(super) closed: bool,
    /// A command hangs: nothing more is carried out.
    pub(super) stalled: bool,
    /// A read waits: what comes after it waits, too.
    pub(super) blocked: bool,
    /// When the last answer arrives; answers do not overtake each other.
    last_due: Option<Instant>,
    wakers: Vec<Waker>,
}

/// A command that waits for its turn.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) ticket: Ticket,
    pub(super) args: Vec<Bytes>,
}

/// A reply on its way.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    /// Only so many entries of it arrive, and then the connection is gone.
    pub(super) torn: Option<usize>,
    due: Instant,
}

/// How a reply gets to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives(Duration),
    Lost,
    Torn(usize),
}

/// What a client that waits for an answer finds.
#[derive(Debug)]
pub(super) enum Look {
    Answer(Answer),
    Closed,
    /// Nothing before this time, if any, unless woken.
    Wait(Option<Instant>),
}

impl Ticket {
    /// Of no request: who looks for its answer waits for the end of the connection.
    pub(super) const NONE: Self = Self(0);
}

impl Link {
    pub(super) fn new(name: Option<String>) -> Self {
        Self { name, ..Self::default() }
    }

    pub(super) fn expect(&mut self, ticket: Ticket) {
        self.awaited.insert(ticket);
    }

    /// Nobody waits for this answer any more.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        self.awaited.remove(&ticket);
        self.answers.remove(&ticket);
    }

    /// Sends an answer off.
    pub(super) fn answer(&mut self, ticket: Ticket, reply: Reply, fate: Fate, now: Instant) {
        let delay = if let Fate::Arrives(delay) = fate { delay } else { Duration::ZERO };
        let due = self.last_due.map_or(now + delay, |last| last.max(now + delay));
        let torn = match fate {
            Fate::Arrives(_) => None,
            Fate::Torn(entries) => Some(entries),
            Fate::Lost => {
                self.closed = true;
                return;
            }
        };
        self.closed |= torn.is_some();
        self.last_due = Some(due);
        if self.awaited.contains(&ticket) {
            self.answers.insert(ticket, Answer { reply, torn, due });
        }
    }

    /// Looks for the answer to `ticket`; leaves the waker when there is none yet.
    pub(super) fn look(&mut self, ticket: Ticket, now: Instant, waker: &Waker) -> Look {
        let due = self.answers.get(&ticket).map(|answer| answer.due);
        if due.is_some_and(|due| due <= now)
            && let Some(answer) = self.answers.remove(&ticket)
        {
            self.awaited.remove(&ticket);
            return Look::Answer(answer);
        }
        if due.is_none() && self.closed {
            return Look::Closed;
        }
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
        Look::Wait(due)
    }

    /// Ends the connection; answers that were on their way are lost.
    pub(super) fn kill(&mut self) {
        self.closed = true;
        self.answers.clear();
        self.inbox.clear();
    }

    pub(super) fn take_wakers(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.wakers);
    }
}
