//! Where the newest entries that are kept by number begin.
//!
//! There is no command for the id at a position, and `MAXLEN` knows nothing of groups; so the entries that are too many
//! are walked from the oldest on, as far as other rules allow them to go. What is walked is what is then deleted.
//!
//! What must stay true: no fewer than `keep` entries are left, whoever else deletes some at the same time. How many are too
//! many was counted before the walk, and what has left the front since is not among those that were walked; so the stream is
//! counted once more after the walk, and where it has become too short for that, nothing goes by number this time.

use stream_core::{Entry, EntryId, StreamState, TrimPolicy};
use stream_redis::command::{XInfoStream, XRange};
use stream_redis::{Error, ErrorKind};

use crate::link::Link;

/// Entries of one page: they come with their bodies.
const PAGE: u64 = 100;
/// Entries that one run walks at most; the next one goes on from there.
const MAX_WALK: u64 = 100_000;

/// The first id that is kept of `keep` newest entries, or an earlier one where that is far away. [`EntryId::MAX`] where
/// another rule keeps more; `None` where it is not known.
pub(super) async fn from(
    link: &mut Link,
    policy: &TrimPolicy,
    state: &StreamState,
    keep: u64,
) -> Result<Option<EntryId>, Error> {
    let Some(excess) = state.length.checked_sub(keep).filter(|excess| *excess > 0) else { return Ok(None) };
    let unbounded = StreamState { newest_from: Some(EntryId::MAX), ..state.clone() };
    let Some(floor) = policy.plan(&unbounded).min_id else { return Ok(Some(EntryId::MAX)) };
    let excess = excess.min(MAX_WALK);
    let mut walked = 0;
    let mut from = EntryId::ZERO;
    let first_kept = loop {
        let left = excess - walked;
        let count = PAGE.min(left + 1);
        let page = XRange { key: link.key().clone(), from, to: EntryId::MAX, count: count as usize };
        let entries = link.run(&page).await?;
        if let Some(entry) = entries.get(left as usize) {
            walked = excess;
            break entry.id();
        }
        let Some(last) = entries.last().map(Entry::id) else { return Ok(None) };
        if last >= floor {
            walked += entries.iter().filter(|entry| entry.id() < floor).count() as u64;
            break EntryId::MAX;
        }
        walked += entries.len() as u64;
        let Some(next) = last.successor() else { return Ok(None) };
        from = next;
    };
    match link.run(&XInfoStream { key: link.key().clone() }).await {
        Ok(now) if now.length >= keep.saturating_add(walked) => Ok(Some(first_kept)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Missing => Ok(None),
        Err(error) => Err(error),
    }
}
