//! [`Readers`]: the cursors of readers without a group, which the server does not know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use stream_core::{EntryId, GroupName};

/// How far readers without a group (`XREAD`) are, for a [`Trimmer`](super::Trimmer) in the same process: what comes after
/// a cursor is kept. Clones are the same list.
///
/// Such a reader leaves nothing on the server, so a trimmer in another process does not spare what it has not read; the
/// reader notices the gap and reports it. Where that is too little, use a group.
///
/// ```
/// use stream_core::{EntryId, GroupName};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = stream_testkit::MemoryServer::new().client();
/// let trimmer = stream_maint::Trimmer::builder(&client).stream("events").build()?;
/// let (readers, dashboard) = (trimmer.readers(), GroupName::new("dashboard")?);
/// readers.set(&dashboard, EntryId::new(7, 0)); // after each batch
/// readers.forget(&dashboard); // when it ends: until then it pins the floor
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Readers {
    cursors: Arc<Mutex<BTreeMap<GroupName, EntryId>>>,
}

impl Readers {
    /// The reader `name` has read up to `cursor`; `0-0` keeps everything for it. The name stands for it in reports.
    pub fn set(&self, name: &GroupName, cursor: EntryId) {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), cursor);
    }

    /// The reader has ended: nothing is kept for it any more.
    pub fn forget(&self, name: &GroupName) {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    pub(super) fn cursors(&self) -> Vec<(GroupName, EntryId)> {
        let cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.iter().map(|(name, cursor)| (name.clone(), *cursor)).collect()
    }
}
