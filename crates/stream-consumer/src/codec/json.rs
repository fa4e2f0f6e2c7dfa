//! [`Json`]: the payload field as JSON.

use serde::de::DeserializeOwned;

use super::{DATA_FIELD, DecodeError, FromDelivery};
use crate::delivery::Delivery;

/// The value of the field [`DATA_FIELD`], decoded from JSON. An entry with one single field of any name is taken as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromDelivery for Json<T> {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        let payload = super::payload_of(delivery.entry()).ok_or_else(|| DecodeError::missing_field(DATA_FIELD))?;
        decode(DATA_FIELD, payload).map(Json)
    }
}

impl<T> std::ops::Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Decodes what came in the field `field`.
pub(super) fn decode<T: DeserializeOwned>(field: &str, json: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(json).map_err(|error| {
        // The text of serde's error may quote the payload; its place and kind do not.
        DecodeError::new(format!(
            "the field `{field}` is not the expected JSON ({:?} error at line {}, column {})",
            error.classify(),
            error.line(),
            error.column()
        ))
    })
}
