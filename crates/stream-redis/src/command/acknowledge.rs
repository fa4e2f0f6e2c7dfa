//! `XACK`: takes entries out of the pending list of a group.

use stream_core::{EntryId, GroupName, StreamKey};

use super::{Command, decode};
use crate::{Error, Request, Value};

/// `XACK key group id…`: the number of entries that were pending and are not any more.
///
/// Fewer than asked is no error: an entry was acknowledged before, or the stream or the group is gone, for which the
/// server answers 0 and no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XAck {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// At least one id.
    pub ids: Vec<EntryId>,
}

/// What an id of our time takes at most, with a number of two digits.
const ID_BYTES: usize = 16;

impl Command for XAck {
    type Reply = u64;

    fn request(&self) -> Request {
        let mut request = Request::new("XACK").key(&self.key).arg(&self.group);
        request.reserve(self.ids.len(), ID_BYTES);
        self.ids.iter().fold(request, |request, &id| request.id(id))
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{group, id, key, wire};

    #[test]
    fn encodes_and_decodes() {
        let command = XAck { key: key("s"), group: group("g"), ids: vec![id(1, 0), id(2, 10)] };
        assert_eq!(wire(&command), "*5\r\n$4\r\nXACK\r\n$1\r\ns\r\n$1\r\ng\r\n$3\r\n1-0\r\n$4\r\n2-10\r\n");
        assert_eq!(command.decode(Value::Int(2)).unwrap(), 2);
        assert_eq!(command.decode(Value::Int(0)).unwrap(), 0);
        assert!(command.decode(Value::Nil).is_err());
    }
}
