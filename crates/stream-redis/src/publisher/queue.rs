//! [`Queue`]: the entries that were accepted and not settled, in order. Decides which go next and what a reply means for
//! them; knows no connection and no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use stream_core::{Entry, EntryId, StreamKey};

use super::{PublishError, Unconfirmed};
use crate::command::{Script, Trim, script};
use crate::{Error, ErrorKind, Recovery, Request, ServerError, Value};

/// A batch ends here, in bytes of names and values, so that one reply timeout is enough for it.
const BATCH_BYTES: usize = 1 << 20;

/// How to write an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) key: &'a StreamKey,
    pub(super) trim: Option<Trim>,
    /// The producer's name.
    pub(super) producer: &'a str,
    /// Whether the server recognises what it was given before.
    pub(super) idempotent: bool,
}

/// What makes an entry one that is appended once only.
#[derive(Debug, Clone)]
pub(super) struct Marker {
    pub(super) key: StreamKey,
    /// For how long it counts.
    pub(super) seconds: u64,
}

/// `W` is whatever must live as long as the entry is not settled: who waits for it, and its place in the buffer.
#[derive(Debug)]
pub(super) struct Queue<W> {
    entries: VecDeque<Accepted<W>>,
    /// So many from the front are on their way.
    in_flight: usize,
    /// The number of the next entry that is accepted.
    next: u64,
}

#[derive(Debug)]
struct Accepted<W> {
    number: u64,
    entry: Entry,
    marker: Option<Marker>,
    maybe_written: bool,
    waiter: W,
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Settled<W> {
    /// Whom to tell what.
    pub(super) told: Vec<(W, Result<EntryId, PublishError>)>,
    /// The first error for which entries stay in the queue.
    pub(super) again: Option<Error>,
}

impl<W> Queue<W> {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), in_flight: 0, next: 0 }
    }

    pub(super) fn push(&mut self, entry: Entry, marker: Option<Marker>, waiter: W) {
        self.entries.push_back(Accepted { number: self.next, entry, marker, maybe_written: false, waiter });
        self.next += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number that the next entry gets.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// All entries with smaller numbers are settled.
    pub(super) fn floor(&self) -> u64 {
        self.entries.front().map_or(self.next, |first| first.number)
    }

    /// Takes the next batch, at most `most` entries and at least one if there is one: the commands that write it.
    pub(super) fn take(&mut self, most: usize, form: Form<'_>) -> Vec<Request> {
        let mut size = 0;
        let mut requests = Vec::new();
        for accepted in self.entries.iter().take(most) {
            size += accepted.entry.size();
            if size > BATCH_BYTES && !requests.is_empty() {
                break;
            }
            requests.push(accepted.request(form));
        }
        self.in_flight = requests.len();
        requests
    }

    /// Whether the batch on its way needs the script that appends once.
    pub(super) fn needs_script(&self) -> bool {
        self.entries.iter().take(self.in_flight).any(|accepted| accepted.marker.is_some())
    }

    /// The replies to the batch on its way, one each, and why the script could not be loaded for it. Entries that may go
    /// through later stay, in front and in order.
    pub(super) fn settle(
        &mut self,
        key: &StreamKey,
        replies: Vec<Result<Value, ServerError>>,
        unscripted: Option<&ServerError>,
    ) -> Settled<W> {
        let mut settled = Settled { told: Vec::with_capacity(replies.len()), again: None };
        let mut kept = VecDeque::new();
        for (accepted, reply) in self.entries.drain(..self.in_flight).zip(replies) {
            let once = accepted.marker.is_some();
            let refusal = |error| if once { inside(&error, unscripted) } else { Error::from_server(error) };
            let error = match reply.map_err(refusal).and_then(|value| decode(once, &value)) {
                Ok(Some(id)) => {
                    settled.told.push((accepted.waiter, Ok(id)));
                    continue;
                }
                Ok(None) => {
                    settled.told.push((accepted.waiter, Err(PublishError::Duplicate)));
                    continue;
                }
                Err(error) => error.at(if once { "EVALSHA publish_once" } else { "XADD" }, Some(key)),
            };
            // A reply that nobody understands was one to an entry that was written.
            let later = matches!(error.recovery(), Recovery::Retry | Recovery::Reconnect) && error.server().is_some();
            // A server that has forgotten the script gets it again.
            if later || (once && error.kind() == ErrorKind::NoScript) {
                // The one that asks for more goes first: a new connection also covers a wait.
                if settled.again.as_ref().is_none_or(|again| again.recovery() != Recovery::Reconnect) {
                    settled.again = Some(error);
                }
                kept.push_back(accepted);
            } else {
                settled.told.push((accepted.waiter, Err(PublishError::Failed(Arc::new(error)))));
            }
        }
        kept.append(&mut self.entries);
        self.entries = kept;
        self.in_flight = 0;
        settled
    }

    /// The connection failed: nobody knows what became of the batch on its way. All of it stays.
    pub(super) fn lose(&mut self) {
        for accepted in self.entries.iter_mut().take(self.in_flight) {
            accepted.maybe_written = true;
        }
        self.in_flight = 0;
    }

    /// Empties the queue: what was not settled, and whom it concerns.
    pub(super) fn drain(&mut self) -> Vec<(W, Unconfirmed)> {
        self.lose();
        let hand_back = |Accepted { entry, maybe_written, waiter, .. }| (waiter, Unconfirmed { entry, maybe_written });
        self.entries.drain(..).map(hand_back).collect()
    }
}

impl<W> Accepted<W> {
    fn request(&self, form: Form<'_>) -> Request {
        let mut request = match &self.marker {
            Some(Marker { key, seconds }) => {
                // Who asks: recognised if it has to ask again because the answer was lost.
                let asker = format!("{}:{}", form.producer, self.number);
                Script::publish_once().call(&[form.key, key]).int(*seconds).arg(asker)
            }
            None => Request::new("XADD").key(form.key),
        };
        if let Some(trim) = form.trim {
            request = trim.push(request);
        }
        if form.idempotent && self.marker.is_none() {
            request = request.arg("IDMP").arg(form.producer).int(self.number);
        }
        request.push("*");
        for (name, value) in self.entry.fields() {
            request.push(name);
            request.push(value);
        }
        request
    }
}

/// The id; `None` for an entry that was appended before.
fn decode(once: bool, reply: &Value) -> Result<Option<EntryId>, Error> {
    if once && *reply == Value::Nil {
        return Ok(None);
    }
    let id = reply.as_bytes().and_then(|text| EntryId::parse(text).ok());
    id.map(Some).ok_or_else(|| Error::new(ErrorKind::Protocol, "the reply to an entry is not an id"))
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
mod tests {
    use super::*;

    fn queue(entries: u64) -> Queue<u64> {
        let mut queue = Queue::new();
        for number in 0..entries {
            queue.push(Entry::new(EntryId::ZERO, [("n", number.to_string())]).unwrap(), None, number);
        }
        queue
    }

    fn key() -> StreamKey {
        StreamKey::new("s").unwrap()
    }

    fn words(request: &Request) -> String {
        request.args().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join(" ")
    }

    fn id(number: u64) -> Value {
        Value::bulk(format!("7-{number}"))
    }

    fn error(line: &str) -> Result<Value, ServerError> {
        Err(ServerError::parse(line))
    }

    #[test]
    fn entries_are_written_as_configured() {
        let key = key();
        let plain = Form { key: &key, trim: None, producer: "p", idempotent: false };
        let mut queue = queue(2);
        assert_eq!(queue.take(10, plain).iter().map(words).collect::<Vec<_>>(), ["XADD s * n 0", "XADD s * n 1"]);
        let form = Form { trim: Some(Trim::about(50)), idempotent: true, ..plain };
        assert_eq!(words(&queue.take(1, form)[0]), "XADD s MAXLEN ~ 50 IDMP p 0 * n 0");
    }

    #[test]
    fn a_batch_ends_at_its_size_but_holds_at_least_one() {
        let key = key();
        let form = Form { key: &key, trim: None, producer: "p", idempotent: false };
        let mut queue = Queue::new();
        for size in [BATCH_BYTES + 1, 10, BATCH_BYTES - 20, 100] {
            queue.push(Entry::new(EntryId::ZERO, [("", vec![0; size])]).unwrap(), None, ());
        }
        let mut sizes = Vec::new();
        while queue.len() > 0 {
            let batch = queue.take(10, form).len();
            sizes.push(batch);
            queue.settle(&key, vec![Ok(id(0)); batch], None);
        }
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn what_may_go_through_later_stays_in_front_and_in_order() {
        let key = key();
        let form = Form { key: &key, trim: None, producer: "p", idempotent: false };
        let mut queue = queue(6);
        queue.take(5, form);
        let settled = queue.settle(
            &key,
            vec![
                error("OOM command not allowed when used memory > 'maxmemory'."),
                Ok(id(1)),
                error("WRONGTYPE Operation against a key holding the wrong kind of value"),
                error("READONLY You can't write against a read only replica."),
                Ok(Value::Nil),
            ],
            None,
        );
        let told: Vec<_> = settled.told.iter().map(|(number, told)| (*number, told.is_ok())).collect();
        assert_eq!(told, [(1, true), (2, false), (4, false)]);
        assert_eq!(settled.again.unwrap().kind(), ErrorKind::Moved);
        assert_eq!((queue.floor(), queue.len()), (0, 3));
        let again: Vec<_> = queue.take(10, form).iter().map(words).collect();
        assert_eq!(again, ["XADD s * n 0", "XADD s * n 3", "XADD s * n 5"]);
        queue.settle(&key, [2, 3, 4].map(|number| Ok(id(number))).into(), None);
        assert_eq!((queue.floor(), queue.next(), queue.len()), (6, 6, 0));
    }

    #[test]
    fn only_what_was_on_its_way_may_be_written() {
        let key = key();
        let form = Form { key: &key, trim: None, producer: "p", idempotent: false };
        let mut queue = queue(3);
        queue.take(1, form);
        queue.lose();
        queue.take(2, form);
        let left: Vec<_> = queue.drain().into_iter().map(|(number, left)| (number, left.maybe_written)).collect();
        assert_eq!(left, [(0, true), (1, true), (2, false)]);
        assert_eq!(queue.floor(), 3);
    }

    #[test]
    fn a_marked_entry_goes_through_the_script_and_may_turn_out_a_duplicate() {
        let key = key();
        let form = Form { key: &key, trim: Some(Trim::about(50)), producer: "p", idempotent: true };
        let mut queue = Queue::new();
        for number in 0..4 {
            let marker = Marker { key: StreamKey::new(format!("m{number}")).unwrap(), seconds: 300 };
            queue.push(Entry::new(EntryId::ZERO, [("n", number.to_string())]).unwrap(), Some(marker), number);
        }
        let requests = queue.take(10, form);
        assert!(queue.needs_script());
        let sha = Script::publish_once().sha();
        assert_eq!(words(&requests[3]), format!("EVALSHA {sha} 2 s m3 300 p:3 MAXLEN ~ 50 * n 3"));
        let wrong = "@user_script: 30: WRONGTYPE Operation against a key holding the wrong kind of value";
        let replies = vec![Ok(id(0)), Ok(Value::Nil), error("NOSCRIPT No matching script."), error(wrong)];
        let settled = queue.settle(&key, replies, None);
        assert_eq!(settled.again.unwrap().kind(), ErrorKind::NoScript);
        let [(0, Ok(_)), (1, Err(PublishError::Duplicate)), (3, Err(PublishError::Failed(wrong)))] = &settled.told[..]
        else {
            panic!("{:?}", settled.told);
        };
        assert_eq!(wrong.kind(), ErrorKind::WrongType);
        assert_eq!((queue.len(), queue.floor()), (1, 2));
        queue.take(10, form);
        let refused = ServerError::parse("NOPERM User u has no permissions to run the 'script|load' command");
        let settled = queue.settle(&key, vec![error("NOSCRIPT No matching script.")], Some(&refused));
        let [(2, Err(PublishError::Failed(error)))] = &settled.told[..] else { panic!("{:?}", settled.told) };
        assert_eq!(error.kind(), ErrorKind::NoPermission);
    }
}
