//! Pure decisions of a Redis Streams consumer.
//!
//! Nothing here awaits, reads a clock, draws a random number or knows a client: whatever decides takes `now`, a random
//! number and the server's replies as arguments. That is what makes the run loops above it exact to test.
//!
//! * [`EntryId`], [`Entry`] and the names ([`StreamKey`], [`GroupName`], [`ConsumerName`]): the field's nouns as types.
//! * [`StartFrom`]: where a group begins.

mod entry;
mod id;
mod name;

pub use entry::{Entry, FieldSpan, Fields, TooLarge};
pub use id::{EntryId, ParseEntryIdError};
pub use name::{ConsumerName, GroupName, NameError, StreamKey};
