//! `XINFO`: what a stream, its groups and their consumers look like.
//!
//! What must stay true: what a version does not report is `None`. An unknown lag is not a lag of 0.

use std::time::Duration;

use stream_core::{ConsumerName, EntryId, GroupName, StreamFacts, StreamKey};

use super::Command;
use super::decode::{self, Info};
use crate::{Error, ErrorKind, Request, Value};

/// `XINFO STREAM`; a missing stream is [`ErrorKind::Missing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XInfoStream {
    /// The stream.
    pub key: StreamKey,
}

/// A stream as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Entries in it.
    pub length: u64,
    /// The greatest id it ever had, also when that entry is gone.
    pub last_generated_id: EntryId,
    /// Entries it ever had; since Redis 7.0.
    pub entries_added: Option<u64>,
    /// The smallest id in it.
    pub first_entry: Option<EntryId>,
    /// The greatest id in it.
    pub last_entry: Option<EntryId>,
    /// The greatest id that was deleted, `0-0` if none was; since Redis 7.0.
    pub max_deleted: Option<EntryId>,
    /// How many groups it has.
    pub groups: u64,
}

impl StreamInfo {
    /// What a comparison with an earlier or a later look needs.
    pub fn facts(&self) -> StreamFacts {
        StreamFacts {
            length: self.length,
            last_generated: self.last_generated_id,
            first: self.first_entry,
            entries_added: self.entries_added,
            max_deleted: self.max_deleted,
        }
    }
}

impl Command for XInfoStream {
    type Reply = StreamInfo;

    fn request(&self) -> Request {
        Request::new("XINFO STREAM").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<StreamInfo, Error> {
        let info = Info::new(value)?;
        let entry = |name| match info.get(name) {
            Some(Value::Array(parts)) if !parts.is_empty() => decode::id(&parts[0]).map(Some),
            Some(value) => Err(decode::unexpected("an entry", value)),
            None => Ok(None),
        };
        Ok(StreamInfo {
            length: decode::count(info.need("length")?)?,
            last_generated_id: decode::id(info.need("last-generated-id")?)?,
            entries_added: info.get("entries-added").map(decode::count).transpose()?,
            first_entry: entry("first-entry")?,
            last_entry: entry("last-entry")?,
            max_deleted: info.get("max-deleted-entry-id").map(decode::id).transpose()?,
            groups: decode::count(info.need("groups")?)?,
        })
    }
}

/// `XINFO GROUPS`; a missing stream is [`ErrorKind::Missing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XInfoGroups {
    /// The stream.
    pub key: StreamKey,
}

/// One group of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: GroupName,
    /// How many consumers it knows, alive or not.
    pub consumers: u64,
    /// Entries that are pending.
    pub pending: u64,
    /// The greatest id it has delivered.
    pub last_delivered: EntryId,
    /// How many entries it has delivered, where the server knows; since Redis 7.0.
    pub entries_read: Option<u64>,
    /// How many entries it has yet to deliver, where the server knows; since Redis 7.0.
    pub lag: Option<u64>,
}

impl Command for XInfoGroups {
    type Reply = Vec<GroupInfo>;

    fn request(&self) -> Request {
        Request::new("XINFO GROUPS").key(&self.key)
    }

    /// A group with an empty name, which other clients can make, is [`ErrorKind::Refused`]: leaving it out would let a
    /// trimmer take what it has not read.
    fn decode(&self, value: Value) -> Result<Vec<GroupInfo>, Error> {
        let group = |value| {
            let info = Info::new(value)?;
            let name = info.need("name")?;
            let name = name.as_bytes().ok_or_else(|| decode::unexpected("the name of a group", name))?;
            let name = GroupName::new(name).map_err(|error| {
                Error::new(
                    ErrorKind::Refused,
                    "the stream has a group with an empty name: destroy it or use another stream",
                )
                .with_source(error)
            })?;
            Ok(GroupInfo {
                name,
                consumers: decode::count(info.need("consumers")?)?,
                pending: decode::count(info.need("pending")?)?,
                last_delivered: decode::id(info.need("last-delivered-id")?)?,
                entries_read: info.get("entries-read").map(decode::count).transpose()?,
                // After XSETID or a lossy failover the server's own sum can come out below zero: then nobody knows it.
                lag: info.get("lag").map(decode::int).transpose()?.and_then(|lag| u64::try_from(lag).ok()),
            })
        };
        decode::array(value)?.into_iter().map(group).collect()
    }
}

/// `XINFO CONSUMERS`; a missing stream or group is [`ErrorKind::Missing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XInfoConsumers {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
}

/// One consumer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: ConsumerName,
    /// Entries it holds.
    pub pending: u64,
    /// Since its last attempt to read or claim; before Redis 7.2 since the last one that brought something.
    pub idle: Duration,
    /// Since the last delivery, `None` where it never had one or the server (before Redis 7.2) does not say.
    pub inactive: Option<Duration>,
    /// Whether the server counts reads that bring nothing as a sign of life (Redis 7.2 and later); then it has `inactive`.
    pub polls_count: bool,
}

impl Command for XInfoConsumers {
    type Reply = Vec<ConsumerInfo>;

    fn request(&self) -> Request {
        Request::new("XINFO CONSUMERS").key(&self.key).arg(&self.group)
    }

    /// A consumer with an empty name, which other clients can make, is left out: it cannot be addressed here.
    fn decode(&self, value: Value) -> Result<Vec<ConsumerInfo>, Error> {
        let mut consumers = Vec::new();
        for value in decode::array(value)? {
            let info = Info::new(value)?;
            let name = info.need("name")?;
            let name = name.as_bytes().ok_or_else(|| decode::unexpected("the name of a consumer", name))?;
            let Ok(name) = ConsumerName::new(name) else { continue };
            let inactive = info.get("inactive").map(decode::int).transpose()?;
            consumers.push(ConsumerInfo {
                name,
                polls_count: inactive.is_some(),
                pending: decode::count(info.need("pending")?)?,
                idle: Duration::from_millis(decode::count(info.need("idle")?)?),
                inactive: inactive.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis),
            });
        }
        Ok(consumers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{consumer, group, id, key, list, text, wire, words};

    /// The same pairs as the flat array of RESP2 and as the map of RESP3.
    fn both(pairs: &[(&str, Value)]) -> [Value; 2] {
        let flat = list(pairs.iter().flat_map(|(name, value)| [text(name), value.clone()]));
        let map = Value::Map(pairs.iter().map(|(name, value)| (text(name), value.clone())).collect());
        [flat, map]
    }

    #[test]
    fn streams_encode_and_decode() {
        let command = XInfoStream { key: key("s") };
        assert_eq!(wire(&command), "*3\r\n$5\r\nXINFO\r\n$6\r\nSTREAM\r\n$1\r\ns\r\n");
        let entry = list([text("1-0"), list([text("f"), text("v")])]);
        let new = [
            ("length", Value::Int(2)),
            ("radix-tree-keys", Value::Int(1)),
            ("last-generated-id", text("9-1")),
            ("max-deleted-entry-id", text("0-0")),
            ("entries-added", Value::Int(5)),
            ("groups", Value::Int(1)),
            ("first-entry", entry),
            ("last-entry", list([text("8-0"), list([])])),
        ];
        for value in both(&new) {
            let got = command.decode(value).unwrap();
            assert_eq!(
                got,
                StreamInfo {
                    length: 2,
                    last_generated_id: id(9, 1),
                    entries_added: Some(5),
                    first_entry: Some(id(1, 0)),
                    last_entry: Some(id(8, 0)),
                    max_deleted: Some(EntryId::ZERO),
                    groups: 1,
                }
            );
        }
        let old = [
            ("length", Value::Int(0)),
            ("last-generated-id", text("0-0")),
            ("groups", Value::Int(0)),
            ("first-entry", Value::Nil),
        ];
        for value in both(&old) {
            let got = command.decode(value).unwrap();
            assert_eq!((got.entries_added, got.first_entry, got.max_deleted), (None, None, None));
        }
        let error = command.decode(list([])).unwrap_err();
        assert_eq!(error.to_string(), "the reply has no field `length`");
    }

    #[test]
    fn groups_encode_and_decode() {
        let command = XInfoGroups { key: key("s") };
        assert_eq!(words(&command), "XINFO GROUPS s");
        let old = [
            ("name", text("g")),
            ("consumers", Value::Int(1)),
            ("pending", Value::Int(2)),
            ("last-delivered-id", text("4-0")),
        ];
        for value in both(&old) {
            let got = command.decode(list([value])).unwrap();
            assert_eq!(
                got,
                [GroupInfo {
                    name: group("g"),
                    consumers: 1,
                    pending: 2,
                    last_delivered: id(4, 0),
                    entries_read: None,
                    lag: None,
                }]
            );
        }
        let mut new = old.to_vec();
        new.extend([("entries-read", Value::Nil), ("lag", Value::Int(7))]);
        for value in both(&new) {
            let got = command.decode(list([value])).unwrap();
            assert_eq!((got[0].entries_read, got[0].lag), (None, Some(7)));
        }
        new[0].1 = text("");
        assert_eq!(command.decode(list(both(&new))).unwrap_err().kind(), ErrorKind::Refused);
    }

    #[test]
    fn consumers_encode_and_decode() {
        let command = XInfoConsumers { key: key("s"), group: group("g") };
        assert_eq!(words(&command), "XINFO CONSUMERS s g");
        let pairs = |name, inactive| {
            let mut pairs = vec![("name", text(name)), ("pending", Value::Int(1)), ("idle", Value::Int(1500))];
            pairs.extend(Option::map(inactive, |ms| ("inactive", Value::Int(ms))));
            pairs
        };
        for (inactive, expected) in [(None, None), (Some(-1), None), (Some(20), Some(Duration::from_millis(20)))] {
            for value in both(&pairs("c", inactive)) {
                let got = command.decode(list([value])).unwrap();
                assert_eq!(
                    got,
                    [ConsumerInfo {
                        polls_count: inactive.is_some(),
                        name: consumer("c"),
                        pending: 1,
                        idle: Duration::from_millis(1500),
                        inactive: expected,
                    }]
                );
            }
        }
        assert_eq!(command.decode(list(both(&pairs("", None)))).unwrap(), []);
    }
}
