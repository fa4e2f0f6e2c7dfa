//! [`PrefectMessage`]: messages of Prefect's messaging, fields `data` and `attributes`.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{DATA_FIELD, DecodeError, FromDelivery, json};
use crate::delivery::Delivery;

const ATTRIBUTES_FIELD: &str = "attributes";

/// A message as Prefect's publishers write it: the entry's field `data`, and its field `attributes` decoded from a JSON
/// object.
///
/// Prefect's own consumers take text only; here `data` may be any bytes.
///
/// ```
/// use stream_consumer::{Handler, PrefectMessage};
///
/// async fn record(PrefectMessage { data, attributes }: PrefectMessage) {
///     println!("{} bytes of event {:?}", data.len(), attributes.get("event"));
/// }
/// fn check<A>(_: impl Handler<A>) {}
/// check(record);
/// ```
#[derive(Clone, PartialEq)]
pub struct PrefectMessage {
    /// The payload; shared memory, not a copy.
    pub data: Bytes,
    /// The attributes by name; empty where they are `null`.
    pub attributes: BTreeMap<String, Value>,
}

impl PrefectMessage {
    /// Decodes the values of the two fields.
    ///
    /// # Errors
    /// [`DecodeError`] when the attributes are not a JSON object.
    pub fn decode(data: Bytes, attributes: &[u8]) -> Result<Self, DecodeError> {
        let attributes: Option<BTreeMap<String, Value>> = json::decode(ATTRIBUTES_FIELD, attributes)?;
        Ok(Self { data, attributes: attributes.unwrap_or_default() })
    }

    /// The payload as text.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not UTF-8.
    pub fn text(&self) -> Result<&str, DecodeError> {
        std::str::from_utf8(&self.data).map_err(|_| DecodeError::new("the field `data` is not UTF-8"))
    }

    /// The payload decoded from JSON.
    ///
    /// # Errors
    /// [`DecodeError`] when it is not JSON of this type.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        json::decode(DATA_FIELD, &self.data)
    }

    /// An attribute that is a text.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name)?.as_str()
    }
}

impl FromDelivery for PrefectMessage {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        let entry = delivery.entry();
        let data = entry.get_bytes(DATA_FIELD).ok_or_else(|| DecodeError::missing_field(DATA_FIELD))?;
        let attributes = entry.get(ATTRIBUTES_FIELD).ok_or_else(|| DecodeError::missing_field(ATTRIBUTES_FIELD))?;
        Self::decode(data, attributes)
    }
}

impl fmt::Debug for PrefectMessage {
    /// Sizes only: payloads do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefectMessage")
            .field("data", &self.data.len())
            .field("attributes", &self.attributes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn decode(attributes: &str) -> Result<PrefectMessage, DecodeError> {
        PrefectMessage::decode(Bytes::from_static(b"{\"n\":1}"), attributes.as_bytes())
    }

    #[test]
    fn attributes_are_a_json_object() {
        let message = decode(r#"{"id":"a1","n":7,"deep":{"x":[null]}}"#).unwrap();
        assert_eq!(message.attribute("id"), Some("a1"));
        assert_eq!((message.attribute("n"), &message.attributes["n"]), (None, &json!(7)));
        assert_eq!(message.json::<BTreeMap<String, u8>>().unwrap()["n"], 1);
        assert_eq!(message.text().unwrap(), "{\"n\":1}");
        assert!(decode("null").unwrap().attributes.is_empty());
    }

    #[test]
    fn what_is_not_an_object_is_refused_without_being_quoted() {
        for wrong in ["", "[]", "\"secret\"", "{\"a\":secret}", "{\"a\":1", "{1:2}"] {
            let error = decode(wrong).unwrap_err().to_string();
            assert!(error.starts_with("the field `attributes` is not the expected JSON"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let deep = "{\"a\":".repeat(10_000);
        assert!(decode(&deep).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(data: Vec<u8>, attributes: Vec<u8>) {
            let decoded = PrefectMessage::decode(Bytes::from(data.clone()), &attributes);
            prop_assert!(decoded.is_err() || decoded.is_ok_and(|message| message.data == data));
        }
    }
}
