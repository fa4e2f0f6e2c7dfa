//! [`LagMonitor`]: how far the groups of a stream are behind, and what holds them.
//!
//! What must stay true: what nobody knows is unknown, with the reason, and never 0 (an autoscaler that takes an unknown
//! lag for none turns workers off); and looking costs the server a few short commands for each group.

mod count;

use std::time::Duration;

use stream_core::{ConsumerName, EntryId, GroupName, NameError, Pin, StreamKey, TrimPolicy};
use stream_redis::command::{ConsumerInfo, PendingEntry, XInfoConsumers, XPending};
use stream_redis::{Client, Error, ErrorKind};

pub use count::{Lag, WhyUnknown};

use crate::link::Link;
use crate::look::Look;

/// Groups asked about in one round trip.
const BATCH: usize = 100;
const DEFAULT_QUIET: Duration = Duration::from_mins(5);

/// Looks at one stream, its groups and their consumers. Changes nothing.
///
/// ```
/// use stream_maint::{Lag, LagMonitor};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # for _ in 0..3 { server.add("orders", [("item", "1")]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
/// # let client = server.client();
/// let mut monitor = LagMonitor::new(&client, "orders")?;
/// let report = monitor.look().await?.expect("the stream is there");
/// let billing = &report.groups[0];
/// match billing.lag {
///     Lag::Known(entries) => println!("{entries} entries are not delivered yet"),
///     Lag::Unknown(why) => println!("nobody knows how many: {why}"),
/// }
/// assert_eq!((billing.lag, billing.pending), (Lag::Known(2), 1));
/// println!("trimming is held up by {:?}", report.pinned_by);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct LagMonitor {
    link: Link,
    quiet_after: Duration,
}

/// A stream and how far its groups are.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
/// use stream_core::Pin;
/// use stream_maint::LagMonitor;
/// let report = LagMonitor::new(&client, "orders")?.look().await?.expect("the stream is there");
/// assert_eq!((report.length, report.groups.len()), (3, 1));
/// assert!(report.first < Some(report.last_generated));
/// let Pin::Group { name, .. } = report.pinned_by else { panic!("a group holds it") };
/// assert_eq!(name.to_string(), "billing");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamLag {
    /// Entries in it.
    pub length: u64,
    /// The id of the first of them.
    pub first: Option<EntryId>,
    /// The greatest id that it ever gave.
    pub last_generated: EntryId,
    /// What keeps it from being trimmed by the default policy.
    pub pinned_by: Pin,
    /// In the server's order.
    pub groups: Vec<GroupLag>,
}

/// How far a group is.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
/// use stream_maint::{Lag, LagMonitor};
/// let report = LagMonitor::new(&client, "orders")?.look().await?.expect("the stream is there");
/// let billing = &report.groups[0];
/// assert_eq!((billing.lag, billing.pending), (Lag::Known(2), 1)); // a scaler takes both, and neither where one is unknown
/// assert_eq!((billing.name.to_string(), billing.consumers.len()), ("billing".to_owned(), 1));
/// assert!(billing.distance.as_secs() < 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupLag {
    /// Its name.
    pub name: GroupName,
    /// Entries that were not delivered to it yet.
    pub lag: Lag,
    /// The id it was delivered last.
    pub last_delivered: EntryId,
    /// The time between that id and the newest, by their milliseconds: a lag in time, and there on every server. 0 when
    /// all is delivered; the whole age of the stream for a group to which nothing was delivered yet. Means something only
    /// for ids that the server gave.
    pub distance: Duration,
    /// Entries delivered and not acknowledged.
    pub pending: u64,
    /// The oldest of them.
    pub oldest: Option<OldestPending>,
    /// Everybody it knows, alive or not.
    pub consumers: Vec<ConsumerLag>,
}

/// The oldest pending entry of a group: what an alarm looks at.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
/// # tokio::time::advance(std::time::Duration::from_secs(600)).await;
/// use stream_maint::LagMonitor;
/// let report = LagMonitor::new(&client, "orders")?.look().await?.expect("the stream is there");
/// let oldest = report.groups[0].oldest.as_ref().expect("one is pending");
/// assert_eq!((oldest.id, oldest.deliveries), (report.first.unwrap(), 1));
/// assert_eq!(oldest.consumer.as_ref().unwrap().to_string(), "c");
/// assert!(oldest.idle.unwrap().as_secs() >= 600); // nobody renews its lease, and nobody claims it: time for an alarm
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OldestPending {
    /// Its id; it may have been deleted from the stream.
    pub id: EntryId,
    /// For how long it has been in the stream, by its id.
    pub age: Duration,
    /// Who holds it.
    pub consumer: Option<ConsumerName>,
    /// How long ago it was delivered, claimed or its lease renewed.
    pub idle: Option<Duration>,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// A consumer and its state.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
/// # tokio::time::advance(std::time::Duration::from_secs(600)).await;
/// use stream_maint::{ConsumerHealth, LagMonitor};
/// let report = LagMonitor::new(&client, "orders")?.look().await?.expect("the stream is there");
/// let consumer = &report.groups[0].consumers[0];
/// assert_eq!((consumer.name.to_string(), consumer.pending), ("c".to_owned(), 1));
/// assert_eq!((consumer.idle.as_secs(), consumer.state), (600, ConsumerHealth::Holding));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerLag {
    /// Its name.
    pub name: ConsumerName,
    /// Entries it holds.
    pub pending: u64,
    /// Since it last asked for entries; before Redis 7.2 since it was last given some.
    pub idle: Duration,
    /// Since it was last given some, where the server says so.
    pub inactive: Option<Duration>,
    /// What that means.
    pub state: ConsumerHealth,
}

/// What a consumer is up to, as far as its idle time tells.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
/// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
/// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "empty-handed"])?;
/// # tokio::time::advance(std::time::Duration::from_secs(600)).await;
/// # server.command(["XGROUP", "CREATECONSUMER", "orders", "billing", "new"])?;
/// use stream_maint::{ConsumerHealth, LagMonitor};
/// let report = LagMonitor::new(&client, "orders")?.look().await?.expect("the stream is there");
/// let states: Vec<_> = report.groups[0].consumers.iter().map(|one| (one.name.to_string(), one.state)).collect();
/// assert!(states.contains(&("new".to_owned(), ConsumerHealth::Active)));
/// assert!(states.contains(&("empty-handed".to_owned(), ConsumerHealth::Quiet)));
/// assert!(states.contains(&("c".to_owned(), ConsumerHealth::Holding)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConsumerHealth {
    /// It asked for entries lately.
    Active,
    /// It has not, and holds nothing: gone, or before Redis 7.2 perhaps waiting on a quiet stream.
    Quiet,
    /// It has not, and holds entries: they wait to be claimed, or a handler takes very long.
    Holding,
}

impl ConsumerHealth {
    fn of(idle: Duration, pending: u64, quiet_after: Duration) -> Self {
        match pending {
            _ if idle < quiet_after => Self::Active,
            0 => Self::Quiet,
            _ => Self::Holding,
        }
    }
}

impl LagMonitor {
    /// A monitor of the stream `key`. Connects to nothing yet.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_maint::LagMonitor;
    /// assert!(LagMonitor::new(&client, "orders").is_ok());
    /// assert!(LagMonitor::new(&client, "").is_err()); // a stream has a name
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the name is empty.
    pub fn new(client: &Client, key: impl AsRef<[u8]>) -> Result<Self, Error> {
        let key = StreamKey::new(key).map_err(|error: NameError| {
            Error::new(ErrorKind::Config, "the name of the stream is refused").with_source(error)
        })?;
        Ok(Self { link: Link::new(client, key), quiet_after: DEFAULT_QUIET })
    }

    /// After which idle time a consumer no longer counts as active. 5 minutes by default; it should be several times the
    /// BLOCK period of its reads, or consumers that wait look quiet.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "0"])?;
    /// # server.command(["XREADGROUP", "GROUP", "billing", "c", "COUNT", "1", "STREAMS", "orders", ">"])?;
    /// # tokio::time::advance(std::time::Duration::from_secs(600)).await;
    /// use std::time::Duration;
    /// use stream_maint::{ConsumerHealth, LagMonitor};
    /// let mut monitor = LagMonitor::new(&client, "orders")?.quiet_after(Duration::from_secs(3600)); // handlers take long
    /// let report = monitor.look().await?.expect("the stream is there");
    /// assert_eq!(report.groups[0].consumers[0].state, ConsumerHealth::Active);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn quiet_after(mut self, idle: Duration) -> Self {
        self.quiet_after = idle;
        self
    }

    /// How things are now; `None` where there is no stream.
    ///
    /// Takes four short commands for each group and moves no entry bodies. The parts are of slightly different moments.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// use stream_maint::LagMonitor;
    /// let mut monitor = LagMonitor::new(&client, "orders")?;
    /// assert!(monitor.look().await?.is_none()); // nothing was published yet
    /// # server.add("orders", [("item", "1")]);
    /// assert_eq!(monitor.look().await?.map(|report| report.length), Some(1)); // and now
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server. Needs `XINFO`, `XPENDING` and `TIME`.
    pub async fn look(&mut self) -> Result<Option<StreamLag>, Error> {
        let Some(look) = Look::at(&mut self.link).await? else { return Ok(None) };
        let names: Vec<_> = look.groups.iter().map(|(group, _)| group.name.clone()).collect();
        let (mut consumers, mut oldest) = (Vec::new(), Vec::new());
        for names in names.chunks(BATCH) {
            let (infos, rows) = self.questions(names);
            consumers.extend(self.link.run_all(&infos).await?.into_iter().map(or_gone).collect::<Result<Vec<_>, _>>()?);
            oldest.extend(self.link.run_all(&rows).await?.into_iter().map(or_gone).collect::<Result<Vec<_>, _>>()?);
        }
        let state = &look.state;
        let groups = look.groups.iter().zip(&state.groups).zip(consumers.into_iter().zip(oldest));
        let groups = groups.map(|(((info, _), group), (consumers, rows))| GroupLag {
            name: info.name.clone(),
            lag: Lag::of(info, &look.info),
            last_delivered: info.last_delivered,
            distance: distance(info.last_delivered, state.first, state.last_generated),
            pending: group.pending,
            oldest: rows.into_iter().next().map(|row| oldest_pending(row, state.now_ms)),
            consumers: consumers.into_iter().map(|consumer| self.consumer(consumer)).collect(),
        });
        Ok(Some(StreamLag {
            length: state.length,
            first: state.first,
            last_generated: state.last_generated,
            pinned_by: TrimPolicy::new().plan(state).pinned_by,
            groups: groups.collect(),
        }))
    }

    fn questions(&self, names: &[GroupName]) -> (Vec<XInfoConsumers>, Vec<XPending>) {
        let key = self.link.key();
        let infos = names.iter().map(|group| XInfoConsumers { key: key.clone(), group: group.clone() });
        let rows = names.iter().map(|group| XPending {
            key: key.clone(),
            group: group.clone(),
            min_idle: None,
            from: EntryId::ZERO,
            after: false,
            to: EntryId::MAX,
            count: 1,
            consumer: None,
        });
        (infos.collect(), rows.collect())
    }

    fn consumer(&self, info: ConsumerInfo) -> ConsumerLag {
        let state = ConsumerHealth::of(info.idle, info.pending, self.quiet_after);
        ConsumerLag { name: info.name, pending: info.pending, idle: info.idle, inactive: info.inactive, state }
    }
}

/// A group that was destroyed a moment ago has nobody and nothing.
fn or_gone<T>(reply: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
    match reply {
        Err(error) if error.kind() == ErrorKind::Missing => Ok(Vec::new()),
        reply => reply,
    }
}

fn distance(last_delivered: EntryId, first: Option<EntryId>, last_generated: EntryId) -> Duration {
    let from = match first {
        _ if last_delivered >= last_generated => return Duration::ZERO,
        None => return Duration::ZERO,
        Some(first) => first.max(last_delivered),
    };
    Duration::from_millis(last_generated.ms().saturating_sub(from.ms()))
}

fn oldest_pending(row: PendingEntry, now_ms: u64) -> OldestPending {
    OldestPending {
        id: row.id,
        age: Duration::from_millis(now_ms.saturating_sub(row.id.ms())),
        consumer: row.consumer,
        idle: row.idle,
        deliveries: row.deliveries,
    }
}
