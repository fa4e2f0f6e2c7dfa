//! Reading: `XREAD` and `XREADGROUP`, and what a read that waits does when its key changes.

use std::time::Duration;

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::super::args::{Args, strict_id};
use super::super::db::Db;
use super::super::group::Group;
use super::super::profile::Profile;
use super::super::reply::{Reply, entry_value, error, no_group_to_read, syntax};
use super::super::stream::{Facts, Stream};
use super::Outcome;
use super::range::entries;

/// Entries that a waiting read without `COUNT` gets at most before 7.2.
const BLOCKED_COUNT: usize = 1000;

/// One parsed read.
#[derive(Debug, Clone)]
pub(in super::super) struct Read {
    group: Option<ReadGroup>,
    /// 0 for any number.
    count: usize,
    /// Zero waits for ever.
    pub(in super::super) block: Option<Duration>,
    /// Keys with the id that each is read after, as given; `$` is replaced by what it stood for.
    streams: Vec<(Bytes, Bytes)>,
}

#[derive(Debug, Clone)]
struct ReadGroup {
    name: Bytes,
    consumer: Bytes,
    no_ack: bool,
}

/// Where one stream is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// `>`.
    New,
    After(EntryId),
}

impl Read {
    pub(super) fn parse(args: &[Bytes], profile: Profile) -> Result<Self, ServerError> {
        let grouped = args[0].len() == "XREADGROUP".len();
        let mut read = Self { group: None, count: 0, block: None, streams: Vec::new() };
        let mut no_ack = false;
        let mut rest = Args::after(args, 1);
        while rest.len() > 0 {
            if rest.option("BLOCK", 1) {
                let millis = rest.int_or("ERR timeout is not an integer or out of range")?;
                let millis = u64::try_from(millis).map_err(|_| error("ERR timeout is negative"))?;
                read.block = Some(Duration::from_millis(millis));
            } else if rest.option("COUNT", 1) {
                read.count = usize::try_from(rest.int()?.max(0)).unwrap_or(usize::MAX);
            } else if rest.option("STREAMS", 1) {
                let list = rest.rest();
                if list.len() % 2 == 1 {
                    return Err(unbalanced(grouped, profile));
                }
                let (keys, ids) = list.split_at(list.len() / 2);
                read.streams = keys.iter().cloned().zip(ids.iter().cloned()).collect();
                break;
            } else if rest.option("GROUP", 2) {
                if !grouped {
                    return Err(error(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                let (name, consumer) = (rest.expect()?.clone(), rest.expect()?.clone());
                read.group = Some(ReadGroup { name, consumer, no_ack: false });
            } else if rest.option("NOACK", 0) {
                if !grouped {
                    return Err(error(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                no_ack = true;
            } else {
                return Err(syntax());
            }
        }
        if read.streams.is_empty() {
            return Err(syntax());
        }
        match &mut read.group {
            Some(group) => group.no_ack = no_ack,
            None if grouped => return Err(error("ERR Missing GROUP option for XREADGROUP")),
            None => {}
        }
        Ok(read)
    }

    /// Whether it reads for a group, so that it is told when its key is gone.
    pub(in super::super) fn is_grouped(&self) -> bool {
        self.group.is_some()
    }

    pub(in super::super) fn reads(&self, key: &[u8]) -> bool {
        self.streams.iter().any(|(own, _)| own == key)
    }

    /// Carries out the read: for the first time, or again because something changed.
    pub(in super::super) fn start(mut self, db: &mut Db) -> Outcome {
        match self.attempt(db) {
            Ok(None) if self.block.is_some() => Outcome::Block(self),
            reply => Outcome::Reply(reply.map(|value| value.unwrap_or(Value::Nil))),
        }
    }

    fn attempt(&mut self, db: &mut Db) -> Result<Option<Value>, ServerError> {
        let mut from = Vec::with_capacity(self.streams.len());
        for index in 0..self.streams.len() {
            from.push(self.resolve(db, index)?);
        }
        let (now, profile) = (db.now, db.profile);
        let mut served = Vec::new();
        for ((key, _), from) in self.streams.iter().zip(from) {
            let Some(stream) = db.stream_mut(key)? else { continue };
            let Some(read_group) = &self.group else {
                if let From::After(id) = from
                    && stream.last().is_some_and(|last| last > id)
                {
                    served.push((Value::Bulk(key.clone()), Value::Array(after(stream, id, self.limit()))));
                }
                continue;
            };
            let facts = stream.facts();
            let Stream { entries, groups, .. } = &mut *stream;
            let Some(group) = groups.get_mut(&read_group.name) else { continue };
            if profile.consumers_are_eager() {
                group.saw(&read_group.consumer, now);
            }
            let reply = match from {
                From::After(id) => Some(read_group.history(group, entries, id, self.limit(), now)),
                From::New if entries.keys().next_back().is_some_and(|&last| last > group.last_id) => {
                    Some(read_group.deliver(group, entries, facts, self.limit(), now, profile))
                }
                From::New => None,
            };
            if let Some(reply) = reply {
                served.push((Value::Bulk(key.clone()), Value::Array(reply)));
            }
        }
        Ok((!served.is_empty()).then_some(Value::Map(served)))
    }

    /// Checks one stream and finds where it is read from.
    fn resolve(&mut self, db: &Db, index: usize) -> Result<From, ServerError> {
        let (key, id) = &self.streams[index];
        let stream = db.stream(key)?;
        if let Some(group) = &self.group
            && stream.is_none_or(|stream| !stream.groups.contains_key(&group.name))
        {
            return Err(no_group_to_read(key, &group.name));
        }
        let last = stream.map_or(EntryId::ZERO, |stream| stream.last_id);
        match (id.as_ref(), self.group.is_some()) {
            (b"$", true) => Err(meaningless('$')),
            (b"$", false) => {
                self.streams[index].1 = Bytes::from(last.to_string());
                Ok(From::After(last))
            }
            (b"+", true) if db.profile >= Profile::Redis72Plus => Err(meaningless('+')),
            (b"+", false) if db.profile >= Profile::Redis72Plus => Ok(before_last(stream, db.profile)),
            (b">", true) => Ok(From::New),
            (b">", false) => Err(error(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            )),
            (id, _) => strict_id(id, 0).map(From::After),
        }
    }

    /// What a waiting read gets from a change of the stream at `key` on servers that serve it from a list: the group is
    /// looked up, nothing else is checked.
    pub(in super::super) fn serve_waiting(&self, db: &mut Db, key: &Bytes) -> Option<Reply> {
        let (now, profile) = (db.now, db.profile);
        let stream = db.stream_mut(key).ok().flatten()?;
        let limit = if self.count == 0 { BLOCKED_COUNT } else { self.count };
        let reply = if let Some(read_group) = &self.group {
            let (facts, last_id) = (stream.facts(), stream.last_id);
            let Stream { entries, groups, .. } = stream;
            let Some(group) = groups.get_mut(&read_group.name) else {
                return Some(Err(error("NOGROUP the consumer group this client was blocked on no longer exists")));
            };
            if last_id <= group.last_id {
                return None;
            }
            read_group.deliver(group, entries, facts, limit, now, profile)
        } else {
            let (_, id) = self.streams.iter().find(|(own, _)| own == key)?;
            let id = EntryId::parse(id).ok()?;
            if stream.last_id <= id {
                return None;
            }
            after(stream, id, limit)
        };
        Some(Ok(Value::Map(vec![(Value::Bulk(key.clone()), Value::Array(reply))])))
    }

    fn limit(&self) -> usize {
        if self.count == 0 { usize::MAX } else { self.count }
    }
}

impl ReadGroup {
    /// Hands out entries that nobody got yet.
    fn deliver(
        &self,
        group: &mut Group,
        entries: &std::collections::BTreeMap<EntryId, Vec<Bytes>>,
        facts: Facts,
        limit: usize,
        now: i64,
        profile: Profile,
    ) -> Vec<Value> {
        group.saw(&self.consumer, now);
        let Some(start) = group.last_id.successor() else { return Vec::new() };
        let mut reply = Vec::new();
        for (&id, fields) in entries.range(start..).take(limit) {
            group.advance(id, facts, profile);
            if !self.no_ack {
                group.give(id, &self.consumer, now, 1);
                group.served(&self.consumer, now);
            }
            reply.push(entry_value(id, Some(fields)));
        }
        reply
    }

    /// Hands out again what the consumer holds already.
    fn history(
        &self,
        group: &mut Group,
        entries: &std::collections::BTreeMap<EntryId, Vec<Bytes>>,
        after: EntryId,
        limit: usize,
        now: i64,
    ) -> Vec<Value> {
        group.saw(&self.consumer, now);
        let (Some(start), Some(consumer)) = (after.successor(), group.consumers.get(&self.consumer)) else {
            return Vec::new();
        };
        let ids: Vec<EntryId> = consumer.pending.range(start..).take(limit).copied().collect();
        let mut reply = Vec::new();
        for id in ids {
            let fields = entries.get(&id);
            if let (Some(pending), Some(_)) = (group.pending.get_mut(&id), fields) {
                pending.delivered_at = now;
                pending.deliveries += 1;
            }
            reply.push(entry_value(id, fields.map(Vec::as_slice)));
        }
        reply
    }
}

fn after(stream: &Stream, id: EntryId, limit: usize) -> Vec<Value> {
    id.successor().map_or_else(Vec::new, |start| entries(stream, start, EntryId::MAX, limit, false))
}

/// `+`: just before the last entry. Redis looks for one that is there, Valkey goes by the last id ever given.
fn before_last(stream: Option<&Stream>, profile: Profile) -> From {
    let Some(stream) = stream else { return From::After(EntryId::ZERO) };
    let last = if profile >= Profile::Redis80Plus { stream.last() } else { Some(stream.last_id) };
    From::After(last.and_then(EntryId::predecessor).unwrap_or(stream.last_id))
}

fn unbalanced(grouped: bool, profile: Profile) -> ServerError {
    let (command, id) = match (profile, grouped) {
        (Profile::Redis62 | Profile::Redis70, _) => ("XREAD", "ID or '$'"),
        (_, true) => ("'xreadgroup'", "ID or '>'"),
        (Profile::Redis72Plus, false) => ("'xread'", "ID or '$'"),
        (Profile::Redis80Plus, false) => ("'xread'", "ID, '+', or '$'"),
    };
    error(&format!("ERR Unbalanced {command} list of streams: for each stream key an {id} must be specified."))
}

fn meaningless(id: char) -> ServerError {
    error(&format!(
        "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by \
         specifying a proper ID, or use the > ID to get new messages. The {id} ID would just return an empty result set."
    ))
}
