//! [`Stream`]: entries, the nodes they are packed in (which approximate trimming can see), and counters.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use stream_core::EntryId;

use super::group::Group;
use super::listpack;

/// Entries in one node, `stream-node-max-entries`.
const NODE_ENTRIES: usize = 100;
/// Bytes in one node, `stream-node-max-bytes`.
const NODE_BYTES: usize = 4096;

#[derive(Debug, Default, Clone)]
pub(super) struct Stream {
    pub(super) entries: BTreeMap<EntryId, Vec<Bytes>>,
    pub(super) groups: BTreeMap<Bytes, Group>,
    pub(super) last_id: EntryId,
    max_deleted: EntryId,
    added: u64,
    nodes: VecDeque<Node>,
}

/// A run of entries that lie in one piece of the server's memory.
#[derive(Debug, Clone)]
struct Node {
    first: EntryId,
    /// The greatest id ever put here, deleted or not.
    last: EntryId,
    live: usize,
    deleted: usize,
    bytes: usize,
    /// Field names of its first entry, which others with the same names do not repeat.
    names: Vec<Bytes>,
}

/// What trimming keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Newest(usize),
    From(EntryId),
}

/// How to trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trim {
    pub(super) keep: Keep,
    /// `~`: whole nodes only.
    pub(super) approximate: bool,
    /// At most this many entries; 0 for any number.
    pub(super) limit: usize,
}

/// Numbers about a stream that lag and read counters are computed from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) first: EntryId,
    pub(super) last: EntryId,
    pub(super) max_deleted: EntryId,
    pub(super) added: u64,
    pub(super) len: u64,
}

impl Stream {
    pub(super) fn facts(&self) -> Facts {
        Facts {
            first: self.first().unwrap_or(EntryId::ZERO),
            last: self.last_id,
            max_deleted: self.max_deleted,
            added: self.added,
            len: self.entries.len() as u64,
        }
    }

    pub(super) fn first(&self) -> Option<EntryId> {
        self.entries.keys().next().copied()
    }

    /// The greatest id of an entry that is there.
    pub(super) fn last(&self) -> Option<EntryId> {
        self.entries.keys().next_back().copied()
    }

    /// Nodes that the entries are packed in.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Adds an entry; the caller has made sure that `id` is greater than all before.
    pub(super) fn append(&mut self, id: EntryId, fields: Vec<Bytes>) {
        let payload: usize = fields.iter().map(Bytes::len).sum();
        let full = self
            .nodes
            .back()
            .is_none_or(|node| node.bytes + payload >= NODE_BYTES || node.live + node.deleted >= NODE_ENTRIES);
        if full {
            let names: Vec<Bytes> = fields.iter().step_by(2).cloned().collect();
            let bytes = listpack::node_bytes(&names);
            self.nodes.push_back(Node { first: id, last: id, live: 0, deleted: 0, bytes, names });
        }
        if let Some(node) = self.nodes.back_mut() {
            let before = (node.live, node.deleted);
            node.bytes += listpack::entry_bytes(node.first, id, &fields, &node.names);
            node.live += 1;
            node.last = id;
            node.bytes += listpack::counters(node.live, node.deleted) - listpack::counters(before.0.max(1), before.1);
        }
        self.entries.insert(id, fields);
        self.last_id = id;
        self.added += 1;
    }

    /// Deletes one entry by its id; false when there is none.
    pub(super) fn delete(&mut self, id: EntryId) -> bool {
        if self.entries.remove(&id).is_none() {
            return false;
        }
        self.max_deleted = self.max_deleted.max(id);
        let index = self.nodes.partition_point(|node| node.first <= id) - 1;
        let node = &mut self.nodes[index];
        node.live -= 1;
        node.deleted += 1;
        if node.live == 0 {
            self.nodes.remove(index);
        }
        true
    }

    /// Trims and returns how many entries went. Trimmed entries leave no tombstone in `max-deleted-entry-id`.
    pub(super) fn trim(&mut self, trim: Trim) -> usize {
        let mut removed = 0;
        while let Some(node) = self.nodes.front() {
            let len = self.entries.len();
            if matches!(trim.keep, Keep::Newest(max) if len <= max)
                || (trim.limit > 0 && removed + node.live > trim.limit)
            {
                break;
            }
            let whole = match trim.keep {
                Keep::Newest(max) => len - node.live >= max,
                Keep::From(id) => node.last < id,
            };
            if whole {
                removed += self.pop_entries(node.live);
                self.nodes.pop_front();
                continue;
            }
            if trim.approximate {
                break;
            }
            let part = match trim.keep {
                Keep::Newest(max) => len - max,
                Keep::From(id) => self.entries.range(..id).take(node.live).count(),
            };
            removed += self.pop_entries(part);
            let node = &mut self.nodes[0];
            node.live -= part;
            node.deleted += part;
            break;
        }
        removed
    }

    fn pop_entries(&mut self, number: usize) -> usize {
        for _ in 0..number {
            self.entries.pop_first();
        }
        number
    }
}
