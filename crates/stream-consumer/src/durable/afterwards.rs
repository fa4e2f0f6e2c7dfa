//! What becomes of entries afterwards: how dead letters are kept, and whether finished entries are deleted at once.

use super::config::{Acknowledge, DurableBuilder};
use crate::error::ConfigError;

/// How dead letters are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DeadLetterLayout {
    /// As entries of a stream, in the order in which they were given up.
    #[default]
    Stream,
    /// As Prefect keeps them: a hash for each, named in a set. Give the set's key as [`DurableBuilder::dead_letter`]; that
    /// of Prefect is `dlq`. What Prefect leaves out is in further fields of the hash.
    Prefect,
}

impl DurableBuilder {
    /// How dead letters are kept. Default: [`DeadLetterLayout::Stream`].
    ///
    /// ```
    /// use stream_consumer::{Consumer, DeadLetterLayout};
    /// use stream_redis::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::open("redis://127.0.0.1/")?;
    /// let consumer = Consumer::durable(&client)
    ///     .stream("events")
    ///     .group("event-persister")
    ///     .dead_letter("dlq")
    ///     .dead_letter_layout(DeadLetterLayout::Prefect)
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dead_letter_layout(mut self, layout: DeadLetterLayout) -> Self {
        self.dead_letter_layout = layout;
        self
    }

    /// Deletes each entry in the same step in which it is acknowledged, as long as the stream has no other group: the stream
    /// then holds what is not finished, and needs no trimming. While there is a second group, nothing is deleted. Default:
    /// entries stay until they are trimmed.
    ///
    /// Readers without a group may miss what is deleted, and who deploys a second group later finds only what is left.
    /// Costs one look at the groups for each batch of acknowledgements; without the permission to run scripts or for
    /// `XINFO GROUPS`, entries stay.
    pub fn delete_acknowledged(mut self) -> Self {
        self.delete_acknowledged = true;
        self
    }
}

/// Refuses settings that cannot be kept together.
pub(super) fn check(
    layout: DeadLetterLayout,
    bound: Option<u64>,
    delete: bool,
    mode: Acknowledge,
) -> Result<(), ConfigError> {
    if layout == DeadLetterLayout::Prefect && bound.is_some() {
        let remedy = "a set has no order to drop the oldest by; bound it with `maint::DeadLetters::bound`";
        return Err(ConfigError::Conflict { first: "dead_letter_layout", second: "dead_letter_max", remedy });
    }
    if delete && mode.is_beforehand() {
        let remedy =
            "these modes acknowledge before the handler starts, and what is deleted then would be lost with it";
        return Err(ConfigError::Conflict { first: "delete_acknowledged", second: "acknowledge", remedy });
    }
    Ok(())
}
