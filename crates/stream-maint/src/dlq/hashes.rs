//! [`HashStore`]: dead letters as Prefect keeps them, a hash for each and a set of their keys.
//!
//! The set has no order, so a walk over all goes as the server scans, and pages that are asked for one by one go by key.
//! What must stay true: a hash is deleted before its key leaves the set, so that a letter which is half deleted is still
//! seen, as one without a hash, and never a hash that nobody knows; and no key is deleted that does not begin with the set's.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use async_trait::async_trait;
use bytes::Bytes;
use stream_core::{LetterContent, LetterError, StreamKey};
use stream_redis::Error;
use stream_redis::command::{Command, Del, HGet, HGetAll, SAdd, SCard, SIsMember, SRem, SScan};

use super::PAGE;
use super::store::{Letter, LetterId, Place, Span, Store, Walk};
use crate::link::{Link, decoded};

/// Keys that one command scans, about.
const SCAN: usize = 1000;
/// Letters of which [`Store::bound`] remembers the age at a time: about 10 MB.
const REMEMBERED: u64 = 100_000;

#[derive(Debug)]
pub(super) struct HashStore;

/// What is left of a walk.
#[derive(Debug, Default)]
pub(super) struct HashPlace {
    /// Keys that were scanned and not read yet.
    keys: VecDeque<Bytes>,
    /// Where the scan goes on; `None` when it has ended.
    cursor: Option<Bytes>,
    /// Whether more keys follow than the walk may go over.
    more: bool,
}

#[async_trait]
impl Store for HashStore {
    async fn len(&self, link: &mut Link) -> Result<u64, Error> {
        let key = link.key().clone();
        link.run(&SCard { key }).await
    }

    async fn walk(&self, link: &mut Link, span: Span) -> Result<Walk, Error> {
        let place = match span {
            Span::Present => HashPlace { cursor: Some(Bytes::from_static(b"0")), ..HashPlace::default() },
            Span::After(Some(LetterId::Entry(_)), _) => HashPlace::default(),
            Span::After(after, most) => {
                let after = match &after {
                    Some(LetterId::Hash(key)) => key.as_bytes(),
                    _ => b"",
                };
                let mut first = BTreeSet::new();
                let mut more = false;
                let mut scan = Scan::new();
                while let Some(keys) = scan.next(link).await? {
                    first.extend(keys.into_iter().filter(|key| key.as_ref() > after));
                    while first.len() > most {
                        first.pop_last();
                        more = true;
                    }
                }
                HashPlace { keys: first.into_iter().collect(), cursor: None, more }
            }
        };
        Ok(Walk::at(Some(Place::Hash(place))))
    }

    async fn turn(&self, link: &mut Link, walk: &mut Walk) -> Result<(), Error> {
        let Some(Place::Hash(mut place)) = walk.place.take() else { return Ok(()) };
        if place.keys.is_empty()
            && let Some(cursor) = place.cursor.take()
        {
            let mut scan = Scan { cursor: Some(cursor) };
            place.keys.extend(scan.next(link).await?.unwrap_or_default());
            place.cursor = scan.cursor;
        }
        let keys: Vec<Bytes> = place.keys.drain(..place.keys.len().min(PAGE)).collect();
        let last = keys.last().and_then(|key| StreamKey::new(key).ok());
        walk.page.extend(read(link, keys).await?);
        if !place.keys.is_empty() || place.cursor.is_some() {
            walk.place = Some(Place::Hash(place));
        } else if place.more {
            walk.cut = last.map(LetterId::Hash);
        }
        Ok(())
    }

    async fn get(&self, link: &mut Link, id: &LetterId) -> Result<Option<Letter>, Error> {
        let LetterId::Hash(key) = id else { return Ok(None) };
        Ok(read(link, vec![Bytes::copy_from_slice(key.as_bytes())]).await?.pop())
    }

    async fn delete(&self, link: &mut Link, ids: Vec<LetterId>) -> Result<u64, Error> {
        let keys = keys(ids);
        let mut deleted = 0;
        for keys in keys.chunks(PAGE) {
            // What has another name is not one of ours to delete, whoever put it into the set.
            let own = [link.key().as_bytes(), b":"].concat();
            let ours = keys.iter().filter(|key| key.as_bytes().starts_with(&own));
            let commands: Vec<Del> = ours.map(|key| Del { key: key.clone() }).collect();
            for there in link.run_all(&commands).await? {
                there?;
            }
            let key = link.key().clone();
            deleted += link.run(&SRem { key, members: members(keys) }).await?;
        }
        Ok(deleted)
    }

    async fn forget(&self, link: &mut Link, ids: Vec<LetterId>) -> Result<(), Error> {
        for keys in keys(ids).chunks(PAGE) {
            let key = link.key().clone();
            link.run(&SRem { key: key.clone(), members: members(keys) }).await?;
            let hashes: Vec<HGetAll> = keys.iter().map(|key| HGetAll { key: key.clone() }).collect();
            let found = link.run_all(&hashes).await?;
            // One that has come since it was missed was named before its name was removed, or is named after.
            let there = keys.iter().zip(found).filter(|(_, found)| !found.as_ref().is_ok_and(Vec::is_empty));
            let there: Vec<StreamKey> = there.map(|(key, _)| key.clone()).collect();
            if !there.is_empty() {
                link.run(&SAdd { key, members: members(&there) }).await?;
            }
        }
        Ok(())
    }

    async fn bound(&self, link: &mut Link, keep: u64) -> Result<u64, Error> {
        let mut dropped = 0;
        loop {
            let excess = self.len(link).await?.saturating_sub(keep).min(REMEMBERED);
            if excess == 0 {
                return Ok(dropped);
            }
            let oldest = oldest(link, excess as usize, keep).await?;
            let went = self.delete(link, oldest).await?;
            dropped += went;
            if went == 0 {
                return Ok(dropped);
            }
        }
    }
}

fn keys(ids: Vec<LetterId>) -> Vec<StreamKey> {
    let hash = |id| if let LetterId::Hash(key) = id { Some(key) } else { None };
    ids.into_iter().filter_map(hash).collect()
}

fn members(keys: &[StreamKey]) -> Vec<Bytes> {
    keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
}

/// The keys of the letters that were given up first, at most as many as are there beyond `keep`: another process may be at
/// the same. Those that do not say when count as the oldest.
async fn oldest(link: &mut Link, most: usize, keep: u64) -> Result<Vec<LetterId>, Error> {
    let mut oldest: BTreeSet<(u64, Bytes)> = BTreeSet::new();
    let hasher = RandomState::new();
    // A scan may give a key twice. Two keys with one hash make it seem that there are fewer, which deletes less.
    let mut seen: HashSet<u64> = HashSet::new();
    let mut scan = Scan::new();
    while let Some(keys) = scan.next(link).await? {
        for keys in keys.chunks(PAGE) {
            let named = |key: &Bytes| StreamKey::new(key).ok().map(|key| HGet { key, field: "at" });
            let commands: Vec<HGet> = keys.iter().filter_map(named).collect();
            for (command, at) in commands.iter().zip(link.run_all(&commands).await?) {
                let at = match at {
                    // Something else has taken its key; it is no letter any more.
                    Err(error) if error.kind() == stream_redis::ErrorKind::WrongType => None,
                    at => at?,
                };
                let at = at.and_then(|at| std::str::from_utf8(&at).ok()?.parse().ok()).unwrap_or(0);
                seen.insert(hasher.hash_one(command.key.as_bytes()));
                oldest.insert((at, Bytes::copy_from_slice(command.key.as_bytes())));
                if oldest.len() > most {
                    oldest.pop_last();
                }
            }
        }
    }
    let excess = (seen.len() as u64).saturating_sub(keep).min(most as u64) as usize;
    let keys = oldest.iter().take(excess);
    Ok(keys.filter_map(|(_, key)| StreamKey::new(key).ok()).map(LetterId::Hash).collect())
}

/// The letters with these keys, without those that somebody has deleted meanwhile.
async fn read(link: &mut Link, keys: Vec<Bytes>) -> Result<Vec<Letter>, Error> {
    let set = link.key().clone();
    let keys: Vec<StreamKey> = keys.into_iter().filter_map(|key| StreamKey::new(key).ok()).collect();
    let hashes: Vec<HGetAll> = keys.iter().map(|key| HGetAll { key: key.clone() }).collect();
    let member = |key: &StreamKey| SIsMember { key: set.clone(), member: Bytes::copy_from_slice(key.as_bytes()) };
    let members: Vec<SIsMember> = keys.iter().map(member).collect();
    let requests: Vec<_> = hashes.iter().map(Command::request).chain(members.iter().map(Command::request)).collect();
    let mut replies = link.send(&requests).await?;
    let there = replies.split_off(hashes.len());
    let mut letters = Vec::with_capacity(keys.len());
    for ((key, (hash, fields)), (member, there)) in
        keys.into_iter().zip(hashes.iter().zip(replies)).zip(members.iter().zip(there))
    {
        let content = match decoded(hash, fields) {
            Ok(fields) => LetterContent::from_hash(fields.iter().map(|(name, value)| (&name[..], &value[..]))),
            // Something else has taken its key.
            Err(error) if error.kind() == stream_redis::ErrorKind::WrongType => {
                Err(LetterError::Field { field: "data" })
            }
            Err(error) => return Err(error),
        };
        if decoded(member, there)? {
            letters.push(Letter { id: LetterId::Hash(key), content });
        }
    }
    Ok(letters)
}

/// One scan over the set.
struct Scan {
    cursor: Option<Bytes>,
}

impl Scan {
    fn new() -> Self {
        Self { cursor: Some(Bytes::from_static(b"0")) }
    }

    async fn next(&mut self, link: &mut Link) -> Result<Option<Vec<Bytes>>, Error> {
        let Some(cursor) = self.cursor.take() else { return Ok(None) };
        let key = link.key().clone();
        let (cursor, keys) = link.run(&SScan { key, cursor, count: SCAN }).await?;
        self.cursor = Some(cursor).filter(|cursor| cursor.as_ref() != b"0");
        Ok(Some(keys))
    }
}
