//! [`DeadLetters`]: a stream of dead letters, to look at, to send back, and to empty.
//!
//! What must stay true: a letter is deleted only after what becomes of it is written, so whatever dies in between leaves a
//! duplicate and never a loss; a letter that cannot be read stays until it is purged on purpose; and letters that arrive
//! while a task runs are left for the next one, so that what dies again at once is not sent back for ever.

mod filter;
mod redrive;
mod trail;

use std::collections::{BTreeMap, HashMap};

use stream_core::{DeadLetter, DeadLetterError, Entry, EntryId, GroupName, NameError, StreamKey};
use stream_redis::command::{Command, Precision, Trim, TrimTo, XDel, XInfoStream, XRange, XTrim};
use stream_redis::{Client, Error, ErrorKind};

pub use filter::LetterFilter;
pub use redrive::{Redrive, RedrivePlan, RedriveReport};
pub use trail::Redriven;

use crate::link::Link;

/// Letters read in one round trip: they come with their bodies.
const PAGE: usize = 100;
/// Letters that one call of [`DeadLetters::list`] looks at to find those that match.
const MAX_SCAN: usize = 10_000;
/// Letters that one command drops at most.
const STEP: u64 = 10_000;

/// The dead letters of one stream of them, by convention `STREAM:dead`.
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
/// println!("{} of {} failed {} times: {}", letter.entry.id(), letter.stream, letter.attempts, letter.reason.as_str());
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
    /// Connections for the streams that letters go back to, which may live on other nodes.
    targets: HashMap<StreamKey, Link>,
}

/// One letter as it lies on the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Letter {
    /// Its id on the stream of dead letters.
    pub id: EntryId,
    /// What it says, or why it cannot be read.
    pub content: Result<DeadLetter, DeadLetterError>,
}

/// Some letters, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Oldest first; may be fewer than asked for although more follow.
    pub letters: Vec<Letter>,
    /// What to pass as `after` for the next page; `None` after the last.
    pub next: Option<EntryId>,
}

/// How many letters there are, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LetterTotals {
    /// All letters.
    pub letters: u64,
    /// Those that cannot be read.
    pub unreadable: u64,
    /// By the stream they were published to, the group that gave them up and the code of the reason.
    pub by: BTreeMap<(StreamKey, GroupName, &'static str), u64>,
    /// When the first that is left was given up, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
}

impl DeadLetters {
    /// The dead letters on the stream `key`. Connects to nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the name is empty.
    pub fn new(client: &Client, key: impl AsRef<[u8]>) -> Result<Self, Error> {
        let key = StreamKey::new(key).map_err(config)?;
        Ok(Self { client: client.clone(), link: Link::new(client, key), targets: HashMap::new() })
    }

    /// The stream of the letters.
    pub fn stream(&self) -> &StreamKey {
        self.link.key()
    }

    /// Number of letters; 0 where there is no such stream.
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn len(&mut self) -> Result<u64, Error> {
        let key = self.stream().clone();
        self.link.run(&stream_redis::command::XLen { key }).await
    }

    /// Whether there is no letter.
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn is_empty(&mut self) -> Result<bool, Error> {
        Ok(self.len().await? == 0)
    }

    /// Up to `count` letters that match, after the id `after` of an earlier page.
    ///
    /// There is no index: a call looks at 10,000 letters at most and may return none although more follow
    /// ([`Page::next`]).
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn list(&mut self, filter: &LetterFilter, after: Option<EntryId>, count: usize) -> Result<Page, Error> {
        let mut letters = Vec::new();
        let mut from = after.map_or(Some(EntryId::ZERO), EntryId::successor);
        let mut looked = 0;
        while let Some(start) = from {
            if letters.len() >= count || looked >= MAX_SCAN {
                return Ok(Page { letters, next: start.predecessor() });
            }
            let entries = self.read(start, EntryId::MAX).await?;
            looked += entries.len();
            from = None;
            for entry in &entries {
                if letters.len() >= count {
                    break;
                }
                from = entry.id().successor();
                letters.extend(letter(entry, filter));
            }
        }
        Ok(Page { letters, next: None })
    }

    /// The letter with this id on the stream of dead letters.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// assert!(dead.show("1700000000000-0".parse()?).await?.is_none());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn show(&mut self, id: EntryId) -> Result<Option<Letter>, Error> {
        let entries = self.read(id, id).await?;
        Ok(entries.first().and_then(|entry| letter(entry, &LetterFilter::all())))
    }

    /// Counts the letters. Reads all of them, a page at a time: minutes where there are millions.
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn totals(&mut self) -> Result<LetterTotals, Error> {
        let mut totals = LetterTotals::default();
        let mut next = Some(EntryId::ZERO);
        while let Some(start) = next {
            let entries = self.read(start, EntryId::MAX).await?;
            next = entries.last().and_then(|entry| entry.id().successor());
            for entry in &entries {
                totals.letters += 1;
                match DeadLetter::from_entry(entry) {
                    Ok(letter) => {
                        let oldest = totals.oldest_ms.unwrap_or(u64::MAX);
                        totals.oldest_ms = Some(oldest.min(letter.dead_at_ms));
                        *totals.by.entry((letter.stream, letter.group, letter.reason.as_str())).or_default() += 1;
                    }
                    Err(_) => totals.unreadable += 1,
                }
            }
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
        let Some(end) = self.end().await? else { return Ok(0) };
        let mut purged = 0;
        let mut next = Some(EntryId::ZERO);
        while let Some(start) = next.filter(|start| *start <= end) {
            let entries = self.read(start, end).await?;
            next = entries.last().and_then(|entry| entry.id().successor());
            let ids: Vec<_> =
                entries.iter().filter_map(|entry| letter(entry, filter)).map(|letter| letter.id).collect();
            purged += self.delete(ids).await?;
        }
        Ok(purged)
    }

    /// Keeps the newest `keep` letters and drops the others; returns how many, which is how many are lost for good. For
    /// who would rather lose old letters than the server's memory; a warning says so each time.
    ///
    /// # Errors
    /// Of the connection or the server; what was dropped until then is dropped.
    pub async fn bound(&mut self, keep: u64) -> Result<u64, Error> {
        let key = self.stream().clone();
        let command = |precision| XTrim { key: key.clone(), trim: Trim { to: TrimTo::MaxLen(keep), precision } };
        let step = command(Precision::Approximate { limit: Some(STEP) });
        let mut dropped = 0;
        loop {
            let went = self.link.run(&step).await?;
            dropped += went;
            if went == 0 {
                break;
            }
        }
        dropped += self.link.run(&command(Precision::Exact)).await?;
        if dropped > 0 {
            tracing::warn!(stream = %key, dropped, keep, "dropped the oldest dead letters, as the bound says");
        }
        Ok(dropped)
    }

    async fn read(&mut self, from: EntryId, to: EntryId) -> Result<Vec<Entry>, Error> {
        let key = self.stream().clone();
        self.link.run(&XRange { key, from, to, count: PAGE }).await
    }

    async fn delete(&mut self, ids: Vec<EntryId>) -> Result<u64, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let key = self.stream().clone();
        self.link.run(&XDel { key, ids }).await
    }

    /// The greatest id that there is now; `None` where there is no stream.
    async fn end(&mut self) -> Result<Option<EntryId>, Error> {
        let key = self.stream().clone();
        match self.link.run(&XInfoStream { key }).await {
            Ok(info) => Ok(Some(info.last_generated_id)),
            Err(error) if error.kind() == ErrorKind::Missing => Ok(None),
            Err(error) => Err(error),
        }
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

/// The letter that `entry` is, if it matches.
fn letter(entry: &Entry, filter: &LetterFilter) -> Option<Letter> {
    let content = DeadLetter::from_entry(entry);
    let meant = content.as_ref().map_or(filter.is_all(), |letter| filter.matches(letter));
    meant.then(|| Letter { id: entry.id(), content })
}

fn config(error: NameError) -> Error {
    Error::new(ErrorKind::Config, "the name of the stream of dead letters is refused").with_source(error)
}
