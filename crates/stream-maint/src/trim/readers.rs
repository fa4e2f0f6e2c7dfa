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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # let ids: Vec<_> = ["1", "2", "3"].iter().map(|n| server.add("orders", [("n", n)])).collect();
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
    /// # let read = ids[0];
    /// use stream_core::GroupName;
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// trimmer.readers().set(&GroupName::new("dashboard")?, read); // has read the first of three
    /// trimmer.run().await?;
    /// # let left = server.len("orders");
    /// assert_eq!(left, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&self, name: &GroupName, cursor: EntryId) {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), cursor);
    }

    /// The reader has ended: nothing is kept for it any more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
    /// use stream_core::{EntryId, GroupName};
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// let (readers, dashboard) = (trimmer.readers(), GroupName::new("dashboard")?);
    /// readers.set(&dashboard, EntryId::ZERO);
    /// assert_eq!(trimmer.plan().await?.and_then(|plan| plan.min_id), None); // it holds everything
    /// readers.forget(&dashboard);
    /// assert!(trimmer.plan().await?.is_some_and(|plan| plan.min_id.is_some()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self, name: &GroupName) {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    pub(super) fn cursors(&self) -> Vec<(GroupName, EntryId)> {
        let cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.iter().map(|(name, cursor)| (name.clone(), *cursor)).collect()
    }
}
