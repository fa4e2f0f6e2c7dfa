//! [`StreamStore`]: dead letters as the entries of a stream, in the order in which they were given up.

use async_trait::async_trait;
use stream_core::{DeadLetter, Entry, EntryId, LetterContent, LetterError};
use stream_redis::command::{Precision, Trim, TrimTo, XDel, XInfoStream, XLen, XRange, XTrim};
use stream_redis::{Error, ErrorKind};

use super::PAGE;
use super::store::{Letter, LetterId, Place, Span, Store, Walk};
use crate::link::Link;

/// Letters that one command drops at most.
const STEP: u64 = 10_000;

#[derive(Debug)]
pub(super) struct StreamStore;

/// What is left of a walk: both ends are part of it.
#[derive(Debug)]
pub(super) struct StreamPlace {
    next: EntryId,
    end: EntryId,
    /// How many letters it may still go over.
    left: usize,
}

#[async_trait]
impl Store for StreamStore {
    async fn len(&self, link: &mut Link) -> Result<u64, Error> {
        let key = link.key().clone();
        link.run(&XLen { key }).await
    }

    async fn walk(&self, link: &mut Link, span: Span) -> Result<Walk, Error> {
        let place = match span {
            Span::Present => {
                let key = link.key().clone();
                match link.run(&XInfoStream { key }).await {
                    Ok(info) => Some((EntryId::ZERO, info.last_generated_id, usize::MAX)),
                    Err(error) if error.kind() == ErrorKind::Missing => None,
                    Err(error) => return Err(error),
                }
            }
            Span::After(Some(LetterId::Entry(after)), most) => after.successor().map(|next| (next, EntryId::MAX, most)),
            // A key is no id of this layout, and nothing comes after it.
            Span::After(Some(LetterId::Hash(_)), _) => None,
            Span::After(None, most) => Some((EntryId::ZERO, EntryId::MAX, most)),
        };
        Ok(Walk::at(place.map(|(next, end, left)| Place::Stream(StreamPlace { next, end, left }))))
    }

    async fn turn(&self, link: &mut Link, walk: &mut Walk) -> Result<(), Error> {
        let Some(Place::Stream(place)) = walk.place.take() else { return Ok(()) };
        let StreamPlace { next, end, left } = place;
        if next > end {
            return Ok(());
        }
        if left == 0 {
            walk.cut = next.predecessor().map(LetterId::Entry);
            return Ok(());
        }
        let entries = read(link, next, end, left.min(PAGE)).await?;
        if let Some(next) = entries.last().and_then(|entry| entry.id().successor()) {
            walk.place = Some(Place::Stream(StreamPlace { next, end, left: left.saturating_sub(entries.len()) }));
        }
        walk.page.extend(entries.iter().map(letter));
        Ok(())
    }

    async fn get(&self, link: &mut Link, id: &LetterId) -> Result<Option<Letter>, Error> {
        let LetterId::Entry(id) = *id else { return Ok(None) };
        Ok(read(link, id, id, 1).await?.first().map(letter))
    }

    async fn delete(&self, link: &mut Link, ids: Vec<LetterId>) -> Result<u64, Error> {
        let entry = |id| if let LetterId::Entry(id) = id { Some(id) } else { None };
        let ids: Vec<EntryId> = ids.into_iter().filter_map(entry).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let key = link.key().clone();
        link.run(&XDel { key, ids }).await
    }

    async fn forget(&self, _: &mut Link, _: Vec<LetterId>) -> Result<(), Error> {
        // A letter and its id are one.
        Ok(())
    }

    async fn bound(&self, link: &mut Link, keep: u64) -> Result<u64, Error> {
        let key = link.key().clone();
        let command = |precision| XTrim { key: key.clone(), trim: Trim { to: TrimTo::MaxLen(keep), precision } };
        let step = command(Precision::Approximate { limit: Some(STEP) });
        let mut dropped = 0;
        loop {
            let went = link.run(&step).await?;
            dropped += went;
            if went == 0 {
                break;
            }
        }
        Ok(dropped + link.run(&command(Precision::Exact)).await?)
    }
}

async fn read(link: &mut Link, from: EntryId, to: EntryId, count: usize) -> Result<Vec<Entry>, Error> {
    let key = link.key().clone();
    link.run(&XRange { key, from, to, count }).await
}

fn letter(entry: &Entry) -> Letter {
    let content = DeadLetter::from_entry(entry).map(LetterContent::from).map_err(LetterError::from);
    Letter { id: LetterId::Entry(entry.id()), content }
}
