//! Trimming for as long as a process lives.

use std::future::Future;
use std::time::Duration;

use stream_core::StreamKey;
use stream_redis::Error;

use super::{TrimTotals, Trimmed, Trimmer};
use crate::every::{Periodic, run_every};

impl Trimmer {
    /// Trims unless somebody in the fleet has done so within the period (see
    /// [`trim_every`](super::TrimmerBuilder::trim_every)): what a cron job on several machines calls.
    ///
    /// The stream and its groups are looked at nevertheless: that a group is gone, or for how long it has not changed, is
    /// known only to who has seen it before.
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
        if self.schedule.is_due(&mut self.link).await? {
            return self.run().await;
        }
        self.watch().await?;
        Ok(Trimmed::NotDue)
    }

    /// Trims now and once in each period until `shutdown` is done, which ends it at once. `observe` gets the result of each
    /// try. A kind of failure is logged once, until trimming works again, and never ends this: the next try has a new connection.
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
        let failures = run_every(self, shutdown, |result| {
            if let Ok(Trimmed::Stream(report)) = result {
                totals.runs += 1;
                totals.removed += report.removed;
            }
            observe(result);
        });
        totals.failures = failures.await;
        totals
    }
}

impl Periodic for Trimmer {
    type Report = Trimmed;
    const TASK: &'static str = "trimming";

    fn stream(&self) -> &StreamKey {
        self.link.key()
    }

    fn period(&self) -> Duration {
        self.schedule.period()
    }

    fn is_done(report: &Trimmed) -> bool {
        *report != Trimmed::NotDue
    }

    fn once(&mut self) -> impl Future<Output = Result<Trimmed, Error>> + Send {
        self.run_if_due()
    }
}
