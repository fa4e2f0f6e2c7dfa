//! [`FastStreamPublisher`]: messages as `FastStream` writes them, to be read by its subscribers and by ours.
//!
//! A message is an entry of one field, `__data__`, that holds an envelope: headers, then the body. All numbers of the
//! binary envelope are big endian: 8 bytes of magic, `u16` version 1, `u32` where the headers begin, `u32` where the body
//! begins; then a `u16` number of headers and for each its name and its value, each a `u16` length in bytes and UTF-8.

use serde::Serialize;
use stream_core::EntryId;

use super::{PublishError, Publisher, Receipt};

const MAGIC: &[u8; 8] = b"\x89BIN\r\n\x1a\n";
const VERSION: u16 = 1;
/// Where the headers begin: behind the magic, the version and the two offsets.
const HEADERS_START: u32 = 18;

/// How the envelope is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FastStreamFormat {
    /// `BinaryMessageFormatV1`: any body. What `FastStream` writes by default since 0.7.
    #[default]
    Binary,
    /// `{"data": …, "headers": {…}}`: bodies that are text only. What it wrote by default before, and still reads.
    Json,
}

/// A message to publish: a body and headers.
///
/// ```
/// use stream_redis::FastStreamMessage;
/// let message = FastStreamMessage::json(&["a", "b"])?.header("tenant", "blue").correlation_id("c-1");
/// # let _ = message;
/// # Ok::<(), stream_redis::PublishError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a message does nothing until it is published"]
pub struct FastStreamMessage {
    body: Vec<u8>,
    correlation_id: Option<String>,
    content_type: Option<String>,
    reply_to: Option<String>,
    headers: Vec<(String, String)>,
}

impl FastStreamMessage {
    /// A text; its content type is `text/plain`.
    pub fn text(body: impl Into<String>) -> Self {
        Self::new(body.into().into_bytes(), Some("text/plain"))
    }

    /// Bytes, without a content type: a subscriber of `FastStream` tries to read them as JSON first.
    pub fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self::new(body.into(), None)
    }

    /// A value as JSON; its content type is `application/json`.
    ///
    /// # Errors
    /// [`PublishError::Encoding`] when it cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, PublishError> {
        let body =
            serde_json::to_vec(value).map_err(|_| PublishError::Encoding("the body cannot be written as JSON"))?;
        Ok(Self::new(body, Some("application/json")))
    }

    fn new(body: Vec<u8>, content_type: Option<&str>) -> Self {
        let content_type = content_type.map(str::to_owned);
        Self { body, correlation_id: None, content_type, reply_to: None, headers: Vec::new() }
    }

    /// Adds a header; one of the same name replaces the earlier, also those that the library writes.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// What this message belongs to. Default: a random UUID, as `FastStream` does.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// The message's own id. Default: none is written, and readers make one up.
    pub fn message_id(self, id: impl Into<String>) -> Self {
        self.header("message_id", id)
    }

    /// Replaces the content type.
    pub fn content_type(mut self, mime: impl Into<String>) -> Self {
        self.content_type = Some(mime.into());
        self
    }

    /// The channel on which an answer is expected.
    pub fn reply_to(mut self, channel: impl Into<String>) -> Self {
        self.reply_to = Some(channel.into());
        self
    }

    /// The value of the field `__data__`; `id` is the correlation id of a message that has none.
    fn encode(self, format: FastStreamFormat, id: impl FnOnce() -> String) -> Result<Vec<u8>, PublishError> {
        let mut headers = vec![("correlation_id".to_owned(), self.correlation_id.unwrap_or_else(id))];
        headers.extend(self.content_type.map(|mime| ("content-type".to_owned(), mime)));
        headers.extend(self.reply_to.map(|channel| ("reply_to".to_owned(), channel)));
        for (name, value) in self.headers {
            match headers.iter_mut().find(|(known, _)| *known == name) {
                Some((_, replaced)) => *replaced = value,
                None => headers.push((name, value)),
            }
        }
        match format {
            FastStreamFormat::Binary => binary(&headers, &self.body),
            FastStreamFormat::Json => json(&headers, &self.body),
        }
    }
}

impl std::fmt::Debug for FastStreamMessage {
    /// Sizes only: payloads do not belong in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastStreamMessage")
            .field("body", &self.body.len())
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}

fn binary(headers: &[(String, String)], body: &[u8]) -> Result<Vec<u8>, PublishError> {
    let too_large = |_| PublishError::Encoding("it has more than 65535 headers, or one of more than 65535 bytes");
    let mut table = Vec::new();
    for (name, value) in headers {
        for part in [name, value] {
            table.extend_from_slice(&u16::try_from(part.len()).map_err(too_large)?.to_be_bytes());
            table.extend_from_slice(part.as_bytes());
        }
    }
    let count = u16::try_from(headers.len()).map_err(too_large)?;
    let table_len =
        u32::try_from(table.len()).map_err(|_| PublishError::Encoding("its headers take more than 4 GiB"))?;
    let data_start = table_len.checked_add(HEADERS_START + 2);
    let data_start = data_start.ok_or(PublishError::Encoding("its headers take more than 4 GiB"))?;
    let mut envelope = Vec::with_capacity(data_start as usize + body.len());
    envelope.extend_from_slice(MAGIC);
    envelope.extend_from_slice(&VERSION.to_be_bytes());
    envelope.extend_from_slice(&HEADERS_START.to_be_bytes());
    envelope.extend_from_slice(&data_start.to_be_bytes());
    envelope.extend_from_slice(&count.to_be_bytes());
    envelope.extend_from_slice(&table);
    envelope.extend_from_slice(body);
    Ok(envelope)
}

fn json(headers: &[(String, String)], body: &[u8]) -> Result<Vec<u8>, PublishError> {
    #[derive(Serialize)]
    struct Envelope<'a> {
        data: &'a str,
        headers: std::collections::BTreeMap<&'a str, &'a str>,
    }
    let text = |_| PublishError::Encoding("the JSON envelope carries text only, and the body is not UTF-8");
    let data = std::str::from_utf8(body).map_err(text)?;
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    serde_json::to_vec(&Envelope { data, headers })
        .map_err(|_| PublishError::Encoding("the envelope cannot be written as JSON"))
}

/// Publishes messages in the format of `FastStream`, through a [`Publisher`], whose batches, bounds and retries it has.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use stream_redis::command::Precision;
/// use stream_redis::{Client, FastStreamMessage, FastStreamPublisher, Publisher};
///
/// let client = Client::open("redis://127.0.0.1/")?;
/// // What `FastStream` calls `maxlen`; see there for what a bound loses.
/// let publisher = Publisher::builder(&client).stream("orders").max_len(100_000, Precision::Approximate { limit: None }).build()?;
/// let publisher = FastStreamPublisher::new(publisher);
/// publisher.publish(FastStreamMessage::text("hello").header("tenant", "blue")).await?;
/// assert!(publisher.publisher().close(std::time::Duration::from_secs(5)).await.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FastStreamPublisher {
    publisher: Publisher,
    format: FastStreamFormat,
}

impl FastStreamPublisher {
    /// Publishes through `publisher`, in binary envelopes.
    pub fn new(publisher: Publisher) -> Self {
        Self { publisher, format: FastStreamFormat::default() }
    }

    /// Publishes in other envelopes.
    #[must_use]
    pub fn format(mut self, format: FastStreamFormat) -> Self {
        self.format = format;
        self
    }

    /// What it publishes through: to flush, to close, and to ask what is not confirmed yet.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Appends a message; its id when the server has confirmed it.
    ///
    /// # Errors
    /// [`PublishError`]. What heals by waiting is no error; while the server is away, this waits.
    pub async fn publish(&self, message: FastStreamMessage) -> Result<EntryId, PublishError> {
        self.enqueue(message).await?.confirmed().await
    }

    /// Like [`publish`](Self::publish), for those who do not want to wait for each confirmation.
    ///
    /// # Errors
    /// [`PublishError`], when the message was not accepted.
    pub async fn enqueue(&self, message: FastStreamMessage) -> Result<Receipt, PublishError> {
        let data = message.encode(self.format, || uuid(fastrand::u128(..)))?;
        self.publisher.enqueue([("__data__", data)]).await
    }
}

/// A random UUID (version 4) of these bits.
fn uuid(bits: u128) -> String {
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `FastStream` 0.7.8 for the same messages.
    const GOLDEN_TEXT: &[u8] =
        b"\x89BIN\r\n\x1a\n\x00\x01\x00\x00\x00\x12\x00\x00\x00d\x00\x04\x00\x0ecorrelation_id\x00\x03c-1\
\x00\x0ccontent-type\x00\ntext/plain\x00\x08reply_to\x00\x07answers\x00\x06tenant\x00\x04bluehello";
    const GOLDEN_EMPTY: &[u8] =
        b"\x89BIN\r\n\x1a\n\x00\x01\x00\x00\x00\x12\x00\x00\x00'\x00\x01\x00\x0ecorrelation_id\x00\x01c";

    fn encoded(message: FastStreamMessage, format: FastStreamFormat) -> Vec<u8> {
        message.encode(format, || "id".to_owned()).unwrap()
    }

    #[test]
    fn the_binary_envelope_is_that_of_faststream() {
        let message =
            FastStreamMessage::text("hello").correlation_id("c-1").reply_to("answers").header("tenant", "blue");
        assert_eq!(encoded(message, FastStreamFormat::Binary), GOLDEN_TEXT);
        assert_eq!(encoded(FastStreamMessage::bytes("").correlation_id("c"), FastStreamFormat::Binary), GOLDEN_EMPTY);
    }

    #[test]
    fn headers_of_the_same_name_replace_one_another() {
        let message =
            FastStreamMessage::text("x").header("a", "1").header("a", "2").header("content-type", "text/html");
        let json = encoded(message, FastStreamFormat::Json);
        let expected = r#"{"data":"x","headers":{"a":"2","content-type":"text/html","correlation_id":"id"}}"#;
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }

    #[test]
    fn what_does_not_fit_the_format_is_refused() {
        let refused = |message: FastStreamMessage, format| {
            let error = message.encode(format, String::new).unwrap_err();
            assert!(matches!(error, PublishError::Encoding(_)), "{error}");
        };
        refused(FastStreamMessage::bytes(b"\xff".to_vec()), FastStreamFormat::Json);
        refused(FastStreamMessage::text("x").header("a", "x".repeat(65_536)), FastStreamFormat::Binary);
        assert!(FastStreamMessage::json(&std::collections::BTreeMap::from([((1, 2), 3)])).is_err());
    }

    #[test]
    fn ids_are_uuids_of_version_4() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
