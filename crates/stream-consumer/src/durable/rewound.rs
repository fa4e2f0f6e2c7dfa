//! A server that has forgotten its latest writes: killed without having synced them, or replaced by a replica that lagged.
//!
//! To whoever remembers more, its stream looks like another one. But the group is there, and what it lists as ours is ours: a
//! handler that runs must not be started a second time beside itself. What must stay true: what cannot be proved to be of the
//! same stream is held to be of another one.

use stream_core::{EntryId, Lease, Slot};
use stream_redis::command::XPending;
use stream_redis::{Error, ErrorKind};

use super::group::is_denied;
use super::stream::Stream;

/// What is held, and which of it the group lists as ours.
#[derive(Debug)]
pub(crate) struct Rewound {
    /// Held when the group was asked, and not pending for us: it was delivered by what is forgotten.
    undelivered: Vec<(Slot, EntryId)>,
    /// The greatest id of the stream by now.
    last_generated: EntryId,
}

impl Rewound {
    /// Asks the group, which exists. `None` where nothing that is held is in its list: that is another group, or it cannot be
    /// told.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) async fn look(stream: &Stream, last_generated: EntryId) -> Result<Option<Self>, Error> {
        let mut held: Vec<(Slot, EntryId)> = stream
            .book()
            .ledger
            .iter()
            .filter(|(_, _, lease)| matches!(lease, Lease::Held(_)))
            .map(|(slot, id, _)| (slot, id))
            .collect();
        let (first, last) = (held.iter().map(|(_, id)| *id).min(), held.iter().map(|(_, id)| *id).max());
        let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
        let before = held.len();
        let mut page = XPending {
            key: stream.owner.key.clone(),
            group: stream.owner.group.clone(),
            min_idle: None,
            from: first,
            after: false,
            to: last,
            count: 1_000,
            consumer: Some(stream.owner.consumer.clone()),
        };
        loop {
            let entries = match stream.link.run(&page).await {
                Ok(entries) => entries,
                Err(error) if is_denied(&error) || error.kind() == ErrorKind::Missing => return Ok(None),
                Err(error) => return Err(error),
            };
            // Both ascend.
            held.retain(|(_, id)| entries.binary_search_by_key(id, |entry| entry.id).is_err());
            match entries.last() {
                Some(end) if entries.len() == page.count => (page.from, page.after) = (end.id, true),
                _ => break,
            }
        }
        Ok((held.len() < before).then_some(Self { undelivered: held, last_generated }))
    }

    /// Goes on with what is ours. What was delivered and is not any more comes again, unless its entry is gone as well; and what
    /// was finished is recognised, should that be forgotten.
    pub(crate) fn settle(&self, stream: &Stream) {
        for (slot, id) in &self.undelivered {
            if *id > self.last_generated {
                stream.lost(*slot);
            } else {
                stream.book().ledger.orphan(*slot);
            }
        }
        let mut book = stream.book();
        // These ids may be given to other entries.
        book.finished.forget_above(self.last_generated);
        book.recognise = true;
    }
}
