//! [`Redrive`]: which letters are to be sent back, where to, and how fast.

use stream_core::{LetterContent, StreamKey};

use crate::dlq::{LetterFilter, PAGE};

/// Which dead letters are sent back, where to, and how fast. By default all, to the streams they came from, as fast as the
/// server takes them.
///
/// ```
/// use stream_core::StreamKey;
/// use stream_maint::{LetterFilter, Redrive};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redrive = Redrive::new()
///     .filter(LetterFilter::all().reason("exhausted"))
///     .to(StreamKey::new("orders:retry")?) // instead of the original
///     .per_second(50) // so that handlers keep up
///     .at_most(1000);
/// # let _ = redrive;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "describes only; pass it to `DeadLetters::redrive`"]
pub struct Redrive {
    pub(super) filter: LetterFilter,
    pub(super) to: Option<StreamKey>,
    pub(super) per_second: Option<u32>,
    pub(super) at_most: u64,
    pub(super) batch: usize,
    pub(super) make_streams: bool,
}

impl Default for Redrive {
    fn default() -> Self {
        Self {
            filter: LetterFilter::all(),
            to: None,
            per_second: None,
            at_most: u64::MAX,
            batch: PAGE,
            make_streams: false,
        }
    }
}

impl Redrive {
    /// All letters, to where they came from.
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
    /// # server.add("orders", [("item", "before")]);
    /// use stream_maint::{DeadLetters, Redrive};
    /// let report = DeadLetters::new(&client, "orders:dead")?.redrive(&Redrive::new()).await?;
    /// assert_eq!(report.redriven, 1);
    /// # assert_eq!(server.len("orders"), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these letters.
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
    /// use stream_maint::{DeadLetters, LetterFilter, Redrive};
    /// let rejected = Redrive::new().filter(LetterFilter::all().reason("rejected"));
    /// let plan = DeadLetters::new(&client, "orders:dead")?.plan_redrive(&rejected).await?;
    /// assert_eq!((plan.to.len(), plan.skipped), (0, 1)); // the one letter was given up for another reason
    /// # Ok(())
    /// # }
    /// ```
    pub fn filter(mut self, filter: LetterFilter) -> Self {
        self.filter = filter;
        self
    }

    /// To this stream instead of the original ones. Neither the dead letters themselves nor their
    /// [trail](crate::DeadLetters::trail) can be it: what is sent back is no letter.
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
    /// use stream_maint::{DeadLetters, Redrive};
    /// let retry = StreamKey::new("orders:retry")?; // read by one group alone
    /// let plan = DeadLetters::new(&client, "orders:dead")?.plan_redrive(&Redrive::new().to(retry.clone())).await?;
    /// assert_eq!(plan.to[&retry], 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to(mut self, stream: StreamKey) -> Self {
        self.to = Some(stream);
        self
    }

    /// At most this many in a second, on average; 0 counts as 1. Without it, handlers may get all at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # use stream_core::*;
    /// # let letter = DeadLetter { entry: Entry::new(EntryId::new(1, 0), [("item", "apple")])?, stream: StreamKey::new("orders")?,
    /// #     group: GroupName::new("billing")?, consumer: ConsumerName::new("c")?, attempts: 8,
    /// #     reason: DeadReason::Exhausted { error: None }, dead_at_ms: 1_700_000_000_000, redriven: 0 };
    /// # server.add("orders:dead", letter.to_fields());
    /// # for _ in 0..2 { server.add("orders:dead", letter.to_fields()); }
    /// # server.add("orders", [("item", "before")]);
    /// use stream_maint::{DeadLetters, Redrive};
    /// let before = tokio::time::Instant::now();
    /// let report = DeadLetters::new(&client, "orders:dead")?.redrive(&Redrive::new().per_second(1)).await?;
    /// assert_eq!(report.redriven, 3);
    /// assert!(before.elapsed().as_secs() >= 2); // one, a second, one, a second, one
    /// # Ok(())
    /// # }
    /// ```
    pub fn per_second(mut self, entries: u32) -> Self {
        self.per_second = Some(entries.max(1));
        self
    }

    /// At most this many in all, of those that can go: letters that stay for want of a stream do not count.
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
    /// # server.add("orders:dead", letter.to_fields());
    /// # server.add("orders", [("item", "before")]);
    /// use stream_maint::{DeadLetters, Redrive};
    /// let mut dead = DeadLetters::new(&client, "orders:dead")?;
    /// let report = dead.redrive(&Redrive::new().at_most(1)).await?; // to see whether it works now
    /// assert_eq!((report.redriven, dead.len().await?), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_most(mut self, entries: u64) -> Self {
        self.at_most = entries;
        self
    }

    /// Entries added before their letters are deleted: how many a crash can send twice. 1 to 100, by default 100; smaller
    /// is slower.
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
    /// # server.add("orders:dead", letter.to_fields());
    /// # server.add("orders", [("item", "before")]);
    /// use stream_maint::{DeadLetters, Redrive};
    /// // No entry is there twice after a crash, but for the one that was under way.
    /// let report = DeadLetters::new(&client, "orders:dead")?.redrive(&Redrive::new().batch(1)).await?;
    /// assert_eq!(report.redriven, 2);
    /// # assert_eq!(server.count("XDEL"), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(mut self, entries: usize) -> Self {
        self.batch = entries.clamp(1, PAGE);
        self
    }

    /// Creates streams that do not exist. By default their letters stay: a stream that is gone has no group, and one that
    /// is made for it later would start after what was sent back.
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
    /// use stream_maint::{DeadLetters, Redrive};
    /// let mut dead = DeadLetters::new(&client, "orders:dead")?;
    /// assert_eq!(dead.redrive(&Redrive::new()).await?.no_stream, 1); // there is no stream `orders` any more
    /// assert_eq!(dead.redrive(&Redrive::new().make_streams()).await?.redriven, 1);
    /// # assert_eq!(server.len("orders"), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn make_streams(mut self) -> Self {
        self.make_streams = true;
        self
    }

    /// Where the letter goes.
    pub(super) fn target<'a>(&'a self, letter: &'a LetterContent) -> Option<&'a StreamKey> {
        self.to.as_ref().or(letter.stream.as_ref())
    }
}
