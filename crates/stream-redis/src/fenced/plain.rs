//! The same steps by plain commands, for servers that do not allow scripts.
//!
//! Here the look at the pending list and the command that follows are two steps. What keeps them safe is the lease:
//! nobody claims an entry before it was idle for a whole lease, so one that was idle for less than two thirds of it when
//! it was looked at cannot change hands within the third that is left. Anything closer to the end counts as lost, although
//! it may still be owned: then it is handled again, which is allowed, and never taken from somebody else, which is not.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use stream_core::{Entry, EntryId, StreamKey};

use super::{HandedBack, Owner, Renewed, Taken};
use crate::command::{Command, Trim, XAck, XAdd, XClaim, XPending, XRange, run};
use crate::{Connection, Error, ErrorKind, Request};

/// Rows of one page of a pending list, at least.
const PAGE: usize = 100;

/// What counts as fresh where the caller knows no lease; leases below 3 s are not supported without scripts.
const FRESH: Duration = Duration::from_secs(1);

pub(super) async fn renew(
    connection: &dyn Connection,
    owner: &Owner,
    ids: &[EntryId],
    lease: Duration,
) -> Result<Renewed, Error> {
    let (own, lost) = split(connection, owner, ids, fresh(lease)).await?;
    let mut deleted = own.clone();
    if !own.is_empty() {
        let claimed = run(connection, &XClaim { just_id: true, ..claim(owner, own) }).await?;
        deleted.retain(|id| !claimed.ids.contains(id));
    }
    Ok(Renewed { lost, deleted, gone: Vec::new() })
}

pub(super) async fn hand_back(
    connection: &dyn Connection,
    owner: &Owner,
    entries: &[(EntryId, u64)],
    idle: Duration,
) -> Result<HandedBack, Error> {
    let own = owned(connection, owner, entries.iter().map(|&(id, _)| id), FRESH).await?;
    let claims: Vec<_> = entries
        .iter()
        .filter(|(id, _)| own.contains_key(id))
        .map(|&(id, count)| XClaim {
            idle: Some(idle),
            retry_count: Some(count),
            just_id: true,
            ..claim(owner, vec![id])
        })
        .collect();
    let claimed = run_all(connection, &claims).await?;
    let mut back = HandedBack::default();
    for (claim, claimed) in claims.iter().zip(claimed) {
        back.number += claimed.ids.len() as u64;
        back.deleted.extend(claim.ids.iter().filter(|id| !claimed.ids.contains(id)));
    }
    Ok(back)
}

pub(super) async fn take(
    connection: &dyn Connection,
    owner: &Owner,
    entries: &[(EntryId, u64)],
    bodies: bool,
    lease: Duration,
) -> Result<Vec<Taken>, Error> {
    let own = owned(connection, owner, entries.iter().map(|&(id, _)| id), fresh(lease)).await?;
    let mine: Vec<_> = entries.iter().copied().filter(|(id, _)| own.contains_key(id)).collect();
    let claims: Vec<_> = mine
        .iter()
        .map(|&(id, count)| XClaim { retry_count: Some(count), just_id: !bodies, ..claim(owner, vec![id]) })
        .collect();
    let mut found: HashMap<EntryId, Entry> = HashMap::new();
    if bodies {
        for claimed in run_all(connection, &claims).await? {
            found.extend(claimed.entries.into_iter().map(|entry| (entry.id(), entry)));
        }
    } else {
        let looks: Vec<_> =
            mine.iter().map(|&(id, _)| XRange { key: owner.key.clone(), from: id, to: id, count: 1 }).collect();
        for entries in run_all(connection, &looks).await? {
            found.extend(entries.into_iter().map(|entry| (entry.id(), entry)));
        }
        let alive: Vec<_> =
            claims.into_iter().filter(|claim| claim.ids.iter().all(|id| found.contains_key(id))).collect();
        run_all(connection, &alive).await?;
    }
    let deleted: Vec<_> = mine.iter().map(|&(id, _)| id).filter(|id| !found.contains_key(id)).collect();
    if !deleted.is_empty() {
        run(connection, &ack(owner, deleted)).await?;
    }
    let taken = entries.iter().map(|(id, _)| match (own.contains_key(id), found.remove(id)) {
        (false, _) => Taken::Lost,
        (true, None) => Taken::Deleted,
        (true, Some(entry)) if bodies => Taken::Entry(entry),
        (true, Some(_)) => Taken::Counted,
    });
    Ok(taken.collect())
}

pub(super) async fn acknowledge(
    connection: &dyn Connection,
    owner: &Owner,
    ids: &[EntryId],
    lease: Duration,
) -> Result<Vec<EntryId>, Error> {
    let (own, lost) = split(connection, owner, ids, fresh(lease)).await?;
    if !own.is_empty() {
        run(connection, &ack(owner, own)).await?;
    }
    Ok(lost)
}

pub(super) async fn dead_letter(
    connection: &dyn Connection,
    owner: &Owner,
    id: EntryId,
    target: &StreamKey,
    max_len: Option<u64>,
    fields: &[(Bytes, Bytes)],
) -> Result<Option<EntryId>, Error> {
    // How long the entry was idle does not matter here: if somebody claims it meanwhile, a duplicate in the dead letters
    // is the worst.
    if owned(connection, owner, [id], Duration::MAX).await?.is_empty() {
        return Ok(None);
    }
    let add = XAdd { trim: max_len.map(Trim::about), ..XAdd::new(target.clone(), fields.to_vec()) };
    let letter = run(connection, &add).await?;
    run(connection, &ack(owner, vec![id])).await?;
    Ok(letter)
}

pub(super) async fn dead_letter_hash(
    connection: &dyn Connection,
    owner: &Owner,
    id: EntryId,
    writes: &[Request],
) -> Result<bool, Error> {
    if owned(connection, owner, [id], Duration::MAX).await?.is_empty() {
        return Ok(false);
    }
    for (request, reply) in writes.iter().zip(connection.send(writes).await?) {
        reply.map_err(|error| Error::from_server(error).at(request.command(), request.stream()))?;
    }
    run(connection, &ack(owner, vec![id])).await?;
    Ok(true)
}

fn fresh(lease: Duration) -> Duration {
    lease / 3 * 2
}

fn claim(owner: &Owner, ids: Vec<EntryId>) -> XClaim {
    XClaim::new(owner.key.clone(), owner.group.clone(), owner.consumer.clone(), ids)
}

fn ack(owner: &Owner, ids: Vec<EntryId>) -> XAck {
    XAck { key: owner.key.clone(), group: owner.group.clone(), ids }
}

/// Parts `ids` into those that are safely owned and the others.
async fn split(
    connection: &dyn Connection,
    owner: &Owner,
    ids: &[EntryId],
    fresh: Duration,
) -> Result<(Vec<EntryId>, Vec<EntryId>), Error> {
    let own = owned(connection, owner, ids.iter().copied(), fresh).await?;
    Ok(ids.iter().partition(|id| own.contains_key(id)))
}

/// Which of `ids` the consumer owns and somebody touched within `fresh`.
async fn owned(
    connection: &dyn Connection,
    owner: &Owner,
    ids: impl IntoIterator<Item = EntryId>,
    fresh: Duration,
) -> Result<HashMap<EntryId, Duration>, Error> {
    let wanted: std::collections::BTreeSet<EntryId> = ids.into_iter().collect();
    let mut own = HashMap::new();
    let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
        return Ok(own);
    };
    let mut page = XPending {
        key: owner.key.clone(),
        group: owner.group.clone(),
        min_idle: None,
        from: first,
        after: false,
        to: last,
        count: wanted.len().max(PAGE),
        consumer: Some(owner.consumer.clone()),
    };
    loop {
        let rows = run(connection, &page).await?;
        for row in &rows {
            if let Some(idle) = row.idle
                && idle < fresh
                && wanted.contains(&row.id)
            {
                own.insert(row.id, idle);
            }
        }
        match rows.last() {
            Some(row) if rows.len() >= page.count => (page.from, page.after) = (row.id, true),
            _ => return Ok(own),
        }
    }
}

/// Sends all commands in one go; the first error ends it.
async fn run_all<C: Command + Sync>(connection: &dyn Connection, commands: &[C]) -> Result<Vec<C::Reply>, Error> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let requests: Vec<Request> = commands.iter().map(Command::request).collect();
    let name = |error: Error, request: &Request| error.at(request.command(), request.stream());
    let replies = connection.send(&requests).await.map_err(|error| name(error, &requests[0]))?;
    if replies.len() != commands.len() {
        return Err(name(Error::new(ErrorKind::Protocol, "not one reply for each request"), &requests[0]));
    }
    let decode = |((command, request), reply): ((&C, &Request), Result<_, crate::ServerError>)| {
        reply.map_err(Error::from).and_then(|value| command.decode(value)).map_err(|error| name(error, request))
    };
    commands.iter().zip(&requests).zip(replies).map(decode).collect()
}
