//! Reading and deleting entries of a stream without a group: `XRANGE`, `XREVRANGE`, `XLEN`, `XDEL`.

use stream_core::{Entry, EntryId, StreamKey};

use super::{Command, decode};
use crate::{Error, Request, Value};

/// `XRANGE key from to COUNT count`: entries in the order of their ids; none where the stream is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XRange {
    /// The stream.
    pub key: StreamKey,
    /// First id, inclusive.
    pub from: EntryId,
    /// Last id, inclusive.
    pub to: EntryId,
    /// At most this many; 0 asks for none.
    pub count: usize,
}

impl Command for XRange {
    type Reply = Vec<Entry>;

    fn request(&self) -> Request {
        Request::new("XRANGE").key(&self.key).id(self.from).id(self.to).arg("COUNT").int(self.count)
    }

    fn decode(&self, value: Value) -> Result<Vec<Entry>, Error> {
        Ok(decode::entries(value)?.entries)
    }
}

/// `XREVRANGE key + - COUNT 1`: the id of the last entry; `None` where there is no entry or no stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XLastEntry {
    /// The stream.
    pub key: StreamKey,
}

impl Command for XLastEntry {
    type Reply = Option<EntryId>;

    fn request(&self) -> Request {
        Request::new("XREVRANGE").key(&self.key).arg("+").arg("-").arg("COUNT").int(1)
    }

    fn decode(&self, value: Value) -> Result<Option<EntryId>, Error> {
        Ok(decode::entries(value)?.entries.first().map(Entry::id))
    }
}

/// `XLEN`: the number of entries; 0 where the stream is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XLen {
    /// The stream.
    pub key: StreamKey,
}

impl Command for XLen {
    type Reply = u64;

    fn request(&self) -> Request {
        Request::new("XLEN").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

/// `XDEL`: the number of entries that were deleted. Pending lists keep the ids of deleted entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XDel {
    /// The stream.
    pub key: StreamKey,
    /// At least one id.
    pub ids: Vec<EntryId>,
}

impl Command for XDel {
    type Reply = u64;

    fn request(&self) -> Request {
        self.ids.iter().fold(Request::new("XDEL").key(&self.key), |request, &id| request.id(id))
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{id, key, list, text, wire, words};

    #[test]
    fn ranges_encode_and_decode() {
        let command = XRange { key: key("s"), from: EntryId::ZERO, to: EntryId::MAX, count: 2 };
        assert_eq!(words(&command), "XRANGE s 0-0 18446744073709551615-18446744073709551615 COUNT 2");
        let reply = list([list([text("1-0"), list([text("b"), text("1"), text("a"), text("2")])])]);
        let expected = Entry::new(id(1, 0), [("b", "1"), ("a", "2")]).unwrap();
        assert_eq!(command.decode(reply).unwrap(), [expected]);
        assert_eq!(command.decode(list([])).unwrap(), []);
        let last = XLastEntry { key: key("s") };
        assert_eq!(words(&last), "XREVRANGE s + - COUNT 1");
        assert_eq!(last.decode(list([list([text("3-1"), list([text("b"), text("1")])])])).unwrap(), Some(id(3, 1)));
        assert_eq!(last.decode(list([])).unwrap(), None);
        // Redis answers nil for COUNT 0.
        assert_eq!(command.decode(Value::Nil).unwrap(), []);
    }

    #[test]
    fn lengths_and_deletions_encode_and_decode() {
        let length = XLen { key: key("s") };
        assert_eq!(wire(&length), "*2\r\n$4\r\nXLEN\r\n$1\r\ns\r\n");
        assert_eq!(length.decode(Value::Int(7)).unwrap(), 7);
        let delete = XDel { key: key("s"), ids: vec![id(1, 0), id(2, 0)] };
        assert_eq!(words(&delete), "XDEL s 1-0 2-0");
        assert_eq!(delete.decode(Value::Int(1)).unwrap(), 1);
    }
}
