//! Keeping streams healthy: trimming, clean-up, dead letters, lag. Runs beside consumers, in a process of its own, or from
//! a cron job; `docs/operations.md` of the repository explains how to choose limits and read the reports.
//!
//! ```
//! use streamkeeper::maint::Trimmer;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = stream_testkit::MemoryServer::new();
//! # let client = server.client();
//! # let shutdown = std::future::ready(());
//! // Deletes what every group has finished, once a minute and once in the whole fleet.
//! let mut trimmer = Trimmer::builder(&client).stream("orders").build()?;
//! let totals = trimmer.run_every(shutdown, |_| {}).await;
//! println!("{} entries were trimmed", totals.removed);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! | For | Use |
//! |---|---|
//! | deleting what all groups are done with | [`Trimmer`], [`TrimPolicy`], [`TrimReport`] |
//! | entries that were given up, on a stream or as Prefect keeps them | [`DeadLetters`], [`Redrive`], [`LetterFilter`] |
//! | consumers of dead processes, abandoned groups | [`ConsumerCleaner`], [`GroupCleaner`] |
//! | how far behind a group is, and why a stream grows | [`LagMonitor`], [`StreamLag`] |

pub use stream_core::{
    ConsumerAction, ConsumerPolicy, ExcludedGroup, GroupAction, GroupPolicy, GroupState, LetterContent, LetterError,
    NamePattern, Need, PatternError, Pin, PolicyError, StreamState, TrimPlan, TrimPolicy,
};
pub use stream_maint::{
    CleanupTotals, ConsumerCleaner, ConsumerHealth, ConsumerLag, ConsumerReport, DeadLetters, Exclusion, GroupCleaner,
    GroupLag, GroupReport, Lag, LagMonitor, Letter, LetterFilter, LetterId, LetterTotals, OldestPending, Page, Readers,
    Redrive, RedrivePlan, RedriveReport, Redriven, StreamLag, TrimReport, TrimTotals, Trimmed, Trimmer, TrimmerBuilder,
    WhyUnknown,
};
