//! `XPENDING`: who holds what, for how long, and how often it was delivered.

use std::time::Duration;

use stream_core::{ConsumerName, EntryId, GroupName, StreamKey};

use super::{Command, decode, milliseconds};
use crate::{Error, Request, Value};

/// `XPENDING key group [IDLE ms] from to count [consumer]`: entries that are pending, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XPending {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// Only entries that nobody has touched for this long.
    pub min_idle: Option<Duration>,
    /// First id.
    pub from: EntryId,
    /// Leaves out [`from`](Self::from) itself: how to go on after the last id of a page.
    pub after: bool,
    /// Last id, inclusive.
    pub to: EntryId,
    /// At most this many.
    pub count: usize,
    /// Only entries of this consumer.
    pub consumer: Option<ConsumerName>,
}

/// One entry of a pending list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingEntry {
    /// The entry, which may be deleted from the stream.
    pub id: EntryId,
    /// Who holds it; nobody after `XNACK` (Redis 8.8).
    pub consumer: Option<ConsumerName>,
    /// Since when nobody has touched it; unknown after `XNACK`, when anybody may claim it at once.
    pub idle: Option<Duration>,
    /// How often it was delivered.
    pub deliveries: u64,
}

impl Command for XPending {
    type Reply = Vec<PendingEntry>;

    fn request(&self) -> Request {
        let mut request = Request::new("XPENDING").key(&self.key).arg(&self.group);
        if let Some(idle) = self.min_idle {
            request = request.arg("IDLE").int(milliseconds(idle));
        }
        request = if self.after { request.arg(format!("({}", self.from)) } else { request.id(self.from) };
        request = request.id(self.to).int(self.count);
        match &self.consumer {
            Some(consumer) => request.arg(consumer),
            None => request,
        }
    }

    fn decode(&self, value: Value) -> Result<Vec<PendingEntry>, Error> {
        decode::array(value)?.iter().map(pending_entry).collect()
    }
}

fn pending_entry(value: &Value) -> Result<PendingEntry, Error> {
    let Value::Array(parts) = value else {
        return Err(decode::unexpected("a pending entry", value));
    };
    let [id, consumer, idle, deliveries, ..] = parts.as_slice() else {
        return Err(decode::unexpected("a pending entry", value));
    };
    Ok(PendingEntry {
        id: decode::id(id)?,
        consumer: consumer_name(consumer)?,
        idle: u64::try_from(decode::int(idle)?).ok().map(Duration::from_millis),
        deliveries: u64::try_from(decode::int(deliveries)?).unwrap_or(0),
    })
}

/// `XPENDING key group`: the pending list in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XPendingSummary {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
}

/// A pending list in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingSummary {
    /// Entries that are pending.
    pub total: u64,
    /// The smallest pending id.
    pub first: Option<EntryId>,
    /// The greatest pending id.
    pub last: Option<EntryId>,
    /// Consumers that hold any, and how many. What nobody holds (after `XNACK`) is in [`total`](Self::total) alone.
    pub consumers: Vec<(ConsumerName, u64)>,
}

impl Command for XPendingSummary {
    type Reply = PendingSummary;

    fn request(&self) -> Request {
        Request::new("XPENDING").key(&self.key).arg(&self.group)
    }

    fn decode(&self, value: Value) -> Result<PendingSummary, Error> {
        let Value::Array(parts) = &value else {
            return Err(decode::unexpected("a summary of pending entries", &value));
        };
        let [total, first, last, holders] = parts.as_slice() else {
            return Err(decode::unexpected("a summary of pending entries", &value));
        };
        let mut consumers = Vec::new();
        match holders {
            Value::Nil => {}
            Value::Array(holders) => {
                for holder in holders {
                    match holder {
                        Value::Array(pair) if pair.len() == 2 => consumers.extend(holder_of(&pair[0], &pair[1])?),
                        holder => return Err(decode::unexpected("a consumer and a number", holder)),
                    }
                }
            }
            Value::Map(pairs) => {
                for (name, number) in pairs {
                    consumers.extend(holder_of(name, number)?);
                }
            }
            holders => return Err(decode::unexpected("consumers", holders)),
        }
        Ok(PendingSummary {
            total: decode::count(total)?,
            first: decode::optional_id(first)?,
            last: decode::optional_id(last)?,
            consumers,
        })
    }
}

fn holder_of(name: &Value, number: &Value) -> Result<Option<(ConsumerName, u64)>, Error> {
    let number = decode::count(number)?;
    Ok(consumer_name(name)?.map(|name| (name, number)))
}

fn consumer_name(value: &Value) -> Result<Option<ConsumerName>, Error> {
    match value {
        Value::Nil => Ok(None),
        Value::Bulk(name) => Ok(ConsumerName::new(name).ok()),
        value => Err(decode::unexpected("the name of a consumer", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{consumer, group, id, key, list, text, wire, words};

    fn range() -> XPending {
        XPending {
            key: key("s"),
            group: group("g"),
            min_idle: None,
            from: EntryId::ZERO,
            after: false,
            to: id(9, 0),
            count: 5,
            consumer: None,
        }
    }

    fn row(name: &str, idle: i64, deliveries: i64) -> Value {
        list([text("1-0"), text(name), Value::Int(idle), Value::Int(deliveries)])
    }

    #[test]
    fn ranges_encode() {
        let mut command = range();
        assert_eq!(
            wire(&command),
            "*6\r\n$8\r\nXPENDING\r\n$1\r\ns\r\n$1\r\ng\r\n$3\r\n0-0\r\n$3\r\n9-0\r\n$1\r\n5\r\n"
        );
        command.min_idle = Some(Duration::from_millis(30));
        command.after = true;
        command.from = id(2, 1);
        command.consumer = Some(consumer("c"));
        assert_eq!(words(&command), "XPENDING s g IDLE 30 (2-1 9-0 5 c");
    }

    #[test]
    fn ranges_decode() {
        let got = range().decode(list([row("c", 12, 3)])).unwrap();
        assert_eq!(
            got,
            [PendingEntry {
                id: id(1, 0),
                consumer: Some(consumer("c")),
                idle: Some(Duration::from_millis(12)),
                deliveries: 3,
            }]
        );
        // What XNACK of Redis 8.8 leaves behind.
        let got = range().decode(list([row("", -1, i64::MAX)])).unwrap();
        assert_eq!((got[0].consumer.clone(), got[0].idle, got[0].deliveries), (None, None, i64::MAX as u64));
        assert_eq!(range().decode(list([])).unwrap(), []);
        for value in [Value::Nil, list([list([text("1-0")])]), list([text("1-0")])] {
            assert!(range().decode(value).is_err());
        }
    }

    #[test]
    fn summaries_encode_and_decode() {
        let command = XPendingSummary { key: key("s"), group: group("g") };
        assert_eq!(words(&command), "XPENDING s g");
        let empty = command.decode(list([Value::Int(0), Value::Nil, Value::Nil, Value::Nil])).unwrap();
        assert_eq!(empty, PendingSummary { total: 0, first: None, last: None, consumers: vec![] });
        let holders = list([list([text("a"), text("2")]), list([text(""), text("1")])]);
        let got = command.decode(list([Value::Int(3), text("1-0"), text("3-0"), holders])).unwrap();
        assert_eq!((got.total, got.first, got.last), (3, Some(id(1, 0)), Some(id(3, 0))));
        assert_eq!(got.consumers, [(consumer("a"), 2)]);
        assert!(command.decode(list([Value::Int(0)])).is_err());
    }
}
