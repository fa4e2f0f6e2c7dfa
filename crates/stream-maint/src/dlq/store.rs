//! [`Store`]: where dead letters lie. The one seam between what is done with letters and the layouts they are kept in.
//!
//! What must stay true: a walk ends, also while letters are added and deleted; and deleting a letter that is not there (any
//! more) is no error.

use std::collections::VecDeque;
use std::fmt;

use async_trait::async_trait;
use stream_core::{EntryId, LetterContent, LetterError, StreamKey};
use stream_redis::Error;

use super::hashes::HashPlace;
use super::stream::StreamPlace;
use crate::link::Link;

/// What names a letter among the others: an id on a stream, the key of a hash in the other layout.
///
/// ```
/// use stream_core::{EntryId, StreamKey};
/// use stream_maint::LetterId;
/// assert_eq!(LetterId::from(EntryId::new(7, 0)).to_string(), "7-0");
/// assert_eq!(LetterId::from(StreamKey::new("dlq:0af3")?).to_string(), "dlq:0af3");
/// # Ok::<_, stream_core::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LetterId {
    /// Its id on the stream of dead letters.
    Entry(EntryId),
    /// The key of its hash.
    Hash(StreamKey),
}

impl From<EntryId> for LetterId {
    fn from(id: EntryId) -> Self {
        Self::Entry(id)
    }
}

impl From<StreamKey> for LetterId {
    fn from(key: StreamKey) -> Self {
        Self::Hash(key)
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(id) => id.fmt(f),
            Self::Hash(key) => key.fmt(f),
        }
    }
}

/// One letter as it lies among the dead letters.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # use stream_core::*;
/// # let letter = DeadLetter { entry: Entry::new(EntryId::new(1, 0), [("item", "apple")])?, stream: StreamKey::new("orders")?,
/// #     group: GroupName::new("billing")?, consumer: ConsumerName::new("c")?, attempts: 8,
/// #     reason: DeadReason::Exhausted { error: None }, dead_at_ms: 1_700_000_000_000, redriven: 0 };
/// # server.add("orders:dead", letter.to_fields());
/// # server.add("orders:dead", [("n", "foreign")]);
/// use stream_maint::{DeadLetters, LetterFilter};
/// let page = DeadLetters::new(&client, "orders:dead")?.list(&LetterFilter::all(), None, 10).await?;
/// let first = page.letters[0].content.as_ref().map_err(Clone::clone)?;
/// assert_eq!((first.attempts, first.get("item")), (Some(8), Some(&b"apple"[..])));
/// assert!(page.letters[1].content.is_err()); // somebody else wrote it
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// What names it.
    pub id: LetterId,
    /// What it says, or why it cannot be read.
    pub content: Result<LetterContent, LetterError>,
}

/// Which letters a walk goes over.
#[derive(Debug, Clone)]
pub(super) enum Span {
    /// Those that are there now.
    Present,
    /// Those after this one, in an order that is always the same, up to this many.
    After(Option<LetterId>, usize),
}

/// A walk over letters, a page at a time.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Letters that were read and not looked at yet.
    pub(super) page: VecDeque<Letter>,
    /// Where the next page is; `None` at the end.
    pub(super) place: Option<Place>,
    /// What the walk ended at, where letters may follow.
    pub(super) cut: Option<LetterId>,
    /// Letters that the set names and whose hash is gone.
    pub(super) half_deleted: Vec<LetterId>,
}

#[derive(Debug)]
pub(super) enum Place {
    Stream(StreamPlace),
    Hash(HashPlace),
}

impl Walk {
    pub(super) fn at(place: Option<Place>) -> Self {
        Self { place, ..Self::default() }
    }
}

/// A layout of dead letters. Each call may fail with the errors of the connection or the server.
#[async_trait]
pub(super) trait Store: fmt::Debug + Send {
    /// Number of letters.
    async fn len(&self, link: &mut Link) -> Result<u64, Error>;

    /// The beginning of a walk.
    async fn walk(&self, link: &mut Link, span: Span) -> Result<Walk, Error>;

    /// Reads the next page of a walk, which may be empty, and moves its place on.
    async fn turn(&self, link: &mut Link, walk: &mut Walk) -> Result<(), Error>;

    /// One letter.
    async fn get(&self, link: &mut Link, id: &LetterId) -> Result<Option<Letter>, Error>;

    /// Deletes letters; returns how many were there.
    async fn delete(&self, link: &mut Link, ids: Vec<LetterId>) -> Result<u64, Error>;

    /// Forgets the names of letters that have gone, but for those that are there after all.
    async fn forget(&self, link: &mut Link, ids: Vec<LetterId>) -> Result<(), Error>;

    /// Drops the oldest until no more than `keep` are left; returns how many.
    async fn bound(&self, link: &mut Link, keep: u64) -> Result<u64, Error>;
}
