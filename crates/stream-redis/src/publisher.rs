//! [`Publisher`]: appends entries to a stream, in batches, over a connection that is opened again when it fails.
//!
//! What must stay true: an accepted entry is confirmed, or failed with the reason, or handed back by
//! [`close`](Publisher::close); it is never dropped without a word. There are never more of them than the buffer holds.

use std::sync::Arc;
use std::time::Duration;

use stream_core::{BackoffPolicy, Entry, EntryId, Partitions, StreamKey, TooLarge};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::command::{Precision, Trim, TrimTo};
use crate::{Client, Error, ErrorKind};

mod faststream;
mod form;
mod joint;
mod partitioned;
mod prefect;
mod queue;
mod run;

pub use faststream::{FastStreamFormat, FastStreamMessage, FastStreamPublisher};
use form::Marker;
pub use partitioned::PartitionedPublisher;
pub use prefect::{PrefectPublisher, PrefectPublisherBuilder};
use run::{Settings, Shared};

/// Milliseconds since 1970: ids from here on are a mistake, most often microseconds.
const YEAR_10000_MS: u64 = 253_402_300_800_000;

/// Appends entries to one stream.
///
/// Entries go out in batches. What is published while nothing is on its way goes at once; what is published meanwhile makes
/// up the next batch, which follows when it is complete or the ones before it have arrived. At most four batches are on
/// their way at a time, in a cluster and over a connector of one's own one. Entries keep the order in which they were
/// accepted, except that one the server refused for a while (no memory, loading, too few replicas, a replica itself) is
/// written again after those that it took meanwhile.
///
/// **Duplicates.** When a connection fails, nobody knows which of the entries on their way were written, so all of them are
/// written again, in order. Redis 8.6 and later recognise that ([`idempotent`](PublisherBuilder::idempotent)), within 100 s
/// and as long as nobody changed the stream's settings for it; on other servers, as many entries as there are in four batches
/// may be there once more after each such failure. What is left unsent when a connection is given up is never sent, but a
/// proxy in between may deliver later what it has taken. Consumers must be ready for that anyway.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use stream_redis::{Client, Publisher};
///
/// let client = Client::open("redis://127.0.0.1/")?;
/// let publisher = Publisher::builder(&client).stream("orders").build()?;
/// let id = publisher.publish([("order", "17")]).await?;
/// println!("confirmed as {id}");
/// let left = publisher.close(Duration::from_secs(5)).await;
/// assert!(left.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Starts a publisher for servers of `client`.
    pub fn builder(client: &Client) -> PublisherBuilder {
        PublisherBuilder {
            client: client.clone(),
            stream: None,
            partitions: None,
            trim: None,
            batch: 100,
            linger: Duration::ZERO,
            buffer: 10_000,
            backoff: BackoffPolicy::default(),
            idempotent: true,
        }
    }

    /// Appends an entry of these names and values; the id when the server has confirmed it.
    ///
    /// Waits for room in the buffer first. The entry is accepted from then on: dropping the future later does not take it
    /// back. Nothing happens before the future is polled.
    ///
    /// # Errors
    /// [`PublishError`]. What heals by waiting is no error; while the server is away, this waits.
    pub fn publish<F, N, V>(
        &self,
        fields: F,
    ) -> impl Future<Output = Result<EntryId, PublishError>> + Send + 'static + use<F, N, V>
    where
        F: IntoIterator<Item = (N, V)>,
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let entry = entry(fields);
        let shared = self.shared.clone();
        async move { shared.accept(entry?, None).await?.confirmed().await }
    }

    /// Like [`publish`](Self::publish), for those who do not want to wait for each confirmation: returns when the entry is
    /// accepted, with a receipt for the confirmation.
    ///
    /// # Errors
    /// [`PublishError`], when the entry was not accepted.
    pub fn enqueue<F, N, V>(
        &self,
        fields: F,
    ) -> impl Future<Output = Result<Receipt, PublishError>> + Send + 'static + use<F, N, V>
    where
        F: IntoIterator<Item = (N, V)>,
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let entry = entry(fields);
        let shared = self.shared.clone();
        async move { shared.accept(entry?, None).await }
    }

    /// Like [`enqueue`](Self::enqueue), unless an entry with the same marker was appended before.
    async fn enqueue_once(
        &self,
        entry: Result<Entry, PublishError>,
        marker: Option<Marker>,
    ) -> Result<Receipt, PublishError> {
        self.shared.clone().accept(entry?, marker.map(Box::new)).await
    }

    /// Waits until every entry that was accepted before the call is confirmed or failed; cuts the linger short. While the
    /// server is away this waits: put a limit around it, or use [`close`](Self::close).
    pub async fn flush(&self) {
        self.shared.flush().await;
    }

    /// Entries that are accepted and not confirmed yet.
    pub fn unconfirmed(&self) -> usize {
        self.shared.unconfirmed()
    }

    /// Accepts no more entries, waits at most `within` for the confirmation of those that were accepted, and returns the
    /// rest in order. Whoever waits for one of these gets [`PublishError::Closed`].
    pub async fn close(&self, within: Duration) -> Vec<Unconfirmed> {
        self.shared.refuse();
        let _ = tokio::time::timeout(within, self.shared.flush()).await;
        self.task.abort();
        self.shared.drain()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.refuse();
        self.task.abort();
        let left = self.shared.drain().len();
        if left > 0 {
            tracing::warn!(left, "a publisher was dropped with unconfirmed entries; close it to get them back");
        }
    }
}

fn entry<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: impl IntoIterator<Item = (N, V)>) -> Result<Entry, PublishError> {
    // The id is the server's to give.
    let entry = Entry::new(EntryId::ZERO, fields)?;
    if entry.fields().len() == 0 { Err(PublishError::NoFields) } else { Ok(entry) }
}

/// The confirmation of one accepted entry. Dropping it does not take the entry back.
#[derive(Debug)]
#[must_use = "an entry that fails tells nobody but its receipt"]
pub struct Receipt(oneshot::Receiver<Result<EntryId, PublishError>>);

impl Receipt {
    /// Waits for the confirmation: the id of the entry.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn confirmed(self) -> Result<EntryId, PublishError> {
        self.0.await.unwrap_or(Err(PublishError::Closed))
    }
}

/// Why an entry was not published.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// An entry needs at least one name and value.
    #[error("the entry has no fields: give it at least one name and value")]
    NoFields,
    /// Larger than an entry can be.
    #[error("the entry is too large")]
    TooLarge(#[from] TooLarge),
    /// The server refused the entry, or lets us in no more, and trying again changes nothing.
    #[error("the entry was not published")]
    Failed(#[source] Arc<Error>),
    /// As [`Failed`](Self::Failed), but the entry was on its way once and the connection failed then: nobody knows whether it
    /// arrived. Publishing it again may duplicate it.
    #[error("the entry cannot be published any more, and nobody knows whether it was before")]
    InDoubt(#[source] Arc<Error>),
    /// The message cannot be written in the format that was asked for.
    #[error("the message cannot be encoded: {0}")]
    Encoding(&'static str),
    /// One with the same value of its deduplication attribute was published before: this one was not appended.
    #[error("a message with the same deduplication value was published before")]
    Duplicate,
    /// The publisher was closed before the entry was confirmed.
    #[error("the publisher was closed before the entry was confirmed")]
    Closed,
}

impl PublishError {
    fn failed(error: Arc<Error>, maybe_written: bool) -> Self {
        if maybe_written { Self::InDoubt(error) } else { Self::Failed(error) }
    }
}

/// An entry that a closed publisher hands back.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unconfirmed {
    /// The names and values; the id is [`EntryId::ZERO`].
    pub entry: Entry,
    /// The entry was on its way once and nobody knows whether it arrived: publishing it again may duplicate it.
    pub maybe_written: bool,
}

/// Makes a [`Publisher`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PublisherBuilder {
    client: Client,
    stream: Option<Vec<u8>>,
    partitions: Option<Partitions>,
    trim: Option<Trim>,
    batch: usize,
    linger: Duration,
    buffer: usize,
    backoff: BackoffPolicy,
    idempotent: bool,
}

impl PublisherBuilder {
    /// The stream to append to; it is created where it does not exist. Required, unless there are
    /// [`partitions`](Self::partitions).
    pub fn stream(mut self, key: impl AsRef<[u8]>) -> Self {
        self.stream = Some(key.as_ref().to_vec());
        self
    }

    /// Keeps about or exactly the newest `length` entries. Entries that groups have not finished go as well: a bound that
    /// is shorter than the longest backlog loses messages. Default: no bound; trimming by what groups are done with is
    /// maintenance's task. At least 1: with 0 the server deletes each entry in the step that confirms it.
    pub fn max_len(mut self, length: u64, precision: Precision) -> Self {
        self.trim = Some(Trim { to: TrimTo::MaxLen(length), precision });
        self
    }

    /// Keeps entries from `id` on; the same warning as for [`max_len`](Self::max_len), which this replaces. What is
    /// published below `id` is deleted in the step that confirms it, so an id that no clock gives before the year 10000 is
    /// refused: it was meant in another unit than milliseconds.
    pub fn min_id(mut self, id: EntryId, precision: Precision) -> Self {
        self.trim = Some(Trim { to: TrimTo::MinId(id), precision });
        self
    }

    /// At most this many entries in one batch, 1 to 10 000. Default: 100. A batch is also ended by its size, 1 MiB. Larger
    /// ones cost less processor time for each entry, and leave more entries in doubt when a connection fails.
    pub fn batch(mut self, entries: usize) -> Self {
        self.batch = entries;
        self
    }

    /// How long an incomplete batch waits for more entries while nothing is on its way, up to 10 s. Default: not at all,
    /// since entries that come while a batch is on its way make up the next.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// At most this many entries accepted and not confirmed, 1 to 1 000 000; more wait. Default: 10 000. They are held in
    /// memory while the server is away.
    pub fn buffer(mut self, entries: usize) -> Self {
        self.buffer = entries;
        self
    }

    /// The waits between attempts while the server is away or busy. Default: 1 s to 60 s.
    pub fn backoff(mut self, policy: BackoffPolicy) -> Self {
        self.backoff = policy;
        self
    }

    /// Whether to use `XADD … IDMP` where the server has it (Redis 8.6), so that what is written again after a failed
    /// connection is there once. Default: yes. Batches then have at most 100 entries, which is what the server remembers of
    /// a producer; the publisher goes by four names in turn, so that all that is on its way is remembered.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// Checks the values without starting anything.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the stream is missing or a value is out of its range.
    pub fn check(&self) -> Result<(), Error> {
        if self.partitions.is_some() { self.check_partitions() } else { self.key().map(drop) }
    }

    /// The stream, when everything else is in its range as well.
    fn key(&self) -> Result<StreamKey, Error> {
        let config = |message: &str| Err(Error::new(ErrorKind::Config, message));
        if self.partitions.is_some() {
            return config("a publisher for partitions is started with `.build_partitioned()`");
        }
        let Some(Ok(key)) = self.stream.as_ref().map(StreamKey::new) else {
            return config("a publisher needs the key of a stream, of at least one byte");
        };
        if !(1..=10_000).contains(&self.batch) {
            return config("a publisher's batch is between 1 and 10000 entries");
        }
        if !(1..=1_000_000).contains(&self.buffer) {
            return config("a publisher's buffer is between 1 and 1000000 entries");
        }
        if self.linger > Duration::from_secs(10) {
            return config("a publisher's linger is at most 10 s: entries would only come late");
        }
        match self.trim.map(|trim| trim.to) {
            Some(TrimTo::MaxLen(0)) => config(
                "a publisher's `max_len` of 0 deletes each entry as it is confirmed: keep 1 or more, or leave the bound out",
            ),
            Some(TrimTo::MinId(id)) if id.ms() >= YEAR_10000_MS => config(
                "a publisher's `min_id` is above every id a server gives, so that each entry is deleted as it is confirmed: \
                 give an id in milliseconds since 1970 that lies in the past, or leave the bound out",
            ),
            _ => Ok(key),
        }
    }

    /// Starts the publisher. It connects when the first entry is published.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build(self) -> Result<Publisher, Error> {
        let key = self.key()?;
        let settings = Settings {
            key,
            trim: self.trim,
            batch: self.batch,
            linger: self.linger,
            backoff: self.backoff,
            idempotent: self.idempotent,
        };
        let shared = Arc::new(Shared::new(self.buffer));
        let task = tokio::spawn(run::run(shared.clone(), self.client, settings));
        Ok(Publisher { shared, task })
    }
}

#[cfg(test)]
mod tests;
