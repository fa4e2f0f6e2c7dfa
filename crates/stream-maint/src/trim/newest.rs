//! Where the newest entries that are kept by number begin.
//!
//! There is no command for the id at a position, and `MAXLEN` knows nothing of groups; so the entries that are too many
//! are walked from the oldest on, as far as other rules allow them to go. What is walked is what is then deleted.

use stream_core::{EntryId, StreamState, TrimPolicy};
use stream_redis::Error;
use stream_redis::command::XRange;

use crate::link::Link;

/// Entries of one page: they come with their bodies.
const PAGE: u64 = 100;
/// Entries that one run walks at most; the next one goes on from there.
const MAX_WALK: u64 = 100_000;

/// The first id that is kept of `keep` newest entries, or an earlier one where that is far away. [`EntryId::MAX`] where
/// another rule keeps more.
pub(super) async fn from(
    link: &mut Link,
    policy: &TrimPolicy,
    state: &StreamState,
    keep: u64,
) -> Result<Option<EntryId>, Error> {
    let Some(excess) = state.length.checked_sub(keep).filter(|excess| *excess > 0) else { return Ok(None) };
    let unbounded = StreamState { newest_from: Some(EntryId::MAX), ..state.clone() };
    let Some(floor) = policy.plan(&unbounded).min_id else { return Ok(Some(EntryId::MAX)) };
    let mut left = excess.min(MAX_WALK);
    let mut from = EntryId::ZERO;
    loop {
        let count = PAGE.min(left + 1);
        let page = XRange { key: link.key().clone(), from, to: EntryId::MAX, count: count as usize };
        let entries = link.run(&page).await?;
        if let Some(entry) = entries.get(left as usize) {
            return Ok(Some(entry.id()));
        }
        let Some(last) = entries.last().map(stream_core::Entry::id) else { return Ok(None) };
        if last >= floor {
            return Ok(Some(EntryId::MAX));
        }
        left -= entries.len() as u64;
        let Some(next) = last.successor() else { return Ok(None) };
        from = next;
    }
}
