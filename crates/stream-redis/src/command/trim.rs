//! `XTRIM`, and the trimming that `XADD` can do on the way.
//!
//! What must stay true: trimming is exact unless asked otherwise, because whoever computed a floor means it.

use stream_core::{EntryId, StreamKey};

use super::{Command, decode};
use crate::{Error, Request, Value};

/// What a stream is trimmed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// Keep the newest this many entries.
    MaxLen(u64),
    /// Keep entries from this id on.
    MinId(EntryId),
}

/// How exactly a stream is trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Exactly as asked.
    #[default]
    Exact,
    /// `~`: whole nodes only (by default 100 entries or 4096 bytes), which is cheaper and keeps more.
    Approximate {
        /// `LIMIT`: look at no more than this many entries; `None` leaves it to the server, 0 is no limit.
        limit: Option<u64>,
    },
}

/// One way to trim a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trim {
    /// What is kept.
    pub to: TrimTo,
    /// How exactly.
    pub precision: Precision,
}

impl Trim {
    /// `MAXLEN ~ n`: the usual bound of a stream that is appended to.
    pub fn about(length: u64) -> Self {
        Self { to: TrimTo::MaxLen(length), precision: Precision::Approximate { limit: None } }
    }

    pub(crate) fn push(&self, request: Request) -> Request {
        let request = request.arg(match self.to {
            TrimTo::MaxLen(_) => "MAXLEN",
            TrimTo::MinId(_) => "MINID",
        });
        let request = request.arg(match self.precision {
            Precision::Exact => "=",
            Precision::Approximate { .. } => "~",
        });
        let request = match self.to {
            TrimTo::MaxLen(length) => request.int(length),
            TrimTo::MinId(id) => request.id(id),
        };
        match self.precision {
            Precision::Approximate { limit: Some(limit) } => request.arg("LIMIT").int(limit),
            _ => request,
        }
    }
}

/// `XTRIM`: the number of entries that were removed. They are gone also for groups that have them pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XTrim {
    /// The stream; a missing one is an empty one.
    pub key: StreamKey,
    /// What is kept.
    pub trim: Trim,
}

impl Command for XTrim {
    type Reply = u64;

    fn request(&self) -> Request {
        self.trim.push(Request::new("XTRIM").key(&self.key))
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{id, key, wire, words};

    fn check(to: TrimTo, precision: Precision, expected: &str) {
        assert_eq!(words(&XTrim { key: key("s"), trim: Trim { to, precision } }), expected);
    }

    #[test]
    fn encodes_each_way_to_trim() {
        check(TrimTo::MinId(id(5, 1)), Precision::Exact, "XTRIM s MINID = 5-1");
        check(TrimTo::MinId(id(5, 1)), Precision::Approximate { limit: Some(50) }, "XTRIM s MINID ~ 5-1 LIMIT 50");
        check(TrimTo::MaxLen(0), Precision::Exact, "XTRIM s MAXLEN = 0");
        check(TrimTo::MaxLen(9), Precision::Approximate { limit: None }, "XTRIM s MAXLEN ~ 9");
    }

    #[test]
    fn encodes_and_decodes() {
        let command = XTrim { key: key("s"), trim: Trim::about(10) };
        assert_eq!(wire(&command), "*5\r\n$5\r\nXTRIM\r\n$1\r\ns\r\n$6\r\nMAXLEN\r\n$1\r\n~\r\n$2\r\n10\r\n");
        assert_eq!(command.decode(Value::Int(3)).unwrap(), 3);
        assert!(command.decode(Value::Int(-1)).is_err());
    }
}
