//! [`Db`]: the keys of the server, its clock as commands see it, and the list of keys that changed under a command.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use stream_redis::ServerError;

use super::group::Group;
use super::profile::Profile;
use super::reply::wrong_type;
use super::stream::Stream;

#[derive(Debug)]
pub(super) struct Db {
    pub(super) profile: Profile,
    /// Milliseconds since 1970; does not move while a command is carried out.
    pub(super) now: i64,
    pub(super) keys: BTreeMap<Bytes, Object>,
    /// What blocked readers may have to be told after the command.
    pub(super) signals: VecDeque<Signal>,
    /// Hashes of the scripts that were loaded.
    pub(super) scripts: BTreeSet<String>,
    /// Commands that the access control list forbids, in capitals.
    pub(super) denied: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Object {
    Stream(Stream),
    Text(Text),
    Hash(BTreeMap<Bytes, Bytes>),
    Set(BTreeSet<Bytes>),
}

/// A plain string.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) value: Bytes,
    /// Milliseconds since 1970.
    pub(super) expires_at: Option<i64>,
}

/// A key changed in a way that wakes blocked readers.
#[derive(Debug)]
pub(super) struct Signal {
    pub(super) key: Bytes,
    pub(super) change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A stream got an entry, came to exist or lost a group.
    Stream,
    /// The stream is not there any more.
    Gone,
}

impl Db {
    pub(super) fn new(profile: Profile) -> Self {
        let (keys, signals, scripts, denied) = Default::default();
        Self { profile, now: 0, keys, signals, scripts, denied }
    }

    pub(super) fn signal(&mut self, key: &Bytes, change: Change) {
        self.signals.push_back(Signal { key: key.clone(), change });
    }

    /// The stream at `key`, if there is one.
    pub(super) fn stream(&self, key: &[u8]) -> Result<Option<&Stream>, ServerError> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Object::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(wrong_type()),
        }
    }

    pub(super) fn stream_mut(&mut self, key: &[u8]) -> Result<Option<&mut Stream>, ServerError> {
        match self.keys.get_mut(key) {
            None => Ok(None),
            Some(Object::Stream(stream)) => Ok(Some(stream)),
            Some(_) => Err(wrong_type()),
        }
    }

    /// The stream at `key`, made if there is nothing.
    pub(super) fn stream_or_create(&mut self, key: &Bytes) -> Result<&mut Stream, ServerError> {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), Object::Stream(Stream::default()));
            self.signal(key, Change::Stream);
        }
        self.stream_mut(key)?.ok_or_else(wrong_type)
    }

    /// The group `group` of the stream at `key`; `None` when either is missing.
    pub(super) fn group(&self, key: &[u8], group: &[u8]) -> Result<Option<&Group>, ServerError> {
        Ok(self.stream(key)?.and_then(|stream| stream.groups.get(group)))
    }

    pub(super) fn group_mut(&mut self, key: &[u8], group: &[u8]) -> Result<Option<&mut Group>, ServerError> {
        Ok(self.stream_mut(key)?.and_then(|stream| stream.groups.get_mut(group)))
    }

    /// Deletes a key; false when there is none.
    pub(super) fn remove(&mut self, key: &Bytes) -> bool {
        let removed = self.keys.remove(key);
        if let Some(Object::Stream(_)) = removed {
            self.signal(key, Change::Gone);
        }
        removed.is_some()
    }

    /// Puts a string at `key`, over whatever is there.
    pub(super) fn set_text(&mut self, key: &Bytes, value: Bytes, expires_at: Option<i64>) {
        if let Some(Object::Stream(_)) = self.keys.insert(key.clone(), Object::Text(Text { value, expires_at })) {
            self.signal(key, Change::Gone);
        }
    }

    /// Drops the strings whose time has come. Streams of the model do not expire.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        self.keys.retain(|_, object| !matches!(object, Object::Text(Text { expires_at: Some(at), .. }) if *at <= now));
    }
}
