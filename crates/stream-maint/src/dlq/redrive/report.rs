//! What sending back tells: [`RedrivePlan`] beforehand, [`RedriveReport`] afterwards.

use std::collections::BTreeMap;

use stream_core::StreamKey;

/// What [`DeadLetters::redrive`](crate::DeadLetters::redrive) would do.
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
/// use stream_maint::{DeadLetters, Redrive};
/// let plan = DeadLetters::new(&client, "orders:dead")?.plan_redrive(&Redrive::new()).await?;
/// assert_eq!(plan.to[&StreamKey::new("orders")?], 1);
/// assert_eq!((plan.no_stream, plan.skipped, plan.unreadable), (0, 0, 1)); // somebody else wrote the other
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedrivePlan {
    /// Letters that would be sent back, by the stream they would go to.
    pub to: BTreeMap<StreamKey, u64>,
    /// Letters that do not tell the stream they came from: they would stay, unless [`Redrive::to`](crate::Redrive::to) names one.
    pub no_stream: u64,
    /// Letters that do not match.
    pub skipped: u64,
    /// Letters that cannot be read, or have no fields to be sent: they stay.
    pub unreadable: u64,
}

/// What was sent back.
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
/// # server.set_string("orders");
/// use stream_maint::{DeadLetters, Redrive};
/// // The key `orders` holds something else by now.
/// let report = DeadLetters::new(&client, "orders:dead")?.redrive(&Redrive::new()).await?;
/// assert_eq!((report.redriven, report.refused), (0, 1));
/// # assert_eq!(server.len("orders:dead"), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedriveReport {
    /// Letters that were sent back and are gone from the dead letters.
    pub redriven: u64,
    /// Letters that do not match.
    pub skipped: u64,
    /// Letters that cannot be read, or have no fields to be sent: they stay.
    pub unreadable: u64,
    /// Letters whose stream does not exist, or that do not tell it: they stay.
    pub no_stream: u64,
    /// Letters whose stream takes none of them: its key holds something else, this user may not write it, or it has given
    /// its last id. They stay, and the others go on.
    pub refused: u64,
    /// Letters that somebody else deleted while they were sent back: those entries may be there twice.
    pub deleted_meanwhile: u64,
}
