//! [`Group`]: what a consumer group remembers, and how it counts what it has read.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stream_core::EntryId;

use super::profile::Profile;
use super::stream::Facts;

#[derive(Debug, Default, Clone)]
pub(super) struct Group {
    pub(super) last_id: EntryId,
    /// How many entries the stream had ever got up to `last_id`, where that is known.
    pub(super) entries_read: Option<i64>,
    pub(super) pending: BTreeMap<EntryId, Pending>,
    pub(super) consumers: BTreeMap<Bytes, Consumer>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) consumer: Bytes,
    /// Milliseconds since 1970.
    pub(super) delivered_at: i64,
    pub(super) deliveries: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Consumer {
    /// When it last asked for something.
    pub(super) seen_at: i64,
    /// When it last got something.
    pub(super) active_at: Option<i64>,
    pub(super) pending: BTreeSet<EntryId>,
}

impl Group {
    pub(super) fn new(last_id: EntryId, entries_read: Option<i64>) -> Self {
        Self { last_id, entries_read, ..Self::default() }
    }

    /// Creates the consumer; false when it is there already.
    pub(super) fn create_consumer(&mut self, name: &Bytes, now: i64) -> bool {
        let new = !self.consumers.contains_key(name);
        if new {
            let consumer = Consumer { seen_at: now, active_at: None, pending: BTreeSet::new() };
            self.consumers.insert(name.clone(), consumer);
        }
        new
    }

    /// Notes that the consumer asked for something.
    pub(super) fn saw(&mut self, name: &Bytes, now: i64) {
        self.create_consumer(name, now);
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_at = now;
        }
    }

    /// Notes that the consumer got something.
    pub(super) fn served(&mut self, name: &Bytes, now: i64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_at = Some(now);
        }
    }

    /// Makes `name`, which must exist, the owner of `id`.
    pub(super) fn give(&mut self, id: EntryId, name: &Bytes, delivered_at: i64, deliveries: i64) {
        let pending = Pending { consumer: name.clone(), delivered_at, deliveries };
        if let Some(before) = self.pending.insert(id, pending)
            && let Some(owner) = self.consumers.get_mut(&before.consumer)
        {
            owner.pending.remove(&id);
        }
        if let Some(owner) = self.consumers.get_mut(name) {
            owner.pending.insert(id);
        }
    }

    /// Forgets a pending entry; false when it is not pending.
    pub(super) fn forget(&mut self, id: EntryId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.remove(&id);
        }
        true
    }

    /// Removes a consumer together with what it holds; returns how many entries that were.
    pub(super) fn delete_consumer(&mut self, name: &Bytes) -> usize {
        let Some(consumer) = self.consumers.remove(name) else { return 0 };
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        consumer.pending.len()
    }

    /// Moves on to `id`, which is about to be delivered.
    pub(super) fn advance(&mut self, id: EntryId, stream: Facts, profile: Profile) {
        if id <= self.last_id {
            return;
        }
        let counted = if profile >= Profile::Redis72Plus {
            self.last_id >= stream.first && !has_tombstones(stream, self.last_id, profile)
        } else {
            !has_tombstones(stream, id, profile)
        };
        match self.entries_read {
            Some(read) if counted => self.entries_read = Some(read + 1),
            _ if stream.added > 0 => self.entries_read = entries_up_to(stream, id, profile),
            _ => {}
        }
        self.last_id = id;
    }

    /// Entries that were not delivered to anybody yet, where the server knows it.
    pub(super) fn lag(&self, stream: Facts, profile: Profile) -> Option<i64> {
        let added = stream.added as i64;
        if stream.added == 0 || (profile.has_repaired_lag() && stream.len == 0) {
            return Some(0);
        }
        if profile.has_repaired_lag() && self.last_id < stream.first && stream.max_deleted < stream.first {
            return Some(stream.len as i64);
        }
        match self.entries_read {
            Some(read) if !has_tombstones(stream, self.last_id, profile) => Some(added - read),
            _ => entries_up_to(stream, self.last_id, profile).map(|read| added - read),
        }
    }
}

/// Whether an entry from `from` on was deleted, as far as the server can tell.
fn has_tombstones(stream: Facts, from: EntryId, profile: Profile) -> bool {
    if stream.len == 0 || stream.max_deleted == EntryId::ZERO {
        return false;
    }
    if profile < Profile::Redis72Plus && stream.first > stream.max_deleted {
        return false;
    }
    from <= stream.max_deleted
}

/// How many entries were ever added up to `id`, where that can be known.
fn entries_up_to(stream: Facts, id: EntryId, profile: Profile) -> Option<i64> {
    let added = stream.added as i64;
    if stream.added == 0 {
        return Some(0);
    }
    if stream.len == 0 && id <= stream.last {
        return Some(added);
    }
    if profile >= Profile::Redis72Plus && id != EntryId::ZERO && id < stream.max_deleted {
        return None;
    }
    if id >= stream.last {
        return (id == stream.last).then_some(added);
    }
    if stream.max_deleted == EntryId::ZERO || stream.max_deleted < stream.first {
        let before_first = added - stream.len as i64;
        if id < stream.first {
            return Some(before_first);
        }
        if id == stream.first {
            return Some(before_first + 1);
        }
    }
    None
}
