//! [`PrefectPublisher`]: messages as Prefect's messaging writes them, to be read by its consumers and by ours.
//!
//! What must stay true: a message that is accepted is in the stream once, or reported; the marker that makes others of the
//! same value duplicates is set in the same step on the server as the message is appended, so neither a crash nor another
//! publisher comes between the two.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;
use stream_core::{BackoffPolicy, Entry, EntryId, NameError, PrefectKeys, StreamKey};

use super::form::Marker;
use super::{PublishError, Publisher, PublisherBuilder, Receipt, entry};
use crate::{Client, Error, ErrorKind};

/// For how long a message counts as published, as in Prefect.
const LOOKBACK: Duration = Duration::from_mins(5);
/// Where Prefect's publishers remember what they have published, unless they were given a cache of their own.
const CACHE_TOPIC: &str = "messaging-cache";

/// Publishes messages in the format of Prefect's messaging: an entry of two fields, `data` and `attributes` (a JSON
/// object), and if asked, no two of the same [attribute](PrefectPublisherBuilder::deduplicate_by) within five minutes.
///
/// Batches, order, buffering and retries are those of [`Publisher`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use stream_redis::{Client, PrefectPublisher};
///
/// let client = Client::open("redis://127.0.0.1/")?;
/// let publisher = PrefectPublisher::builder(&client).topic("events").deduplicate_by("id").build()?;
/// match publisher.publish(r#"{"event":"flow-run.completed"}"#, [("id", "a1b2")]).await? {
///     Some(id) => println!("published as {id}"),
///     None => println!("published before"),
/// }
/// assert!(publisher.publisher().close(Duration::from_secs(5)).await.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PrefectPublisher {
    publisher: Publisher,
    deduplication: Option<Deduplication>,
}

#[derive(Debug)]
struct Deduplication {
    attribute: String,
    keys: PrefectKeys,
    seconds: u64,
}

impl PrefectPublisher {
    /// Starts a publisher for servers of `client`.
    pub fn builder(client: &Client) -> PrefectPublisherBuilder {
        PrefectPublisherBuilder {
            publisher: Publisher::builder(client).batch(5),
            topic: None,
            cluster: false,
            cache_topic: CACHE_TOPIC.to_owned(),
            deduplicate_by: None,
            lookback: LOOKBACK,
        }
    }

    /// Appends a message; its id when the server has confirmed it, `None` where it is a duplicate.
    ///
    /// Prefect's own consumers can read `data` only if it is UTF-8. A message without the deduplication attribute is
    /// published as it is.
    ///
    /// # Errors
    /// [`PublishError`]. What heals by waiting is no error; while the server is away, this waits.
    pub async fn publish<N: Into<String>, V: Into<Value>>(
        &self,
        data: impl AsRef<[u8]>,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Option<EntryId>, PublishError> {
        let (entry, marker) = self.message(data.as_ref(), attributes);
        match self.publisher.enqueue_once(entry, marker).await?.confirmed().await {
            Ok(id) => Ok(Some(id)),
            Err(PublishError::Duplicate) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Like [`publish`](Self::publish), for those who do not want to wait for each confirmation. A duplicate is
    /// [`PublishError::Duplicate`] at the receipt.
    ///
    /// # Errors
    /// [`PublishError`], when the message was not accepted.
    pub async fn enqueue<N: Into<String>, V: Into<Value>>(
        &self,
        data: impl AsRef<[u8]>,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Receipt, PublishError> {
        let (entry, marker) = self.message(data.as_ref(), attributes);
        self.publisher.enqueue_once(entry, marker).await
    }

    /// What it publishes through: to flush, to close, and to ask what is not confirmed yet.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    fn message<N: Into<String>, V: Into<Value>>(
        &self,
        data: &[u8],
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> (Result<Entry, PublishError>, Option<Marker>) {
        let attributes: Vec<(String, Value)> =
            attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let marker = self.deduplication.as_ref().and_then(|deduplication| deduplication.marker(&attributes));
        let entry = to_json(&attributes)
            .and_then(|attributes| entry([(&b"data"[..], data), (&b"attributes"[..], &attributes[..])]));
        (entry, marker)
    }
}

impl Deduplication {
    /// `None` for a message without the attribute.
    fn marker(&self, attributes: &[(String, Value)]) -> Option<Marker> {
        // The last one is what a reader of the JSON gets.
        let Some((_, value)) = attributes.iter().rev().find(|(name, _)| *name == self.attribute) else {
            tracing::warn!(attribute = self.attribute, "a message has no deduplication attribute");
            return None;
        };
        let key = self.keys.deduplication(as_python(value).as_bytes());
        Some(Marker { key, seconds: self.seconds })
    }
}

/// A JSON object, in the order that was given.
fn to_json(attributes: &[(String, Value)]) -> Result<Vec<u8>, PublishError> {
    use serde::Serializer;
    let mut json = Vec::new();
    serde_json::Serializer::new(&mut json)
        .collect_map(attributes.iter().map(|(name, value)| (name, value)))
        .map_err(|_| PublishError::Encoding("its attributes cannot be written as JSON"))?;
    Ok(json)
}

/// A value as Python writes it into a key, so that markers are the same ones.
fn as_python(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed("None"),
        Value::Bool(true) => Cow::Borrowed("True"),
        Value::Bool(false) => Cow::Borrowed("False"),
        other => Cow::Owned(other.to_string()),
    }
}

/// Makes a [`PrefectPublisher`].
#[derive(Debug, Clone)]
#[must_use]
pub struct PrefectPublisherBuilder {
    publisher: PublisherBuilder,
    topic: Option<String>,
    cluster: bool,
    cache_topic: String,
    deduplicate_by: Option<String>,
    lookback: Duration,
}

impl PrefectPublisherBuilder {
    /// The topic; its stream is created where it does not exist. Required.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Uses the names of a cluster ([`PrefectKeys::cluster`]). The markers of messages are then those of the topic, since
    /// they have to lie in the slot of its stream; the cache topic is not used.
    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// The attribute of which no two messages of the same value are published within the lookback. Default: none.
    /// Prefect's publishers on the same server are minded as well, and mind us.
    pub fn deduplicate_by(mut self, attribute: impl Into<String>) -> Self {
        self.deduplicate_by = Some(attribute.into());
        self
    }

    /// Under which topic markers are remembered, over all topics that share it. Default: Prefect's, `messaging-cache`.
    pub fn cache_topic(mut self, topic: impl Into<String>) -> Self {
        self.cache_topic = topic.into();
        self
    }

    /// For how long a message counts as published, in whole seconds from 1 s to 30 days. Default: Prefect's five minutes. A
    /// message that is published again after a longer outage than this may be there twice.
    pub fn lookback(mut self, time: Duration) -> Self {
        self.lookback = time;
        self
    }

    /// At most this many messages in one write; 1 to 10 000. Default: Prefect's 5.
    pub fn batch_size(mut self, messages: usize) -> Self {
        self.publisher = self.publisher.batch(messages);
        self
    }

    /// How long an incomplete batch waits for more messages; more than 10 s, which is Prefect's default, count as 10 s.
    /// Default here: not at all, since messages that come while a batch is on its way make up the next.
    pub fn publish_every(mut self, time: Duration) -> Self {
        self.publisher = self.publisher.linger(time.min(Duration::from_secs(10)));
        self
    }

    /// As [`PublisherBuilder::buffer`].
    pub fn buffer(mut self, messages: usize) -> Self {
        self.publisher = self.publisher.buffer(messages);
        self
    }

    /// As [`PublisherBuilder::backoff`].
    pub fn backoff(mut self, policy: BackoffPolicy) -> Self {
        self.publisher = self.publisher.backoff(policy);
        self
    }

    /// Starts the publisher. It connects when the first message is published.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the topic is missing or a value is out of its range.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn build(self) -> Result<PrefectPublisher, Error> {
        let seconds = self.lookback.as_secs();
        if !(1..=30 * 86_400).contains(&seconds) {
            return Err(Error::new(ErrorKind::Config, "a publisher's lookback is between 1 s and 30 days"));
        }
        let keys =
            |topic: &str| if self.cluster { PrefectKeys::cluster(topic) } else { PrefectKeys::standalone(topic) };
        let empty = |error: NameError| Error::new(ErrorKind::Config, "a publisher needs a topic").with_source(error);
        let stream: StreamKey = keys(self.topic.as_deref().unwrap_or_default()).map_err(empty)?.stream();
        let deduplication = match self.deduplicate_by {
            None => None,
            Some(attribute) => {
                let topic = if self.cluster { self.topic.as_deref().unwrap_or_default() } else { &self.cache_topic };
                Some(Deduplication { attribute, keys: keys(topic).map_err(empty)?, seconds })
            }
        };
        Ok(PrefectPublisher { publisher: self.publisher.stream(stream).build()?, deduplication })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn attributes_are_an_object_in_the_order_that_was_given() {
        let given = [("b".to_owned(), json!("ü")), ("a".to_owned(), json!([1, null]))];
        assert_eq!(to_json(&given).unwrap(), r#"{"b":"ü","a":[1,null]}"#.as_bytes());
        assert_eq!(to_json(&[]).unwrap(), b"{}");
    }

    #[test]
    fn markers_are_named_as_prefect_names_them() {
        let keys = PrefectKeys::standalone(CACHE_TOPIC).unwrap();
        let deduplication = Deduplication { attribute: "id".to_owned(), keys, seconds: 300 };
        let marker = |value: Value| {
            deduplication.marker(&[("id".to_owned(), value)]).map(|marker| (marker.key.to_string(), marker.seconds))
        };
        let named = |value: &str| Some((format!("message:messaging-cache:{value}"), 300));
        assert_eq!(marker(json!("a1")), named("a1"));
        assert_eq!(marker(json!(7)), named("7"));
        assert_eq!(marker(json!(true)), named("True"));
        assert_eq!(marker(json!(null)), named("None"));
        assert!(deduplication.marker(&[("other".to_owned(), json!("a1"))]).is_none());
        let twice = [("id".to_owned(), json!("first")), ("id".to_owned(), json!("last"))];
        assert_eq!(deduplication.marker(&twice).unwrap().key.to_string(), "message:messaging-cache:last");
    }

    #[tokio::test]
    async fn settings_out_of_range_are_refused() {
        let client = Client::open("redis://127.0.0.1/").unwrap();
        let builder = || PrefectPublisher::builder(&client).topic("t");
        for wrong in [
            PrefectPublisher::builder(&client),
            builder().topic(""),
            builder().batch_size(0),
            builder().lookback(Duration::from_millis(999)),
            builder().deduplicate_by("id").cache_topic(""),
        ] {
            let text = format!("{wrong:?}");
            assert_eq!(wrong.build().unwrap_err().kind(), ErrorKind::Config, "{text}");
        }
        assert!(builder().deduplicate_by("id").cluster().build().is_ok());
        assert!(builder().publish_every(Duration::from_mins(1)).build().is_ok());
    }
}
