//! Trimming for as long as a process lives: one of the fleet at a time, paced, and quiet about lasting trouble.
//!
//! The lease is a key that is set if it is not there and expires before the next run is due. It is never deleted: that it
//! lives on is what keeps the others from trimming again within the same period. Nobody waits for it, a holder that dies
//! leaves nothing to clean up, and two holders at the same time would only do the same work twice.

use std::future::Future;
use std::time::Duration;

use stream_redis::{Error, ErrorKind, Request, Value};

use super::{TrimTotals, Trimmed, Trimmer};

impl Trimmer {
    /// Trims unless somebody in the fleet has done so within the period (see
    /// [`trim_every`](super::TrimmerBuilder::trim_every)): what a cron job on several machines calls.
    ///
    /// Where the policy leaves stale groups out, the groups are looked at nevertheless, since how long they have not
    /// changed is known only to who has watched them.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # server.add("orders", [("item", "1")]);
    /// # let client = server.client();
    /// use stream_maint::{Trimmed, Trimmer};
    /// let mut here = Trimmer::builder(&client).stream("orders").build()?;
    /// let mut there = Trimmer::builder(&client).stream("orders").build()?;
    /// assert!(matches!(here.run_if_due().await?, Trimmed::Stream(_)));
    /// assert_eq!(there.run_if_due().await?, Trimmed::NotDue);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run). Where the lease key cannot be written (not allowed, or the server's memory is full,
    /// when trimming is what helps), it trims without.
    pub async fn run_if_due(&mut self) -> Result<Trimmed, Error> {
        if self.due().await? {
            return self.run().await;
        }
        if self.policy.needs_watch() {
            self.look().await?;
        }
        Ok(Trimmed::NotDue)
    }

    /// Trims now and once in each period until `shutdown` is done, which ends it at once. `observe` gets the result of each
    /// try. A failure is logged once, until something works again, and never ends this: the next try has a new connection.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// let mut stop = Some(stop);
    /// let mut trimmer = stream_maint::Trimmer::builder(&client).stream("orders").build()?;
    /// let totals = trimmer
    ///     .run_every(stopped, |result| {
    ///         println!("{result:?}");
    ///         stop.take().map(|stop| stop.send(())); // a service would stop when it is told to
    ///     })
    ///     .await;
    /// assert_eq!(totals.failures, 0); // a stream that does not exist yet is no failure
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub async fn run_every<S: Future>(
        &mut self,
        shutdown: S,
        mut observe: impl FnMut(&Result<Trimmed, Error>),
    ) -> TrimTotals {
        let mut totals = TrimTotals::default();
        let forever = async {
            let mut known: Option<ErrorKind> = None;
            loop {
                let result = self.run_if_due().await;
                match &result {
                    Ok(trimmed) => {
                        known = None;
                        if let Trimmed::Stream(report) = trimmed {
                            totals.runs += 1;
                            totals.removed += report.removed;
                        }
                    }
                    Err(error) => {
                        totals.failures += 1;
                        if known.replace(error.kind()) != Some(error.kind()) {
                            tracing::warn!(stream = %self.stream(), %error, "trimming failed; it is tried again every period");
                        }
                    }
                }
                observe(&result);
                tokio::time::sleep(self.every).await;
            }
        };
        tokio::select! {
            biased;
            _ = shutdown => {}
            () = forever => {}
        }
        totals
    }

    /// Whether this process is the one to trim now.
    async fn due(&mut self) -> Result<bool, Error> {
        let Some(key) = &self.lease else { return Ok(true) };
        let request = Request::new("SET").key(key).arg("1").arg("NX").arg("PX").int(lifetime(self.every));
        let Some(reply) = self.link.send(&[request]).await?.pop() else { return Ok(true) };
        match reply {
            Ok(Value::Nil) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoPermission => {
                tracing::warn!(
                    %error,
                    "the fleet cannot agree on who trims, so each of its members does; allow SET on the lease key"
                );
                self.lease = None;
                Ok(true)
            }
            Err(error) if error.code() == Some("OOM") => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Milliseconds that the lease lives: a little less than the period, so that its holder is not late by a whole one.
fn lifetime(every: Duration) -> u64 {
    u64::try_from(every.as_millis() / 10 * 9).unwrap_or(u64::MAX).clamp(1, 1 << 53)
}
