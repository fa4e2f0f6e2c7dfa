//! `XADD`: appends an entry.

use bytes::Bytes;
use stream_core::{EntryId, StreamKey};

use super::{Command, Trim, decode};
use crate::{Error, Request, Value};

/// `XADD`: the id of the new entry, or `None` where the stream is missing and [`no_make`](Self::no_make) is set.
///
/// Not to be repeated after a lost connection unless [`id`](Self::id) is given: the entry may be there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XAdd {
    /// The stream.
    pub key: StreamKey,
    /// The id, greater than every id the stream ever had; `None` lets the server choose.
    pub id: Option<EntryId>,
    /// Names and values, at least one pair; order and duplicates are kept.
    pub fields: Vec<(Bytes, Bytes)>,
    /// Trims the stream on the way; takes entries that groups have not read yet just as well.
    pub trim: Option<Trim>,
    /// `NOMKSTREAM`: do not create the stream.
    pub no_make: bool,
}

impl XAdd {
    /// Appends `fields` with an id of the server's choice.
    pub fn new(key: StreamKey, fields: Vec<(Bytes, Bytes)>) -> Self {
        Self { key, id: None, fields, trim: None, no_make: false }
    }
}

impl Command for XAdd {
    type Reply = Option<EntryId>;

    fn request(&self) -> Request {
        let mut request = Request::new("XADD").key(&self.key);
        if self.no_make {
            request = request.arg("NOMKSTREAM");
        }
        if let Some(trim) = &self.trim {
            request = trim.push(request);
        }
        request = match self.id {
            Some(id) => request.id(id),
            None => request.arg("*"),
        };
        for (name, value) in &self.fields {
            request.push(name);
            request.push(value);
        }
        request
    }

    fn decode(&self, value: Value) -> Result<Option<EntryId>, Error> {
        decode::optional_id(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{id, key, text, wire, words};

    #[test]
    fn encodes_and_decodes() {
        let fields = vec![(Bytes::from("a"), Bytes::from("1")), (Bytes::from("a"), Bytes::new())];
        let mut command = XAdd::new(key("s"), fields);
        assert_eq!(
            wire(&command),
            "*7\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\na\r\n$0\r\n\r\n"
        );
        command.id = Some(id(5, 0));
        command.no_make = true;
        command.trim = Some(Trim::about(100));
        assert_eq!(words(&command), "XADD s NOMKSTREAM MAXLEN ~ 100 5-0 a 1 a ");
        assert_eq!(command.decode(text("5-0")).unwrap(), Some(id(5, 0)));
        assert_eq!(command.decode(Value::Nil).unwrap(), None);
        assert!(command.decode(text("OK")).is_err());
    }
}
