//! [`FastStream`]: messages of the Python framework of that name, with their headers.

mod envelope;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use stream_core::Entry;

pub use envelope::FastStreamEnvelope;

use super::{DATA_FIELD, Data, DecodeError, FromDelivery, Json, json};
use crate::delivery::Delivery;

/// The field that holds the envelope.
const ENVELOPE_FIELD: &str = "__data__";

/// A message as `FastStream` publishes it: a body and headers, from the field `__data__` in its binary (V1) or its JSON
/// envelope.
///
/// What has no envelope is taken as `FastStream` takes it: the bytes of `__data__` as they are, or, without that field, the
/// field `data`, or all fields as one JSON object. An envelope that is damaged goes to the dead letters.
///
/// ```
/// use stream_consumer::{FastStream, Handler, Json};
/// #[derive(serde::Deserialize)]
/// struct Order { id: u64 }
///
/// async fn bill(message: FastStream<Json<Order>>) {
///     println!("order {} of {:?}, part of {}", message.body.id, message.headers.get("tenant"), message.correlation_id);
/// }
/// fn check<A>(_: impl Handler<A>) {}
/// check(bill);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastStream<T> {
    /// The body, decoded: [`Json`], `String`, [`Bytes`], or whatever is [`FastStreamBody`].
    pub body: T,
    /// All headers, those below included; of two with one name the last.
    pub headers: BTreeMap<String, String>,
    /// What the message belongs to; the entry's id where the publisher did not say.
    pub correlation_id: String,
    /// The message's id; the entry's id where the publisher gave none.
    pub message_id: String,
    /// What the body is, for example `application/json`.
    pub content_type: Option<String>,
    /// The channel on which an answer is expected.
    pub reply_to: Option<String>,
}

impl<T: FastStreamBody> FromDelivery for FastStream<T> {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        let FastStreamEnvelope { headers, body } = envelope_of(delivery.entry())?;
        let header = |name: &str| headers.get(name).filter(|value| !value.is_empty()).cloned();
        let id = || delivery.id().to_string();
        let content_type = header("content-type");
        Ok(Self {
            body: T::from_body(body, content_type.as_deref())?,
            correlation_id: header("correlation_id").unwrap_or_else(id),
            message_id: header("message_id").unwrap_or_else(id),
            reply_to: header("reply_to"),
            content_type,
            headers,
        })
    }
}

fn envelope_of(entry: &Entry) -> Result<FastStreamEnvelope, DecodeError> {
    if let Some(value) = entry.get_bytes(ENVELOPE_FIELD).filter(|value| !value.is_empty()) {
        return FastStreamEnvelope::decode(&value);
    }
    let body = match entry.get_bytes(DATA_FIELD) {
        Some(body) => body,
        None => all_fields(entry)?.into(),
    };
    Ok(FastStreamEnvelope { headers: BTreeMap::new(), body })
}

/// All fields as a JSON object, in their order.
fn all_fields(entry: &Entry) -> Result<Vec<u8>, DecodeError> {
    use serde::Serializer;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| DecodeError::new("a field is not UTF-8"));
    let fields = entry.fields().map(|(name, value)| Ok((text(name)?, text(value)?)));
    let fields = fields.collect::<Result<Vec<_>, DecodeError>>()?;
    let mut object = Vec::new();
    serde_json::Serializer::new(&mut object)
        .collect_map(fields)
        .map_err(|_| DecodeError::new("the fields cannot be written as JSON"))?;
    Ok(object)
}

/// What a body can be decoded to.
#[diagnostic::on_unimplemented(
    message = "the body of a `FastStream` message cannot be decoded to `{Self}`",
    note = "use `FastStream<Json<T>>`, `FastStream<String>` or `FastStream<Bytes>`, or implement `FastStreamBody`"
)]
pub trait FastStreamBody: Sized {
    /// Decodes. `content_type` is what the publisher said that it is.
    ///
    /// # Errors
    /// [`DecodeError`], which sends the entry to the dead letters.
    fn from_body(body: Bytes, content_type: Option<&str>) -> Result<Self, DecodeError>;
}

impl FastStreamBody for Bytes {
    fn from_body(body: Bytes, _: Option<&str>) -> Result<Self, DecodeError> {
        Ok(body)
    }
}

impl FastStreamBody for Data {
    fn from_body(body: Bytes, _: Option<&str>) -> Result<Self, DecodeError> {
        Ok(Self(body))
    }
}

impl FastStreamBody for String {
    fn from_body(body: Bytes, _: Option<&str>) -> Result<Self, DecodeError> {
        let text = std::str::from_utf8(&body).map_err(|_| DecodeError::new("the body is not UTF-8"))?;
        Ok(text.to_owned())
    }
}

impl<T: DeserializeOwned> FastStreamBody for Json<T> {
    fn from_body(body: Bytes, _: Option<&str>) -> Result<Self, DecodeError> {
        json::decode(ENVELOPE_FIELD, &body).map(Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream_core::EntryId;

    fn body(fields: &[(&str, &str)]) -> String {
        let entry = Entry::new(EntryId::new(1, 0), fields.iter().copied()).unwrap();
        let envelope = envelope_of(&entry).unwrap();
        assert!(envelope.headers.is_empty());
        String::from_utf8(envelope.body.to_vec()).unwrap()
    }

    #[test]
    fn what_has_no_envelope_is_taken_as_faststream_takes_it() {
        assert_eq!(body(&[("__data__", "hello"), ("a", "1")]), "hello");
        assert_eq!(body(&[("b", "1"), ("a", "ü\"")]), r#"{"b":"1","a":"ü\""}"#);
        assert_eq!(body(&[("data", "x"), ("attributes", "{}")]), "x");
        let odd = Entry::new(EntryId::new(1, 0), [(&b"a"[..], &b"\xff"[..])]).unwrap();
        assert_eq!(envelope_of(&odd).unwrap_err().to_string(), "a field is not UTF-8");
    }

    #[test]
    fn bodies_are_decoded_by_their_type() {
        let body = || Bytes::from_static(b"[1,2]");
        assert_eq!(Json::<Vec<u8>>::from_body(body(), None).unwrap().0, [1, 2]);
        assert_eq!(String::from_body(body(), Some("text/plain")).unwrap(), "[1,2]");
        assert_eq!(Bytes::from_body(body(), None).unwrap(), body());
        assert_eq!(Data::from_body(body(), None).unwrap().0, body());
        assert!(Json::<u8>::from_body(body(), None).is_err());
        assert!(String::from_body(Bytes::from_static(b"\xff"), None).is_err());
    }
}
