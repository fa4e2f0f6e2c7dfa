//! [`Queue`]: the entries that were accepted and not settled, in order. Decides which go next and what a reply means for
//! them; knows no connection and no clock.
//!
//! What must stay true: replies are to the entries in the order in which they were taken; and what was refused for a while
//! goes again before all that was accepted later, once nothing is on its way.

use std::collections::VecDeque;
use std::sync::Arc;

use stream_core::{Entry, EntryId, StreamKey};

use super::form::{self, Form, Marker};
use super::{PublishError, Unconfirmed};
use crate::appender::{Out, Reply};
use crate::command::{Script, script};
use crate::{Error, ErrorKind, Recovery, ServerError};

/// A batch ends here, in bytes of names and values, so that one reply timeout is enough for it.
const BATCH_BYTES: usize = 1 << 20;

/// `W` is whatever must live as long as the entry is not settled: who waits for it.
#[derive(Debug)]
pub(super) struct Queue<W> {
    entries: VecDeque<Accepted<W>>,
    /// So many from the front are on their way.
    in_flight: usize,
    /// The same by batches, the oldest first.
    batches: VecDeque<Batch>,
    /// Bytes of the entries that are not on their way.
    waiting_bytes: usize,
    /// What the server has refused for a while, until nothing is on its way.
    refused: VecDeque<Accepted<W>>,
    /// The number of the next entry that is accepted.
    next: u64,
}

#[derive(Debug)]
struct Accepted<W> {
    number: u64,
    entry: Entry,
    marker: Option<Box<Marker>>,
    maybe_written: bool,
    waiter: W,
}

/// A batch on its way.
#[derive(Debug)]
struct Batch {
    /// Whether the reply to the loading of the script comes first.
    loads: bool,
    /// Why the script could not be loaded for it.
    unscripted: Option<ServerError>,
    left: usize,
}

/// What came of some replies.
#[derive(Debug)]
pub(super) struct Settled<W> {
    /// Whom to tell what.
    pub(super) told: Vec<(W, Result<EntryId, PublishError>)>,
    /// Whether a batch has landed as a whole.
    pub(super) landed: bool,
    /// Whether the script was loaded,
    pub(super) loaded: bool,
    /// and whether the server does not know it.
    pub(super) forgotten: bool,
}

impl<W> Queue<W> {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            in_flight: 0,
            batches: VecDeque::new(),
            waiting_bytes: 0,
            refused: VecDeque::new(),
            next: 0,
        }
    }

    pub(super) fn push(&mut self, entry: Entry, marker: Option<Box<Marker>>, waiter: W) {
        self.waiting_bytes += entry.size();
        self.entries.push_back(Accepted { number: self.next, entry, marker, maybe_written: false, waiter });
        self.next += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() + self.refused.len()
    }

    /// Whether what waits makes up a batch of `most` entries, or of as many bytes as one may have.
    pub(super) fn is_complete(&self, most: usize) -> bool {
        self.entries.len() - self.in_flight >= most || self.waiting_bytes >= BATCH_BYTES
    }

    /// How many batches are on their way.
    pub(super) fn batches(&self) -> usize {
        self.batches.len()
    }

    /// The number that the next entry gets.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// All entries with smaller numbers are settled.
    pub(super) fn floor(&self) -> u64 {
        self.refused.front().or_else(|| self.entries.front()).map_or(self.next, |first| first.number)
    }

    /// Whether a batch of at most `most` entries can be made: of whatever there is while nothing is on its way, else only a
    /// complete one, as what comes meanwhile makes up a larger one.
    pub(super) fn may_take(&self, most: usize, form: &Form) -> bool {
        let Some(first) = self.entries.get(self.in_flight) else { return false };
        (self.batches.is_empty() || self.is_complete(most)) && form.may_follow(first.number, self.floor())
    }

    /// Takes the next batch, at most `most` entries and at least one if there is one, and puts out the commands that write
    /// it; before them the one that loads the script, where it is needed and not `loaded`. Returns how many they are.
    pub(super) fn take(&mut self, most: usize, loaded: bool, form: &Form, out: &mut Out<'_>) -> usize {
        let floor = self.floor();
        let (mut size, mut left) = (0, 0);
        let mut scripted = false;
        for accepted in self.entries.range(self.in_flight..).take(most) {
            let larger = size + accepted.entry.size();
            if left > 0 && (larger > BATCH_BYTES || !form.may_follow(accepted.number, floor)) {
                break;
            }
            (size, left) = (larger, left + 1);
            scripted |= accepted.marker.is_some();
        }
        if left == 0 {
            return 0;
        }
        let loads = scripted && !loaded;
        if loads {
            form::put(Script::publish_once().load(), out);
        }
        for Accepted { number, entry, marker, .. } in self.entries.range(self.in_flight..).take(left) {
            form.put(*number, entry, marker.as_deref(), out);
        }
        self.in_flight += left;
        self.waiting_bytes -= size;
        self.batches.push_back(Batch { loads, unscripted: None, left });
        left + usize::from(loads)
    }

    /// The next replies to what is on its way. Entries that may go through later stay; `again` is the first error for which
    /// some do.
    pub(super) fn settle(
        &mut self,
        key: &StreamKey,
        replies: impl ExactSizeIterator<Item = Reply>,
        again: &mut Option<Error>,
    ) -> Settled<W> {
        let mut settled =
            Settled { told: Vec::with_capacity(replies.len()), landed: false, loaded: false, forgotten: false };
        for reply in replies {
            let Some(batch) = self.batches.front_mut() else { break };
            if std::mem::take(&mut batch.loads) {
                match reply {
                    Reply::Error(error) => batch.unscripted = Some(error),
                    _ => settled.loaded = true,
                }
                continue;
            }
            let Some(accepted) = self.entries.pop_front() else { break };
            self.in_flight -= 1;
            batch.left -= 1;
            if let Reply::Id(id) = reply {
                settled.told.push((accepted.waiter, Ok(id)));
            } else {
                match judge(&accepted, reply, batch.unscripted.as_ref(), key) {
                    Judged::Told(told) => settled.told.push((accepted.waiter, told)),
                    Judged::Again(error) => {
                        settled.forgotten |= error.kind() == ErrorKind::NoScript;
                        // The one that asks for more goes first: a new connection also covers a wait.
                        let reconnect = |error: &Error| error.recovery() == Recovery::Reconnect;
                        if again.as_ref().is_none_or(|again| !reconnect(again) && reconnect(&error)) {
                            *again = Some(error);
                        }
                        self.refused.push_back(accepted);
                    }
                }
            }
            if batch.left == 0 {
                self.batches.pop_front();
                settled.landed = true;
            }
        }
        if self.batches.is_empty() {
            self.put_back();
        }
        settled
    }

    /// The connection failed: nobody knows what became of what is on its way. All of it stays.
    pub(super) fn lose(&mut self) {
        for accepted in self.entries.iter_mut().take(self.in_flight) {
            accepted.maybe_written = true;
            self.waiting_bytes += accepted.entry.size();
        }
        self.in_flight = 0;
        self.batches.clear();
        self.put_back();
    }

    /// What was refused goes in front of the rest, which was accepted later.
    fn put_back(&mut self) {
        self.waiting_bytes += self.refused.iter().map(|accepted| accepted.entry.size()).sum::<usize>();
        self.refused.append(&mut self.entries);
        std::mem::swap(&mut self.entries, &mut self.refused);
    }

    /// Empties the queue: what was not settled, and whom it concerns.
    pub(super) fn drain(&mut self) -> Vec<(W, Unconfirmed)> {
        self.lose();
        self.waiting_bytes = 0;
        let hand_back = |Accepted { entry, maybe_written, waiter, .. }| (waiter, Unconfirmed { entry, maybe_written });
        self.entries.drain(..).map(hand_back).collect()
    }
}

enum Judged {
    Told(Result<EntryId, PublishError>),
    Again(Error),
}

/// What a reply that is not simply an id means for its entry.
fn judge<W>(accepted: &Accepted<W>, reply: Reply, unscripted: Option<&ServerError>, key: &StreamKey) -> Judged {
    let once = accepted.marker.is_some();
    let error = match reply {
        Reply::Id(id) => return Judged::Told(Ok(id)),
        Reply::Nil if once => return Judged::Told(Err(PublishError::Duplicate)),
        // A reply that nobody understands was one to an entry that was written.
        Reply::Nil | Reply::Other => Error::new(ErrorKind::Protocol, "the reply to an entry is not an id"),
        Reply::Error(error) if once => inside(&error, unscripted),
        Reply::Error(error) => Error::from_server(error),
    };
    let error = error.at(if once { "EVALSHA publish_once" } else { "XADD" }, Some(key));
    let later = matches!(error.recovery(), Recovery::Retry | Recovery::Reconnect) && error.server().is_some();
    // A server that has forgotten the script gets it again.
    if later || (once && error.kind() == ErrorKind::NoScript) {
        return Judged::Again(error);
    }
    Judged::Told(Err(PublishError::failed(Arc::new(error), accepted.maybe_written)))
}

/// An error of the script, or why the server does not have it.
fn inside(error: &ServerError, unscripted: Option<&ServerError>) -> Error {
    let error = Error::from_server(script::inner(error));
    match unscripted {
        Some(reason) if error.kind() == ErrorKind::NoScript => Error::from_server(reason.clone()),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
