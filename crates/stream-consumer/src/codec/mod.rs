//! Extractors: how a handler's arguments are made from an entry.
//!
//! What an extractor cannot decode is an outcome, never a stuck or vanished entry: it goes to the dead letters with its
//! raw bytes.

mod faststream;
mod json;
mod plain;
mod prefect;

pub use faststream::{FastStream, FastStreamBody, FastStreamEnvelope};
pub use json::Json;
pub(crate) use plain::payload_of;
pub use plain::{Attempt, Data, Fields};
pub use prefect::PrefectMessage;

use std::error::Error as StdError;

use crate::delivery::Delivery;

/// The field that payloads are in where nothing else is said.
pub const DATA_FIELD: &str = "data";

/// Makes a handler's argument from a delivery.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be made from a stream entry",
    note = "use an extractor such as `Json<T>`, `Data`, `Fields`, `Entry`, `EntryId`, `Attempt` or `Context`, or implement `FromDelivery`"
)]
pub trait FromDelivery: Sized {
    /// Decodes.
    ///
    /// # Errors
    /// [`DecodeError`], which sends the entry to the dead letters.
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError>;
}

/// An entry could not be decoded. The text must not hold payload.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl DecodeError {
    /// Says what was expected and where.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// An entry without the field that is needed.
    pub fn missing_field(field: &str) -> Self {
        Self::new(format!("the entry has no field `{field}`"))
    }
}
