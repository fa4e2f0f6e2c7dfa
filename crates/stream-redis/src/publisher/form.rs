//! [`Form`]: how an entry is written, as bytes for a stream of our own and as a [`Request`] for everything else.
//!
//! What must stay true: both say the same; and where the server recognises what it was given before, no entry is written
//! that would make it forget one that may have to be written again.

use stream_core::{Entry, StreamKey};

use crate::appender::Out;
use crate::command::{Script, Trim};
use crate::request::{self, Request, string};

/// What a server remembers of one producer by default.
pub(super) const REMEMBERED: usize = 100;
/// So many names a publisher goes by in turn, each for as many entries as a server remembers of it. So batches can follow
/// each other without waiting, and what is on its way is always remembered as a whole.
const NAMES: u64 = 4;

/// How to write entries.
#[derive(Debug)]
pub(super) struct Form {
    key: StreamKey,
    trim: Option<Trim>,
    /// Who asks, for the script that appends once.
    producer: String,
    /// The producer's names where the server recognises what it was given before, else none.
    names: Vec<String>,
    /// What all plain entries begin with, without the number of arguments,
    head: Vec<u8>,
    /// and how many arguments that is.
    arguments: usize,
}

/// What makes an entry one that is appended once only.
#[derive(Debug, Clone)]
pub(super) struct Marker {
    pub(super) key: StreamKey,
    /// For how long it counts.
    pub(super) seconds: u64,
}

impl Form {
    /// `idempotent` tells whether the server recognises what it was given before.
    pub(super) fn new(key: &StreamKey, trim: Option<Trim>, producer: &str, idempotent: bool) -> Self {
        let names = (0..if idempotent { NAMES } else { 0 }).map(|name| format!("{producer}-{name}")).collect();
        let mut form =
            Self { key: key.clone(), trim, producer: producer.to_owned(), names, head: Vec::new(), arguments: 0 };
        let head = form.begin();
        form.arguments = head.args().len();
        for argument in head.args() {
            string(argument, &mut form.head);
        }
        form
    }

    /// Whether the entry of this number may be written while the one of the number `floor` is not settled.
    pub(super) fn may_follow(&self, number: u64, floor: u64) -> bool {
        let round = |number: u64| number / REMEMBERED as u64;
        self.names.is_empty() || round(number) < round(floor) + NAMES
    }

    /// Puts out the command that writes an entry.
    pub(super) fn put(&self, number: u64, entry: &Entry, marker: Option<&Marker>, out: &mut Out<'_>) {
        match out {
            Out::Wire(wire) if marker.is_none() => self.encode(number, entry, wire),
            out => put(self.request(number, entry, marker), out),
        }
    }

    /// The same as the request encodes to, without the request.
    fn encode(&self, number: u64, entry: &Entry, wire: &mut Vec<u8>) {
        let fields = entry.fields();
        let name = self.name(number);
        let arguments = self.arguments + if name.is_some() { 3 } else { 0 } + 1 + 2 * fields.len();
        wire.reserve(self.head.len() + entry.size() + 64 + 32 * fields.len());
        request::begin(arguments, wire);
        wire.extend_from_slice(&self.head);
        if let Some(name) = name {
            string(b"IDMP", wire);
            string(name.as_bytes(), wire);
            string(itoa::Buffer::new().format(number).as_bytes(), wire);
        }
        wire.extend_from_slice(b"$1\r\n*\r\n");
        for (name, value) in fields {
            string(name, wire);
            string(value, wire);
        }
    }

    fn request(&self, number: u64, entry: &Entry, marker: Option<&Marker>) -> Request {
        let mut request = match marker {
            Some(Marker { key, seconds }) => {
                // Who asks: recognised if it has to ask again because the answer was lost.
                let asker = format!("{}:{number}", self.producer);
                self.bounded(Script::publish_once().call(&[&self.key, key]).int(*seconds).arg(asker))
            }
            None => match self.name(number) {
                Some(name) => self.begin().arg("IDMP").arg(name).int(number),
                None => self.begin(),
            },
        };
        request.push("*");
        for (name, value) in entry.fields() {
            request.push(name);
            request.push(value);
        }
        request
    }

    fn begin(&self) -> Request {
        self.bounded(Request::new("XADD").key(&self.key))
    }

    fn bounded(&self, request: Request) -> Request {
        match self.trim {
            Some(trim) => trim.push(request),
            None => request,
        }
    }

    fn name(&self, number: u64) -> Option<&str> {
        if self.names.is_empty() {
            return None;
        }
        let round = number / REMEMBERED as u64;
        Some(&self.names[(round % NAMES) as usize])
    }
}

/// Puts out any command.
pub(super) fn put(request: Request, out: &mut Out<'_>) {
    match out {
        Out::Wire(wire) => request.encode(wire),
        Out::Requests(requests) => requests.push(request),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, VecDeque};

    use proptest::prelude::*;
    use stream_core::EntryId;

    use super::*;
    use crate::command::tests::key;

    fn words(form: &Form, number: u64, marker: Option<&Marker>) -> String {
        let mut requests = Vec::new();
        let entry = Entry::new(EntryId::ZERO, [("n", "x")]).unwrap();
        form.put(number, &entry, marker, &mut Out::Requests(&mut requests));
        requests[0].args().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn entries_are_written_as_configured() {
        let plain = Form::new(&key("s"), None, "p", false);
        assert_eq!(words(&plain, 7, None), "XADD s * n x");
        let bounded = Form::new(&key("s"), Some(Trim::about(50)), "p", true);
        assert_eq!(words(&bounded, 7, None), "XADD s MAXLEN ~ 50 IDMP p-0 7 * n x");
        assert_eq!(words(&bounded, 399, None), "XADD s MAXLEN ~ 50 IDMP p-3 399 * n x");
        assert_eq!(words(&bounded, 400, None), "XADD s MAXLEN ~ 50 IDMP p-0 400 * n x");
        let sha = Script::publish_once().sha();
        let marker = Marker { key: key("m"), seconds: 300 };
        assert_eq!(words(&bounded, 7, Some(&marker)), format!("EVALSHA {sha} 2 s m 300 p:7 MAXLEN ~ 50 * n x"));
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_request(
            fields in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..300)), 1..6),
            number: u64,
            trim in prop_oneof![Just(None), (0_u64..1 << 40).prop_map(|length| Some(Trim::about(length)))],
            idempotent: bool,
            marked: bool,
        ) {
            let form = Form::new(&key("orders"), trim, "producer", idempotent);
            let entry = Entry::new(EntryId::ZERO, fields).unwrap();
            let marker = marked.then(|| Marker { key: key("m"), seconds: 9 });
            let (mut wire, mut requests, mut encoded) = (vec![7], Vec::new(), vec![7]);
            form.put(number, &entry, marker.as_ref(), &mut Out::Wire(&mut wire));
            form.put(number, &entry, marker.as_ref(), &mut Out::Requests(&mut requests));
            requests[0].encode(&mut encoded);
            prop_assert_eq!(wire, encoded);
        }

        /// A server that remembers the last hundred numbers of each name remembers every entry that is not settled, in
        /// whatever order entries are settled.
        #[test]
        fn what_is_not_settled_is_never_forgotten(order in prop::collection::vec(any::<prop::sample::Index>(), 0..900)) {
            let form = Form::new(&key("s"), None, "p", true);
            let mut remembered: HashMap<&str, VecDeque<u64>> = HashMap::new();
            let mut open = Vec::new();
            let mut next = 0;
            for index in order {
                while form.may_follow(next, open.first().copied().unwrap_or(next)) {
                    let numbers = remembered.entry(form.name(next).unwrap()).or_default();
                    numbers.push_back(next);
                    if numbers.len() > REMEMBERED {
                        numbers.pop_front();
                    }
                    open.push(next);
                    next += 1;
                }
                for place in [0, index.index(open.len())] {
                    let number = open[place];
                    prop_assert!(remembered[form.name(number).unwrap()].contains(&number), "{number} of {next}");
                }
                open.remove(index.index(open.len().min(150)));
            }
        }
    }
}
