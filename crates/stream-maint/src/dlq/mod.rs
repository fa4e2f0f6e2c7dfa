//! [`DeadLetters`]: what was given up, to look at, to send back, and to empty; on a stream, or as Prefect keeps it.
//!
//! What must stay true: a letter is deleted only after what becomes of it is written, so whatever dies in between leaves a
//! duplicate and never a loss; a letter that cannot be read stays until it is purged on purpose; and a task ends however
//! many letters arrive while it runs, so that what dies again at once is not sent back for ever.

mod filter;
mod hashes;
mod redrive;
mod store;
mod stream;
mod trail;

use std::collections::{BTreeMap, HashMap};

use stream_core::{DeadReason, GroupName, NameError, StreamKey};
use stream_redis::command::Command;
use stream_redis::{Client, Error, ErrorKind};

pub use filter::LetterFilter;
pub use redrive::{Redrive, RedrivePlan, RedriveReport};
pub use store::{Letter, LetterId};
pub use trail::Redriven;

use crate::link::Link;
use store::{Span, Store, Walk};

/// Letters read in one round trip: they come with their bodies.
const PAGE: usize = 100;
/// Letters that one call of [`DeadLetters::list`] looks at to find those that match.
const MAX_SCAN: usize = 10_000;

/// Dead letters: by convention the stream `STREAM:dead` ([`new`](Self::new)), or Prefect's set `dlq` with a hash for each
/// letter ([`prefect`](Self::prefect)). Everything else is the same for both.
///
/// ```
/// use stream_maint::{DeadLetters, LetterFilter, Redrive};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # use stream_core::*;
/// # let server = stream_testkit::MemoryServer::new();
/// # server.add("orders", [("item", "apple")]);
/// # let letter = DeadLetter { entry: server.entries("orders")[0].clone(), stream: StreamKey::new("orders")?,
/// #     group: GroupName::new("billing")?, consumer: ConsumerName::new("c")?, attempts: 8,
/// #     reason: DeadReason::Exhausted { error: None }, dead_at_ms: 1, redriven: 0 };
/// # server.add("orders:dead", letter.to_fields());
/// # let client = server.client();
/// let mut dead = DeadLetters::new(&client, "orders:dead")?;
/// let page = dead.list(&LetterFilter::all(), None, 20).await?;
/// let letter = page.letters[0].content.clone()?;
/// println!("{:?} of {:?} was started {:?} times: {:?}", letter.id, letter.stream, letter.attempts, letter.reason);
///
/// let report = dead.redrive(&Redrive::new().filter(LetterFilter::all().reason("exhausted"))).await?;
/// assert_eq!(report.redriven, 1);
/// assert_eq!(dead.len().await?, 0);
/// # assert_eq!(server.entries("orders")[1].get("item"), Some(&b"apple"[..]));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct DeadLetters {
    client: Client,
    link: Link,
    store: Box<dyn Store>,
    /// Connections for the streams that letters go back to, which may live on other nodes.
    targets: HashMap<StreamKey, Link>,
}

/// Some letters, and where to go on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders:dead", [("n", n)]); }
/// use stream_maint::{DeadLetters, LetterFilter};
/// let mut dead = DeadLetters::new(&client, "orders:dead")?;
/// let page = dead.list(&LetterFilter::all(), None, 2).await?;
/// assert_eq!(page.letters.len(), 2);
/// let rest = dead.list(&LetterFilter::all(), page.next, 2).await?;
/// assert_eq!((rest.letters.len(), rest.next), (1, None));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Oldest first on a stream, by key in the other layout; may be fewer than asked for although more follow.
    pub letters: Vec<Letter>,
    /// What to pass as `after` for the next page; `None` after the last.
    pub next: Option<LetterId>,
}

/// How many letters there are, and of what.
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
/// let totals = stream_maint::DeadLetters::new(&client, "orders:dead")?.totals().await?;
/// assert_eq!((totals.letters, totals.unreadable), (2, 1));
/// let of_billing = (Some(StreamKey::new("orders")?), Some(GroupName::new("billing")?), "exhausted");
/// assert_eq!(totals.by[&of_billing], 1);
/// assert_eq!(totals.oldest_ms, Some(1_700_000_000_000));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LetterTotals {
    /// All letters.
    pub letters: u64,
    /// Those that cannot be read.
    pub unreadable: u64,
    /// By the stream they were published to, the group that gave them up and the code of the reason; `None` and an empty
    /// code where a letter does not tell.
    pub by: BTreeMap<(Option<StreamKey>, Option<GroupName>, &'static str), u64>,
    /// When the first that is left was given up, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
}

impl DeadLetters {
    /// The dead letters on the stream `key`. Connects to nothing yet.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_maint::DeadLetters;
    /// let mut dead = DeadLetters::new(&client, "orders:dead")?;
    /// assert_eq!(dead.len().await?, 0); // a stream that does not exist holds none
    /// assert!(DeadLetters::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the name is empty.
    pub fn new(client: &Client, key: impl AsRef<[u8]>) -> Result<Self, Error> {
        Self::with(client, key.as_ref(), Box::new(stream::StreamStore))
    }

    /// The dead letters that the set `set` names, a hash for each: the layout of Prefect, whose set is `dlq`. Letters that
    /// Prefect has written do not tell the stream they came from, so name one ([`Redrive::to`]) to send them back.
    ///
    /// The set has no order: a task that goes over all letters may meet some that arrive while it runs. A hash that is in no
    /// set, which a process of Prefect that died in between leaves behind, is not seen.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let json = r#"{"data": "{}", "attributes": {}, "retry_count": 4, "timestamp": "8.5", "message_id": "x"}"#;
    /// # server.command(["HSET", "dlq:0af3", "data", json])?;
    /// # server.command(["SADD", "dlq", "dlq:0af3"])?;
    /// # let client = server.client();
    /// use stream_core::StreamKey;
    /// use stream_maint::{DeadLetters, Redrive};
    /// let mut dead = DeadLetters::prefect(&client, "dlq")?;
    /// let back = Redrive::new().to(StreamKey::new("events")?).make_streams();
    /// assert_eq!(dead.redrive(&back).await?.redriven, 1);
    /// assert!(dead.is_empty().await?);
    /// # assert_eq!(server.len("events"), 1);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the name is empty.
    pub fn prefect(client: &Client, set: impl AsRef<[u8]>) -> Result<Self, Error> {
        Self::with(client, set.as_ref(), Box::new(hashes::HashStore))
    }

    fn with(client: &Client, key: &[u8], store: Box<dyn Store>) -> Result<Self, Error> {
        let key = StreamKey::new(key).map_err(|error: NameError| {
            Error::new(ErrorKind::Config, "the name of the dead letters is refused").with_source(error)
        })?;
        Ok(Self { client: client.clone(), link: Link::new(client, key), store, targets: HashMap::new() })
    }

    /// The key of the stream or of the set.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_maint::DeadLetters;
    /// assert_eq!(DeadLetters::new(&client, "orders:dead")?.key().to_string(), "orders:dead");
    /// assert_eq!(DeadLetters::prefect(&client, "dlq")?.key().to_string(), "dlq");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &StreamKey {
        self.link.key()
    }

    /// Number of letters; 0 where there are none.
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
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// assert_eq!(dead.len().await?, 1); // what an alarm looks at
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn len(&mut self) -> Result<u64, Error> {
        self.store.len(&mut self.link).await
    }

    /// Whether there is no letter.
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
    /// use stream_maint::{DeadLetters, LetterFilter};
    /// let mut dead = DeadLetters::new(&client, "orders:dead")?;
    /// assert!(!dead.is_empty().await?);
    /// dead.purge(&LetterFilter::all()).await?;
    /// assert!(dead.is_empty().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn is_empty(&mut self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Up to `count` letters that match, after the one with the id `after` of an earlier page.
    ///
    /// There is no index: a call looks at 10,000 letters at most and may return none although more follow
    /// ([`Page::next`]).
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_maint::LetterFilter;
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// let mut after = None;
    /// loop {
    ///     let page = dead.list(&LetterFilter::all().reason("rejected"), after, 50).await?;
    ///     page.letters.iter().for_each(|letter| println!("{}: {:?}", letter.id, letter.content));
    ///     after = page.next;
    ///     if after.is_none() {
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn list(&mut self, filter: &LetterFilter, after: Option<LetterId>, count: usize) -> Result<Page, Error> {
        let mut letters = Vec::new();
        if count == 0 {
            return Ok(Page { letters, next: after });
        }
        let mut walk = self.store.walk(&mut self.link, Span::After(after, MAX_SCAN)).await?;
        while let Some(letter) = self.next(&mut walk).await? {
            let id = letter.id.clone();
            letters.extend(meant(letter, filter));
            if letters.len() >= count {
                return Ok(Page { letters, next: Some(id) });
            }
        }
        Ok(Page { letters, next: walk.cut })
    }

    /// The letter with this id.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_core::EntryId;
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// assert!(dead.show(EntryId::new(1_700_000_000_000, 0)).await?.is_none());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn show(&mut self, id: impl Into<LetterId>) -> Result<Option<Letter>, Error> {
        self.store.get(&mut self.link, &id.into()).await
    }

    /// Counts the letters. Reads all of them, a page at a time: minutes where there are millions. In a set, the numbers are
    /// about right while letters come and go.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// let totals = dead.totals().await?;
    /// for ((stream, group, reason), letters) in &totals.by {
    ///     println!("{letters} of {stream:?}, given up by {group:?}: {reason}");
    /// }
    /// assert_eq!(totals.letters, 0);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn totals(&mut self) -> Result<LetterTotals, Error> {
        let mut totals = LetterTotals::default();
        let mut walk = self.store.walk(&mut self.link, Span::Present).await?;
        while let Some(letter) = self.next(&mut walk).await? {
            totals.letters += 1;
            let Ok(letter) = letter.content else {
                totals.unreadable += 1;
                continue;
            };
            totals.oldest_ms = totals.oldest_ms.into_iter().chain(letter.dead_at_ms).min();
            let reason = letter.reason.as_ref().map_or("", DeadReason::as_str);
            *totals.by.entry((letter.stream, letter.group, reason)).or_default() += 1;
        }
        Ok(totals)
    }

    /// Deletes letters for good; returns how many. Those that cannot be read go only with [`LetterFilter::all`].
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_maint::{DeadLetters, LetterFilter};
    /// let mut dead = DeadLetters::new(&client, "orders:dead")?;
    /// assert_eq!(dead.purge(&LetterFilter::all().reason("rejected")).await?, 0);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server; what was deleted until then is deleted.
    pub async fn purge(&mut self, filter: &LetterFilter) -> Result<u64, Error> {
        let mut purged = 0;
        let mut walk = self.store.walk(&mut self.link, Span::Present).await?;
        loop {
            let mut ids = Vec::new();
            while let Some(letter) = self.next(&mut walk).await? {
                ids.extend(meant(letter, filter).map(|letter| letter.id));
                if walk.page.is_empty() {
                    break;
                }
            }
            if !ids.is_empty() {
                purged += self.store.delete(&mut self.link, ids).await?;
            } else if walk.place.is_none() && walk.page.is_empty() {
                return Ok(purged);
            }
        }
    }

    /// Keeps the newest `keep` letters and drops the others; returns how many, which is how many are lost for good. For
    /// who would rather lose old letters than the server's memory; a warning says so each time. In a set, those that do not
    /// tell when they were given up count as the oldest.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// let dropped = dead.bound(100_000).await?;
    /// assert_eq!(dropped, 0);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server; what was dropped until then is dropped.
    pub async fn bound(&mut self, keep: u64) -> Result<u64, Error> {
        let dropped = self.store.bound(&mut self.link, keep).await?;
        if dropped > 0 {
            tracing::warn!(key = %self.key(), dropped, keep, "dropped the oldest dead letters, as the bound says");
        }
        Ok(dropped)
    }

    /// The next letter of a walk.
    async fn next(&mut self, walk: &mut Walk) -> Result<Option<Letter>, Error> {
        while walk.page.is_empty() && walk.place.is_some() {
            self.store.turn(&mut self.link, walk).await?;
        }
        Ok(walk.page.pop_front())
    }

    /// Sends commands about the stream `key`.
    async fn run_at<C: Command + Sync>(
        &mut self,
        key: &StreamKey,
        commands: &[C],
    ) -> Result<Vec<Result<C::Reply, Error>>, Error> {
        let client = &self.client;
        let link = self.targets.entry(key.clone()).or_insert_with(|| Link::new(client, key.clone()));
        link.run_all(commands).await
    }
}

/// The letter, if it matches.
fn meant(letter: Letter, filter: &LetterFilter) -> Option<Letter> {
    let meant = letter.content.as_ref().map_or(filter.is_all(), |content| filter.matches(content));
    meant.then_some(letter)
}
