//! [`Fenced`]: whatever a consumer does to its pending entries, only as long as it owns them.
//!
//! Between a look at the pending list and the command that follows another consumer can claim the entry, so both happen
//! in one script. What must stay true: no call here ever takes, counts, acknowledges or moves an entry that somebody
//! else owns, also where the server does not allow scripts (see the module `plain`).

mod hash;
mod plain;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use stream_core::{ConsumerName, Entry, EntryId, GroupName, LeasePolicy, StreamKey};

use crate::command::{Script, decode};
use crate::{Connection, Error, ErrorKind, Request, Value};

/// The idle time of an entry that was handed back: longer than any lease, so that the next claim takes it at once.
const HANDED_BACK: Duration = LeasePolicy::LONGEST.saturating_add(Duration::from_hours(1));

/// Entries that are handed back in one script. Redis 8.6 keeps pending entries in the order of their last touch and walks
/// over all later ones to file one as untouched for long: 0.7 ms each in front of 100 000 pending entries.
const HAND_BACK_CHUNK: usize = 50;

/// Names and values of one dead letter that Lua can pass on in one command; it gives up at about 8000 arguments.
const MAX_SCRIPT_FIELDS: usize = 3500;

/// Whose entries a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// The consumer.
    pub consumer: ConsumerName,
}

/// What became of one entry that a handler is about to start with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is owned and its delivery count is set.
    Counted,
    /// The same, with the entry, where bodies were asked for.
    Entry(Entry),
    /// The consumer does not own it any more: it must not start.
    Lost,
    /// It was deleted from the stream while it was pending; it is not pending any more.
    Deleted,
}

/// What became of entries whose lease was to begin anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewed {
    /// Those that the consumer does not own any more.
    pub lost: Vec<EntryId>,
    /// Those that it owned, and that were deleted from the stream: they are pending nowhere now. Servers before 7.0 do not
    /// tell, and keep them pending.
    pub deleted: Vec<EntryId>,
    /// Those that are pending nowhere and not in the stream: somebody's search has dropped what was deleted, or another owner
    /// was done with them and they were trimmed. Without scripts they count as lost.
    pub gone: Vec<EntryId>,
}

/// What became of entries that were to be given back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedBack {
    /// How many were.
    pub number: u64,
    /// Those that were deleted from the stream, as in [`Renewed::deleted`].
    pub deleted: Vec<EntryId>,
}

/// Fenced steps on pending entries. Cheap; one for all connections to the same server.
///
/// Starts with scripts. Where the server does not let this user run them, it warns once and uses plain commands from then
/// on, which give up an entry sooner: see each call.
#[derive(Debug, Default)]
pub struct Fenced {
    plain: AtomicBool,
}

impl Fenced {
    /// Starts with scripts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the server has refused scripts, so that plain commands are used.
    pub fn is_plain(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    /// Starts the lease of `ids` (ascending, up to 250) anew; returns those that are lost or deleted. The delivery count stays.
    ///
    /// Without scripts, an entry that nobody touched for two thirds of the `lease` counts as lost.
    ///
    /// # Errors
    /// Of the connection or the server; [`ErrorKind::Missing`] where the stream or the group is gone.
    pub async fn renew(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        ids: &[EntryId],
        lease: Duration,
    ) -> Result<Renewed, Error> {
        if ids.is_empty() {
            return Ok(Renewed::default());
        }
        let args = |request| with_ids(owner_args(request, owner), ids);
        match self.script(connection, Script::renew(), &[&owner.key], args, decode_renewed).await? {
            Some(renewed) => Ok(renewed),
            None => plain::renew(connection, owner, ids, lease).await,
        }
    }

    /// Gives `entries` back with the delivery counts given, so that the next claim takes them at once; returns how many.
    /// Lost ones are left alone.
    ///
    /// Without scripts, only entries that were touched within the last second are given back; the others follow when
    /// their lease ends.
    ///
    /// # Errors
    /// Of the connection or the server; [`ErrorKind::Missing`] where the stream or the group is gone.
    pub async fn hand_back(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        entries: &[(EntryId, u64)],
    ) -> Result<HandedBack, Error> {
        let idle = crate::command::milliseconds(HANDED_BACK);
        let mut all = HandedBack::default();
        for entries in entries.chunks(HAND_BACK_CHUNK) {
            let args = |request| with_counts(owner_args(request, owner).int(idle), entries);
            let back =
                match self.script(connection, Script::hand_back(), &[&owner.key], args, decode_handed_back).await? {
                    Some(back) => back,
                    None => plain::hand_back(connection, owner, entries, HANDED_BACK).await?,
                };
            all.number += back.number;
            all.deleted.extend(back.deleted);
        }
        Ok(all)
    }

    /// Sets the delivery counts of `entries` to exactly the numbers given and starts their leases anew: the step before
    /// their handlers start. The result has one element for each, in the same order; with `bodies` the entries too.
    ///
    /// Without scripts, an entry that nobody touched for two thirds of the `lease` counts as lost.
    ///
    /// # Errors
    /// Of the connection or the server; [`ErrorKind::Missing`] where the stream or the group is gone.
    pub async fn take(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        entries: &[(EntryId, u64)],
        bodies: bool,
        lease: Duration,
    ) -> Result<Vec<Taken>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let args = |request| with_counts(owner_args(request, owner).arg(if bodies { "1" } else { "0" }), entries);
        let taken = |value| decode_taken(value, entries);
        match self.script(connection, Script::take(), &[&owner.key], args, taken).await? {
            Some(taken) => Ok(taken),
            None => plain::take(connection, owner, entries, bodies, lease).await,
        }
    }

    /// Acknowledges `ids`; returns those that are lost, which stay pending for whoever owns them now.
    ///
    /// Without scripts, an entry that nobody touched for two thirds of the `lease` counts as lost.
    ///
    /// # Errors
    /// Of the connection or the server; [`ErrorKind::Missing`] where the stream or the group is gone.
    pub async fn acknowledge(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        ids: &[EntryId],
        lease: Duration,
    ) -> Result<Vec<EntryId>, Error> {
        match self.lost(connection, Script::acknowledge(), owner, ids).await? {
            Some(lost) => Ok(lost),
            None => plain::acknowledge(connection, owner, ids, lease).await,
        }
    }

    /// Like [`acknowledge`](Self::acknowledge), and deletes the entries in the same step if the stream has no other group.
    ///
    /// Without scripts nothing is deleted: a group could be created between the look and the deletion.
    ///
    /// # Errors
    /// Those of [`acknowledge`](Self::acknowledge).
    pub async fn acknowledge_and_delete(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        ids: &[EntryId],
        lease: Duration,
    ) -> Result<Vec<EntryId>, Error> {
        match self.lost(connection, Script::acknowledge_delete(), owner, ids).await? {
            Some(lost) => Ok(lost),
            None => plain::acknowledge(connection, owner, ids, lease).await,
        }
    }

    /// Writes `fields` to the stream `target` and acknowledges `id`, in this order and in one step; returns the id of the
    /// dead letter, or `None` where the entry is lost and nothing was written. `max_len` bounds the target (about).
    ///
    /// Without scripts, with a target in another slot of a cluster, and with more than 3500 fields the two commands are
    /// separate: a failure between them leaves a duplicate, never a loss.
    ///
    /// # Errors
    /// Of the connection or the server. The entry is acknowledged only after the dead letter was written.
    pub async fn dead_letter(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        id: EntryId,
        target: &StreamKey,
        max_len: Option<u64>,
        fields: &[(Bytes, Bytes)],
    ) -> Result<Option<EntryId>, Error> {
        // A bound of 0 would throw the letter away that was just written.
        let max_len = max_len.map(|length| length.max(1));
        if fields.len() > MAX_SCRIPT_FIELDS {
            return plain::dead_letter(connection, owner, id, target, max_len, fields).await;
        }
        let args = |request| {
            let mut request = owner_args(request, owner).id(id).int(max_len.unwrap_or(0));
            for (name, value) in fields {
                request.push(name);
                request.push(value);
            }
            request
        };
        let keys = [&owner.key, target];
        match self.script(connection, Script::dead_letter(), &keys, args, |value| decode::optional_id(&value)).await {
            Ok(Some(letter)) => Ok(letter),
            Ok(None) => plain::dead_letter(connection, owner, id, target, max_len, fields).await,
            Err(error) if error.code() == Some("CROSSSLOT") => {
                plain::dead_letter(connection, owner, id, target, max_len, fields).await
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the consumer if it holds nothing; returns whether it was there and was removed.
    ///
    /// Without scripts nothing is done: between the check and the removal it could be given an entry, which would be
    /// destroyed.
    ///
    /// # Errors
    /// Of the connection or the server; [`ErrorKind::Missing`] where the stream or the group is gone.
    pub async fn remove_consumer(&self, connection: &dyn Connection, owner: &Owner) -> Result<bool, Error> {
        self.remove(connection, owner, None).await
    }

    /// As [`remove_consumer`](Self::remove_consumer), if the server counts it as idle for `idle` at least: one that came back
    /// stays, also before it is given anything. Servers before 7.2 do not count what it asks for in vain.
    ///
    /// # Errors
    /// Those of [`remove_consumer`](Self::remove_consumer).
    pub async fn remove_idle_consumer(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        idle: Duration,
    ) -> Result<bool, Error> {
        self.remove(connection, owner, Some(idle)).await
    }

    async fn remove(&self, connection: &dyn Connection, owner: &Owner, idle: Option<Duration>) -> Result<bool, Error> {
        let milliseconds = |idle: Duration| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let args = |request| match idle {
            Some(idle) => owner_args(request, owner).int(milliseconds(idle)),
            None => owner_args(request, owner),
        };
        let count = |value| decode::count(&value);
        let removed = self.script(connection, Script::remove_consumer(), &[&owner.key], args, count).await?;
        Ok(removed.is_some_and(|removed| removed > 0))
    }

    /// Destroys the group if it has no consumers, nothing pending, and was delivered `last_delivered` last; returns whether
    /// it was there and was destroyed.
    ///
    /// Without scripts nothing is done: between the check and the removal somebody could begin to read.
    ///
    /// # Errors
    /// Of the connection or the server; [`ErrorKind::Missing`] where the stream is gone.
    pub async fn destroy_group(
        &self,
        connection: &dyn Connection,
        key: &StreamKey,
        group: &GroupName,
        last_delivered: EntryId,
    ) -> Result<bool, Error> {
        let args = |request: Request| request.arg(group).id(last_delivered);
        let count = |value| decode::count(&value);
        let destroyed = self.script(connection, Script::destroy_group(), &[key], args, count).await?;
        Ok(destroyed.is_some_and(|destroyed| destroyed > 0))
    }

    /// Runs a script that takes ids and returns those that are lost; `None` where scripts are not to be had.
    async fn lost(
        &self,
        connection: &dyn Connection,
        script: &'static Script,
        owner: &Owner,
        ids: &[EntryId],
    ) -> Result<Option<Vec<EntryId>>, Error> {
        if ids.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let args = |request| with_ids(owner_args(request, owner), ids);
        self.script(connection, script, &[&owner.key], args, decode::ids).await
    }

    /// Runs a script and reads its reply; `None` where scripts are not to be had.
    async fn script<T>(
        &self,
        connection: &dyn Connection,
        script: &'static Script,
        keys: &[&StreamKey],
        args: impl Fn(Request) -> Request + Send,
        decode: impl FnOnce(Value) -> Result<T, Error> + Send,
    ) -> Result<Option<T>, Error> {
        if self.plain.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match script.run(connection, keys, args).await {
            Ok(value) => match decode(value) {
                Ok(reply) => Ok(Some(reply)),
                Err(error) => Err(error.at(script.label(), keys.first().copied())),
            },
            Err(error) if scripts_refused(&error) => {
                if !self.plain.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        "the server does not allow scripts: leases are checked by plain commands from now on, which \
                         give up entries sooner; allow EVAL and EVALSHA to this user"
                    );
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the server refused the script commands themselves, not something that a script did. Names of keys are in such
/// texts as well, so the word alone says nothing.
fn scripts_refused(error: &Error) -> bool {
    let said = |what: &str| error.server().is_some_and(|server| server.detail.to_ascii_lowercase().contains(what));
    match error.kind() {
        ErrorKind::NoPermission => said("to run the 'eval"),
        ErrorKind::Unsupported => said("eval"),
        _ => false,
    }
}

fn owner_args(request: Request, owner: &Owner) -> Request {
    request.arg(&owner.group).arg(&owner.consumer)
}

fn with_ids(request: Request, ids: &[EntryId]) -> Request {
    ids.iter().fold(request, |request, &id| request.id(id))
}

fn with_counts(request: Request, entries: &[(EntryId, u64)]) -> Request {
    entries.iter().fold(request, |request, &(id, count)| request.id(id).int(count))
}

fn decode_renewed(value: Value) -> Result<Renewed, Error> {
    match value {
        Value::Array(lists) if lists.len() == 3 => {
            let mut lists = lists.into_iter().map(decode::ids);
            let mut next = || lists.next().unwrap_or_else(|| Ok(Vec::new()));
            Ok(Renewed { lost: next()?, deleted: next()?, gone: next()? })
        }
        _ => Err(decode::unexpected("three lists of ids", &value)),
    }
}

fn decode_handed_back(value: Value) -> Result<HandedBack, Error> {
    match value {
        Value::Array(mut parts) if !parts.is_empty() => {
            let deleted = decode::ids(Value::Array(parts.split_off(1)))?;
            Ok(HandedBack { number: decode::count(&parts[0])?, deleted })
        }
        _ => Err(decode::unexpected("a number and ids", &value)),
    }
}

fn decode_taken(value: Value, entries: &[(EntryId, u64)]) -> Result<Vec<Taken>, Error> {
    match value {
        Value::Array(values) if values.len() == entries.len() => {
            entries.iter().zip(values).map(|((id, _), value)| taken(*id, value)).collect()
        }
        value => Err(decode::unexpected("one element for each entry", &value)),
    }
}

fn taken(id: EntryId, value: Value) -> Result<Taken, Error> {
    match value {
        Value::Int(0) => Ok(Taken::Lost),
        Value::Int(1) => Ok(Taken::Counted),
        Value::Int(-1) => Ok(Taken::Deleted),
        value @ Value::Array(_) => match decode::entry(value)? {
            (given, _) if given != id => Err(Error::new(
                ErrorKind::Protocol,
                format!("the server gave the entry {given} where {id} was asked for"),
            )),
            (_, Some(entry)) => Ok(Taken::Entry(entry)),
            (_, None) => Ok(Taken::Deleted),
        },
        value => Err(decode::unexpected("0, 1, -1 or an entry", &value)),
    }
}

#[cfg(test)]
mod tests;
