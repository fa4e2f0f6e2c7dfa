//! [`TrimmerBuilder`]: what a [`Trimmer`] is told, and what it refuses.

use std::time::Duration;

use stream_core::{GroupName, GroupWatch, NameError, StreamKey, TrimPolicy, VanishedGroups};
use stream_redis::{Client, Error, ErrorKind};

use super::{Readers, Trimmer};
use crate::every::Schedule;
use crate::link::Link;
use crate::look::Age;

/// Describes a [`Trimmer`]; made by [`Trimmer::builder`].
///
/// ```
/// use std::time::Duration;
/// use stream_core::{NamePattern, TrimPolicy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = stream_testkit::MemoryServer::new().client();
/// let trimmer = stream_maint::Trimmer::builder(&client)
///     .stream("events")
///     .policy(
///         TrimPolicy::new()
///             .older_than(Duration::from_secs(3600)) // keep an hour even when all have finished it
///             .exclude_stale(NamePattern::new("preview-*")?, Duration::from_secs(24 * 3600)), // loses their entries
///     )
///     .protect("reports") // will be created later, and then wants everything
///     .trim_every(Duration::from_secs(300))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct TrimmerBuilder {
    client: Client,
    stream: Option<Result<StreamKey, NameError>>,
    policy: TrimPolicy,
    awaited: Vec<Result<GroupName, NameError>>,
    every: Option<Duration>,
    lease: Lease,
}

#[derive(Debug, Clone)]
enum Lease {
    Default,
    Key(Result<StreamKey, NameError>),
    None,
}

impl TrimmerBuilder {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            stream: None,
            policy: TrimPolicy::new(),
            awaited: Vec::new(),
            every: None,
            lease: Lease::Default,
        }
    }

    /// The stream. Required.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use stream_maint::Trimmer;
    /// assert_eq!(Trimmer::builder(&client).stream("orders").build()?.stream().to_string(), "orders");
    /// assert!(Trimmer::builder(&client).build().is_err()); // which stream?
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(mut self, key: impl AsRef<[u8]>) -> Self {
        self.stream = Some(StreamKey::new(key));
        self
    }

    /// What may go. By default all that every group has finished, exactly; see [`TrimPolicy`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
    /// use stream_core::TrimPolicy;
    /// use stream_maint::Trimmer;
    /// // Nobody reads this stream by a group; the last two entries are enough.
    /// let newest = TrimPolicy::new().longer_than(2);
    /// Trimmer::builder(&client).stream("orders").policy(newest).build()?.run().await?;
    /// # assert_eq!(server.len("orders"), 2);
    /// # let rest = server.entries("orders");
    /// assert_eq!(rest[0].get("n"), Some(&b"2"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn policy(mut self, policy: TrimPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Keeps everything for this group until it exists: for one that is deployed later and starts at the beginning. As
    /// long as it never comes, nothing is trimmed; the report names it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
    /// # server.command(["XGROUP", "CREATE", "orders", "billing", "$"])?;
    /// use stream_core::Pin;
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").protect("reports").build()?;
    /// let plan = trimmer.plan().await?.expect("the stream is there");
    /// let Pin::Group { name, .. } = plan.pinned_by else { panic!("a group holds it") };
    /// assert_eq!((plan.min_id, name.to_string()), (None, "reports".to_owned())); // though `billing` has finished all
    /// # Ok(())
    /// # }
    /// ```
    pub fn protect(mut self, group: impl AsRef<[u8]>) -> Self {
        self.awaited.push(GroupName::new(group));
        self
    }

    /// How often [`Trimmer::run_every`] trims, counted over the whole fleet. 60 s by default; less than 1 s is raised to
    /// that. Long pauses cost memory on the server, short ones a handful of commands and two for each group; where there is
    /// something to trim, as many again before each step of it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// let trimmer = stream_maint::Trimmer::builder(&client).stream("orders").trim_every(Duration::from_secs(300)).build()?;
    /// assert_eq!(trimmer.period(), Duration::from_secs(300));
    /// # Ok(())
    /// # }
    /// ```
    pub fn trim_every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// The key by which the fleet agrees on who trims; it holds nothing and expires by itself. By default
    /// `{STREAM}:streamkeeper:trim`, which is in the stream's slot of a cluster (without the braces where the stream's own
    /// name has some). The stream itself cannot be it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # server.add("orders", [("n", "1")]);
    /// use stream_maint::Trimmer;
    /// let mut trimmer = Trimmer::builder(&client).stream("orders").lease_key("maintenance:orders").build()?;
    /// trimmer.run_if_due().await?;
    /// # let there = server.command(["EXISTS", "maintenance:orders"])?.as_int();
    /// assert_eq!(there, Some(1)); // until the next run is due
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease_key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.lease = Lease::Key(StreamKey::new(key));
        self
    }

    /// Does not ask the fleet: every process with such a trimmer trims at its own pace. That does no harm but work.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # server.add("orders", [("n", "1")]);
    /// use stream_maint::{Trimmed, Trimmer};
    /// let mut trimmer = Trimmer::builder(&client).stream("orders").without_lease().build()?;
    /// for _ in 0..2 {
    ///     assert_ne!(trimmer.run_if_due().await?, Trimmed::NotDue);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_lease(mut self) -> Self {
        self.lease = Lease::None;
        self
    }

    /// The trimmer. Connects to nothing yet.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// use std::time::Duration;
    /// use stream_core::{NamePattern, TrimPolicy};
    /// use stream_maint::Trimmer;
    /// assert!(Trimmer::builder(&client).stream("orders").build().is_ok());
    /// let hasty = TrimPolicy::new().exclude_stale(NamePattern::new("*")?, Duration::from_secs(1));
    /// let refused = Trimmer::builder(&client).stream("orders").policy(hasty).build();
    /// assert!(refused.is_err()); // every group that pauses for a second would lose its entries
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when there is no stream, a name is empty, the lease key is the stream, or the policy would take
    /// live groups for stale.
    pub fn build(self) -> Result<Trimmer, Error> {
        let stream = self
            .stream
            .ok_or_else(|| Error::new(ErrorKind::Config, "the trimmer has no stream: name one with `stream`"))?
            .map_err(config)?;
        self.policy
            .check()
            .map_err(|error| Error::new(ErrorKind::Config, "the trim policy is refused").with_source(error))?;
        let mut schedule = Schedule::new(&stream, b":streamkeeper:trim").map_err(config)?;
        match self.lease {
            Lease::Default => {}
            // Where the stream is there, it would never be anybody's turn; where it is not, the lease would be in its place.
            Lease::Key(Ok(key)) if key == stream => {
                let message = "the trimmer's lease key is the stream itself: give `lease_key` a key of its own";
                return Err(Error::new(ErrorKind::Config, message));
            }
            Lease::Key(key) => schedule.set_lease(Some(key.map_err(config)?)),
            Lease::None => schedule.set_lease(None),
        }
        if let Some(every) = self.every {
            schedule.set_period(every);
        }
        Ok(Trimmer {
            link: Link::new(&self.client, stream),
            policy: self.policy,
            awaited: self.awaited.into_iter().collect::<Result<_, _>>().map_err(config)?,
            readers: Readers::default(),
            schedule,
            age: Age::default(),
            watch: GroupWatch::new(),
            vanished: VanishedGroups::new(),
        })
    }
}

fn config(error: NameError) -> Error {
    Error::new(ErrorKind::Config, "a name given to the trimmer is refused").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let client = stream_testkit::MemoryServer::new().client();
        let check = |builder: TrimmerBuilder| assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Config);
        let pattern = stream_core::NamePattern::new("*").unwrap();
        check(Trimmer::builder(&client));
        check(Trimmer::builder(&client).stream(""));
        check(Trimmer::builder(&client).stream("s").protect(""));
        check(Trimmer::builder(&client).stream("s").lease_key(""));
        check(Trimmer::builder(&client).lease_key("s").stream("s"));
        let hasty = TrimPolicy::new().exclude_stale(pattern, Duration::from_secs(59));
        check(Trimmer::builder(&client).stream("s").policy(hasty));
    }
}
