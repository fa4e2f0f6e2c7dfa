//! Pure decisions of a Redis Streams consumer.
//!
//! Nothing here awaits, reads a clock, draws a random number or knows a client: whatever decides takes `now`, a random
//! number and the server's replies as arguments. That is what makes the run loops above it exact to test.
//!
//! * [`EntryId`], [`Entry`] and the names ([`StreamKey`], [`GroupName`], [`ConsumerName`]): the field's nouns as types.
//! * [`Partitions`]: one logical stream over several.
//! * [`StartFrom`]: where a group begins; [`ClaimCursor`]: where the search for abandoned entries goes on.
//! * [`Tail`]: where a reader without a group stands, and what of its stream it missed; [`Undelivered`]: what a group missed.
//! * [`ReadAhead`]: how many entries the next read may ask for; [`Lanes`]: one key, one at a time, in order.
//! * [`Outcome`], [`RetryPolicy`], [`Verdict`]: what becomes of an entry that was handled; [`DeadLetter`]: of one that was
//!   given up.
//! * [`Ledger`], [`LeasePolicy`]: what is held, and how sure we are of it; [`Takeover`]: what becomes of a dead owner's.
//! * [`Inline`]: whether a handler may be polled where it is dispatched.
//! * [`Finished`]: what this process has finished, for when it is delivered again.
//! * [`BackoffPolicy`], [`Backoff`]: how long to wait for a server in trouble.
//! * [`RestartPolicy`], [`Restarts`]: whether what has failed is started anew.
//! * [`TrimPolicy`], [`TrimPlan`]: what may be trimmed; [`VanishedGroups`]: for whom that is gone; [`Elapsed`]: by which time; [`ConsumerPolicy`], [`GroupPolicy`]: what may be removed;
//!   [`NamePattern`]: whose names that is meant for.
//! * [`PrefectKeys`]: the names that Prefect gives its keys.

mod backoff;
mod cleanup;
mod cursor;
mod dead_letter;
mod elapsed;
mod entry;
mod finished;
mod id;
mod in_order;
mod inline;
mod lanes;
mod lease;
mod ledger;
mod letter;
mod name;
mod partitions;
mod pattern;
mod policy;
mod prefect;
mod read_ahead;
mod restart;
mod retry;
mod search;
mod tail;
mod takeover;
mod trim;
mod undelivered;
mod vanished;

pub use backoff::{Backoff, BackoffPolicy};
pub use cleanup::{ConsumerAction, ConsumerPolicy, ConsumerState, GroupAction, GroupPolicy, GroupWatch};
pub use cursor::{ClaimCursor, StartFrom};
pub use dead_letter::{DeadLetter, DeadLetterError, DeadReason};
pub use elapsed::Elapsed;
pub use entry::{Entry, FieldSpan, Fields, TooLarge};
pub use finished::{DEFAULT_FINISHED_CAPACITY, Finished};
pub use id::{EntryId, ParseEntryIdError};
pub use in_order::InOrder;
pub use inline::Inline;
pub use lanes::Lanes;
pub use lease::{Certainty, LeasePolicy};
pub use ledger::{Lease, Ledger, Slot, Stage};
pub use letter::{LetterContent, LetterError};
pub use name::{ConsumerName, GroupName, NameError, StreamKey};
pub use partitions::{Partitions, PartitionsError, crc16};
pub use pattern::{NamePattern, PatternError};
pub use policy::PolicyError;
pub use prefect::PrefectKeys;
pub use read_ahead::{ReadAhead, ReadLimits};
pub use restart::{Restart, RestartPolicy, Restarts};
pub use retry::{MAX_DETAIL, Outcome, RetryPolicy, Verdict};
pub use search::{Holder, NextStep, SearchBudget};
pub use tail::{StreamFacts, Tail, TailBreak};
pub use takeover::Takeover;
pub use trim::{ExcludedGroup, GroupState, Need, Pin, StreamState, TrimPlan, TrimPolicy};
pub use undelivered::{GroupFacts, Undelivered, UndeliveredGap};
pub use vanished::VanishedGroups;
