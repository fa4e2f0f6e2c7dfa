//! Keeps Redis Streams healthy, beside consumers, on its own or from a cron job.
//!
//! * [`Trimmer`]: deletes what every group is done with, and nothing else.
//! * [`DeadLetters`]: looks at what was given up, sends it back, empties it.
//! * [`ConsumerCleaner`], [`GroupCleaner`]: remove what is left over and holds nothing.
//! * [`LagMonitor`]: how far groups are behind, and what holds them.
//!
//! Every task has a `plan`, which says as data what would be done and why, and a `run`, which does it. What must stay
//! true: a task has a connection of its own, so its failures never disturb a consumer; and a missing stream is a state,
//! not a failure.

mod consumers;
mod dlq;
mod every;
mod groups;
mod lag;
mod link;
mod look;
mod trim;

pub use consumers::{ConsumerCleaner, ConsumerReport};
pub use dlq::{
    DeadLetters, Letter, LetterFilter, LetterId, LetterTotals, Page, Redrive, RedrivePlan, RedriveReport, Redriven,
};
pub use every::CleanupTotals;
pub use groups::{GroupCleaner, GroupReport};
pub use lag::{ConsumerHealth, ConsumerLag, GroupLag, Lag, LagMonitor, OldestPending, StreamLag, WhyUnknown};
pub use trim::{Exclusion, Readers, TrimReport, TrimTotals, Trimmed, Trimmer, TrimmerBuilder};
