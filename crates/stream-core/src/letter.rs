//! [`LetterContent`]: what a dead letter tells, whatever its layout; and the layout of Prefect, a hash for each letter.
//!
//! A hash that this library writes has the one field that Prefect writes (`data`, a JSON text), and beside it everything
//! that Prefect leaves out. What must stay true: the original fields come back byte for byte, which JSON cannot hold, so
//! they are a field of their own; and a letter that Prefect wrote is read as well, with whatever it does not tell unknown.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::dead_letter::{MARKER, VERSION, decimal, number};
use crate::{ConsumerName, DeadLetter, DeadLetterError, DeadReason, EntryId, GroupName, StreamKey};

/// What is known of an entry that was given up. What its letter does not tell is `None`.
///
/// ```
/// use stream_core::LetterContent;
///
/// // As Prefect writes it: neither the stream nor the group nor the reason.
/// let json = r#"{"data": "{}", "attributes": {"id": 7}, "retry_count": 4, "timestamp": "8.5", "message_id": "x"}"#;
/// let letter = LetterContent::from_hash([(&b"data"[..], json.as_bytes())])?;
/// assert_eq!((letter.attempts, &letter.stream), (Some(4), &None));
/// assert_eq!(letter.get("attributes"), Some(&br#"{"id": 7}"#[..]));
/// # Ok::<_, stream_core::LetterError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LetterContent {
    /// The fields of the original entry.
    pub fields: Vec<(Bytes, Bytes)>,
    /// Its id on its own stream.
    pub id: Option<EntryId>,
    /// The stream it was published to.
    pub stream: Option<StreamKey>,
    /// The group that gave it up.
    pub group: Option<GroupName>,
    /// The consumer that gave it up.
    pub consumer: Option<ConsumerName>,
    /// How often its handler was started.
    pub attempts: Option<u32>,
    /// Why it was given up.
    pub reason: Option<DeadReason>,
    /// When it was given up, in milliseconds since 1970.
    pub dead_at_ms: Option<u64>,
    /// How often it had been sent back from the dead letters before.
    pub redriven: u32,
}

/// A dead letter cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LetterError {
    /// The entry on the stream of dead letters is not one, or damaged.
    #[error(transparent)]
    Entry(#[from] DeadLetterError),
    /// The set of letters names it, and its hash is not there: it was deleted, but for its name.
    #[error("the set of dead letters names it, but its hash is not there: it was deleted half way")]
    NoHash,
    /// The hash was written by a newer version of this library.
    #[error("the hash is a dead letter of a layout that this version does not know: upgrade to read it")]
    Version,
    /// A field of the hash is missing or does not hold what it should.
    #[error("the hash is no dead letter, or a damaged one: its field `{field}` is missing or out of shape")]
    Field {
        /// The field.
        field: &'static str,
    },
}

impl From<DeadLetter> for LetterContent {
    fn from(letter: DeadLetter) -> Self {
        Self {
            fields: letter.entry.fields_bytes().collect(),
            id: Some(letter.entry.id()),
            stream: Some(letter.stream),
            group: Some(letter.group),
            consumer: Some(letter.consumer),
            attempts: Some(letter.attempts),
            reason: Some(letter.reason),
            dead_at_ms: Some(letter.dead_at_ms),
            redriven: letter.redriven,
        }
    }
}

impl DeadLetter {
    /// The fields of the hash to keep it in, in Prefect's layout; `name` is the part of the hash's key that is its own.
    ///
    /// An entry whose `data` is not UTF-8, or whose `attributes` are no JSON object, is shown to Prefect as well as JSON can;
    /// this library reads it back exactly.
    pub fn to_hash(&self, name: &str) -> Vec<(Bytes, Bytes)> {
        let data = self.entry.get("data").unwrap_or_default();
        let attributes = self.entry.get("attributes").and_then(object).unwrap_or("{}");
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let json = format!(
            r#"{{"data":{},"attributes":{attributes},"retry_count":{},"timestamp":"{}.{:03}","message_id":{}}}"#,
            quoted(&String::from_utf8_lossy(data)),
            self.attempts,
            self.dead_at_ms / 1000,
            self.dead_at_ms % 1000,
            quoted(name),
        );
        let content = LetterContent::from(self.clone());
        let mut fields = vec![(Bytes::from_static(b"data"), Bytes::from(json))];
        fields.extend(content.provenance());
        fields.push((Bytes::from_static(b"fields"), pack(&content.fields)));
        fields
    }
}

impl LetterContent {
    /// Reads a letter from the names and values of its hash, whoever wrote it.
    ///
    /// # Errors
    /// [`LetterError`] when there is no field, or it is not a dead letter of a layout that is known.
    pub fn from_hash<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, LetterError> {
        let named = Named(fields.into_iter().collect());
        match named.get(MARKER) {
            _ if named.0.is_empty() => Err(LetterError::NoHash),
            Some(VERSION) => {
                let fields = named.read("fields", unpack)?.ok_or(LetterError::Field { field: "fields" })?;
                Ok(Self { fields, ..named.provenance()? })
            }
            Some(_) => Err(LetterError::Version),
            None => of_prefect(named.get(b"data").unwrap_or_default()),
        }
    }

    /// All but the original fields, as names and values.
    pub fn provenance(&self) -> Vec<(Bytes, Bytes)> {
        let text = |text: &[u8]| Some(Bytes::copy_from_slice(text));
        let reason = self.reason.as_ref();
        let all: [(&'static [u8], Option<Bytes>); 10] = [
            (MARKER, Some(Bytes::from_static(VERSION))),
            (b"stream", self.stream.as_ref().and_then(|name| text(name.as_bytes()))),
            (b"group", self.group.as_ref().and_then(|name| text(name.as_bytes()))),
            (b"consumer", self.consumer.as_ref().and_then(|name| text(name.as_bytes()))),
            (b"id", self.id.map(|id| Bytes::from(id.to_string()))),
            (b"attempts", self.attempts.map(decimal)),
            (b"reason", reason.map(|reason| Bytes::from_static(reason.as_str().as_bytes()))),
            (b"detail", reason.and_then(DeadReason::detail).and_then(|detail| text(detail.as_bytes()))),
            (b"at", self.dead_at_ms.map(decimal)),
            (b"redriven", Some(decimal(self.redriven))),
        ];
        all.into_iter().filter_map(|(name, value)| Some((Bytes::from_static(name), value?))).collect()
    }

    /// Reads back what [`provenance`](Self::provenance) gave; fields of other names are not looked at.
    ///
    /// # Errors
    /// [`LetterError`] when a field does not hold what it should.
    pub fn from_provenance<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, LetterError> {
        Named(fields.into_iter().collect()).provenance()
    }

    /// The value of the first original field called `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.fields.iter().find(|(field, _)| field == name.as_ref()).map(|(_, value)| value.as_ref())
    }
}

/// Fields that are found by their names.
struct Named<'a>(Vec<(&'a [u8], &'a [u8])>);

impl<'a> Named<'a> {
    fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, value)| *value)
    }

    /// The field, if it is there and `parse` accepts it.
    fn read<T>(
        &self,
        field: &'static str,
        parse: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<Option<T>, LetterError> {
        let Some(value) = self.get(field.as_bytes()) else { return Ok(None) };
        parse(value).map(Some).ok_or(LetterError::Field { field })
    }

    fn provenance(&self) -> Result<LetterContent, LetterError> {
        let detail = self.read("detail", |value| String::from_utf8(value.to_vec()).ok())?;
        Ok(LetterContent {
            fields: Vec::new(),
            id: self.read("id", |value| EntryId::parse(value).ok())?,
            stream: self.read("stream", |value| StreamKey::new(value).ok())?,
            group: self.read("group", |value| GroupName::new(value).ok())?,
            consumer: self.read("consumer", |value| ConsumerName::new(value).ok())?,
            attempts: self.read("attempts", |value| number(value)?.try_into().ok())?,
            reason: self.read("reason", |code| DeadReason::from_parts(code, detail))?,
            dead_at_ms: self.read("at", number)?,
            redriven: self.read("redriven", |value| number(value)?.try_into().ok())?.unwrap_or(0),
        })
    }
}

/// The JSON text that Prefect writes. Its time is that of the event loop, which says nothing to others.
fn of_prefect(json: &[u8]) -> Result<LetterContent, LetterError> {
    let error = LetterError::Field { field: "data" };
    let Ok(json) = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(json) else { return Err(error) };
    let data = json.get("data").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok()).ok_or(error)?;
    let attributes = json.get("attributes").and_then(|raw| object(raw.get().as_bytes())).unwrap_or("{}");
    Ok(LetterContent {
        fields: vec![
            (Bytes::from_static(b"data"), Bytes::from(data)),
            (Bytes::from_static(b"attributes"), Bytes::copy_from_slice(attributes.as_bytes())),
        ],
        attempts: json.get("retry_count").and_then(|raw| raw.get().parse().ok()),
        ..LetterContent::default()
    })
}

/// The text, if it is a JSON object.
fn object(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    serde_json::from_str::<BTreeMap<String, &RawValue>>(text).ok().map(|_| text)
}

/// Names and values one after the other, each as its length, a colon and its bytes.
fn pack(fields: &[(Bytes, Bytes)]) -> Bytes {
    let mut packed = Vec::new();
    for part in fields.iter().flat_map(|(name, value)| [name, value]) {
        packed.extend_from_slice(&decimal(part.len()));
        packed.push(b':');
        packed.extend_from_slice(part);
    }
    packed.into()
}

fn unpack(mut packed: &[u8]) -> Option<Vec<(Bytes, Bytes)>> {
    let mut next = || -> Option<Bytes> {
        let colon = packed.iter().position(|byte| *byte == b':')?;
        let length = usize::try_from(number(&packed[..colon])?).ok()?;
        let part = packed[colon + 1..].get(..length)?;
        packed = &packed[colon + 1 + length..];
        Some(Bytes::copy_from_slice(part))
    };
    let mut fields = Vec::new();
    while let Some(name) = next() {
        fields.push((name, next()?));
    }
    packed.is_empty().then_some(fields)
}

#[cfg(test)]
#[path = "letter_tests.rs"]
mod tests;
