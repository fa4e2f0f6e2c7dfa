//! Slots: which one a key is in, which node owns it, and where a redirection leads. Pure.

use std::sync::Arc;

use crate::{Error, ErrorKind, ServerError, Value};

/// Slots of a cluster, whatever its size.
const SLOTS: u16 = 16_384;

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl Node {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

/// The slot of a key: CRC-16 (XMODEM) of its hash tag, or of all of it where it has none (Redis Cluster specification).
pub(super) fn of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&byte| byte == b'}').filter(|&length| length > 0).map(|length| &rest[..length])
    });
    stream_core::crc16(tag.unwrap_or(key)) % SLOTS
}

/// Who owns which slots.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotMap {
    /// First and last slot and the owner, ascending, without overlaps.
    ranges: Vec<(u16, u16, Node)>,
}

impl SlotMap {
    /// Reads the reply to `CLUSTER SLOTS`. A node that does not know its own address is the one that was asked.
    pub(super) fn read(reply: &Value, asked: &Node) -> Result<Self, Error> {
        let unexpected = || Error::new(ErrorKind::Protocol, "CLUSTER SLOTS answered with something else than slots");
        let Value::Array(rows) = reply else { return Err(unexpected()) };
        let slot =
            |value: &Value| value.as_int().and_then(|slot| u16::try_from(slot).ok()).filter(|slot| *slot < SLOTS);
        let mut ranges = Vec::with_capacity(rows.len());
        for row in rows {
            let Value::Array(row) = row else { return Err(unexpected()) };
            let [first, last, Value::Array(owner), ..] = row.as_slice() else { return Err(unexpected()) };
            let (Some(first), Some(last), [host, port, ..]) = (slot(first), slot(last), owner.as_slice()) else {
                return Err(unexpected());
            };
            let host = host.as_bytes().and_then(|host| std::str::from_utf8(host).ok()).filter(|host| !host.is_empty());
            let port = port.as_int().and_then(|port| u16::try_from(port).ok()).ok_or_else(unexpected)?;
            ranges.push((first, last, Node { host: host.map_or_else(|| Arc::clone(&asked.host), Arc::from), port }));
        }
        ranges.sort();
        // Each slot has one owner: what says otherwise is no map.
        let ends = ranges.iter().map(|(_, last, _)| *last);
        if ranges.iter().any(|(first, last, _)| first > last)
            || ranges.iter().skip(1).zip(ends).any(|(row, end)| row.0 <= end)
        {
            return Err(unexpected());
        }
        Ok(Self { ranges })
    }

    /// Whether it tells of no node at all, as that of a node which has forgotten its cluster.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The owner of a slot, where it has one.
    pub(super) fn owner(&self, slot: u16) -> Option<&Node> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, node) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(node)
    }

    /// All owners, each once.
    pub(super) fn nodes(&self) -> Vec<&Node> {
        let mut nodes: Vec<_> = self.ranges.iter().map(|(.., node)| node).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// Notes that `slot` is somebody else's now, until the whole map is read again.
    pub(super) fn moved(&mut self, slot: u16, node: Node) {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 2);
        for (first, last, owner) in self.ranges.drain(..) {
            if slot < first || slot > last {
                ranges.push((first, last, owner));
                continue;
            }
            if first < slot {
                ranges.push((first, slot - 1, owner.clone()));
            }
            if slot < last {
                ranges.push((slot + 1, last, owner));
            }
        }
        ranges.push((slot, slot, node));
        ranges.sort();
        self.ranges = ranges;
    }
}

/// Where an error reply says that the command has to be sent instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot has another owner for good.
    Moved(u16, Node),
    /// The key is on its way to this node, which takes commands for it after `ASKING`.
    Ask(Node),
}

/// Reads `MOVED slot host:port` and `ASK slot host:port`. Without a host it is the one of the node that said so.
pub(super) fn redirection(error: &ServerError, from: &Node) -> Option<Redirection> {
    let (slot, address) = error.detail.split_once(' ')?;
    let (host, port) = address.split(' ').next()?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { &from.host } else { host };
    let node = Node::new(host, port.parse().ok()?);
    match error.code.as_str() {
        "MOVED" => Some(Redirection::Moved(slot.parse().ok().filter(|slot| *slot < SLOTS)?, node)),
        "ASK" => Some(Redirection::Ask(node)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_map_in_which_a_slot_has_two_owners_is_none() {
        let row = |first: i64, last: i64| {
            let owner = Value::Array(vec![Value::bulk("a"), Value::Int(7000)]);
            Value::Array(vec![Value::Int(first), Value::Int(last), owner])
        };
        let read = |rows: &[(i64, i64)]| {
            let rows = rows.iter().map(|(first, last)| row(*first, *last)).collect();
            SlotMap::read(&Value::Array(rows), &Node::new("asked", 1)).map_err(|error| error.kind())
        };
        assert!(read(&[(6, 9), (0, 5)]).is_ok());
        for rows in [&[(0, 5), (5, 9)][..], &[(0, 9), (2, 3)], &[(0, 9), (2, 3), (5, 6)], &[(5, 4)]] {
            assert_eq!(read(rows).err(), Some(ErrorKind::Protocol), "{rows:?}");
        }
    }

    #[test]
    fn keys_are_in_the_slots_of_the_specification() {
        // 12739 is the check value of the specification; the others were asked of a server with CLUSTER KEYSLOT.
        for (key, slot) in [("123456789", 12739), ("foo", 12182), ("{foo}:dead", 12182), ("", 0)] {
            assert_eq!(of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(of(b"a{}{foo}"), of(b"a{}{foo}"));
        assert_ne!(of(b"a{}{foo}"), of(b"foo"), "an empty tag is none, and the whole key counts");
        assert_eq!(of(b"a{foo}{bar}"), of(b"foo"));
        assert_eq!(of(b"a{{foo}}b"), of(b"{foo"));
    }

    fn map(ranges: &[(u16, u16, &str)]) -> SlotMap {
        let row = |&(first, last, host): &(u16, u16, &str)| {
            let owner = Value::Array(vec![Value::bulk(host), Value::Int(7000), Value::bulk("id")]);
            Value::Array(vec![Value::Int(first.into()), Value::Int(last.into()), owner])
        };
        SlotMap::read(&Value::Array(ranges.iter().map(row).collect()), &Node::new("asked", 1)).unwrap()
    }

    #[test]
    fn owners_are_found_and_gaps_are_nobodys() {
        let map = map(&[(200, 16_383, "b"), (0, 99, "")]);
        assert_eq!(&*map.owner(0).unwrap().host, "asked");
        assert_eq!(&*map.owner(99).unwrap().host, "asked");
        assert_eq!(map.owner(100), None);
        assert_eq!(&*map.owner(200).unwrap().host, "b");
        assert_eq!(&*map.owner(16_383).unwrap().host, "b");
        assert_eq!(map.nodes().len(), 2);
    }

    #[test]
    fn other_replies_are_refused() {
        let odd = [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(99_999), Value::Array(vec![])])]),
        ];
        for reply in odd {
            assert_eq!(SlotMap::read(&reply, &Node::new("h", 1)).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn redirections_are_read() {
        let from = Node::new("here", 1);
        let read = |line: &str| redirection(&ServerError::parse(line), &from);
        assert_eq!(read("MOVED 866 10.0.0.1:7001"), Some(Redirection::Moved(866, Node::new("10.0.0.1", 7001))));
        assert_eq!(read("MOVED 866 :7001"), Some(Redirection::Moved(866, Node::new("here", 7001))));
        assert_eq!(read("ASK 866 [::1]:7001"), Some(Redirection::Ask(Node::new("::1", 7001))));
        for other in ["MOVED", "MOVED x y", "MOVED 99999 h:1", "ERR 1 h:1", "TRYAGAIN Multiple keys"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_slot_that_moved_is_the_only_one_that_did(slot in 0..SLOTS, other in 0..SLOTS, split in 1..SLOTS) {
            let before = map(&[(0, split - 1, "a"), (split, SLOTS - 1, "b")]);
            let mut after = before.clone();
            after.moved(slot, Node::new("c", 1));
            prop_assert_eq!(&*after.owner(slot).unwrap().host, "c");
            if other != slot {
                prop_assert_eq!(after.owner(other), before.owner(other));
            }
        }
    }
}
