//! [`PrefectKeys`]: the names that Prefect's messaging gives its keys, on one server and in a cluster.

use std::fmt;

use crate::{NameError, StreamKey};

/// The keys of one topic of Prefect's messaging.
///
/// | | one server | cluster |
/// |---|---|---|
/// | stream | `TOPIC` | `{message:TOPIC}:stream` |
/// | marker of a message that was published | `message:TOPIC:VALUE` | `{message:TOPIC}:dedupe:VALUE` |
/// | set of dead letters | `dlq`, one for all topics | `{message:TOPIC}:dlq` |
/// | one dead letter | `dlq:ID` | `{message:TOPIC}:dlq:ID` |
///
/// ```
/// use stream_core::PrefectKeys;
/// let keys = PrefectKeys::cluster("events")?;
/// assert_eq!(keys.stream().as_bytes(), b"{message:events}:stream");
/// # Ok::<(), stream_core::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefectKeys {
    topic: StreamKey,
    cluster: bool,
}

impl PrefectKeys {
    /// The names on one server.
    ///
    /// # Errors
    /// [`NameError`] when the topic is empty.
    pub fn standalone(topic: impl AsRef<[u8]>) -> Result<Self, NameError> {
        Ok(Self { topic: StreamKey::new(topic)?, cluster: false })
    }

    /// The names in a cluster: all keys of a topic lie in one slot.
    ///
    /// # Errors
    /// [`NameError`] when the topic is empty.
    pub fn cluster(topic: impl AsRef<[u8]>) -> Result<Self, NameError> {
        Ok(Self { topic: StreamKey::new(topic)?, cluster: true })
    }

    /// The topic's own name.
    pub fn topic(&self) -> &StreamKey {
        &self.topic
    }

    /// The stream that the topic's messages are in.
    pub fn stream(&self) -> StreamKey {
        if self.cluster { self.tagged("stream", None) } else { self.topic.clone() }
    }

    /// The key that is there for as long as a message with this value of its deduplication attribute counts as published.
    pub fn deduplication(&self, value: impl AsRef<[u8]>) -> StreamKey {
        if self.cluster {
            return self.tagged("dedupe", Some(value.as_ref()));
        }
        key(&[b"message:", self.topic.as_bytes(), b":", value.as_ref()])
    }

    /// The set that names the topic's dead letters; without a cluster one for all topics.
    pub fn dead_letters(&self) -> StreamKey {
        if self.cluster { self.tagged("dlq", None) } else { key(&[b"dlq"]) }
    }

    /// The hash of one dead letter, by its id: 32 hexadecimal digits where Prefect made it.
    pub fn dead_letter(&self, id: impl fmt::Display) -> StreamKey {
        let id = id.to_string();
        if self.cluster { self.tagged("dlq", Some(id.as_bytes())) } else { key(&[b"dlq:", id.as_bytes()]) }
    }

    fn tagged(&self, what: &str, part: Option<&[u8]>) -> StreamKey {
        let colon: &[u8] = if part.is_some() { b":" } else { b"" };
        key(&[b"{message:", self.topic.as_bytes(), b"}:", what.as_bytes(), colon, part.unwrap_or_default()])
    }
}

/// Never empty: every name above has a fixed part.
fn key(parts: &[&[u8]]) -> StreamKey {
    StreamKey::new(parts.concat()).unwrap_or_else(|_| unreachable!("the name of a key has a fixed part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &PrefectKeys) -> [String; 4] {
        [keys.stream(), keys.deduplication("v:1"), keys.dead_letters(), keys.dead_letter("ab12")]
            .map(|key| key.to_string())
    }

    #[test]
    fn names_on_one_server_are_those_that_prefect_uses() {
        let keys = PrefectKeys::standalone("events").unwrap();
        assert_eq!(names(&keys), ["events", "message:events:v:1", "dlq", "dlq:ab12"]);
    }

    #[test]
    fn names_in_a_cluster_share_one_slot() {
        let keys = PrefectKeys::cluster("events").unwrap();
        let expected = ["stream", "dedupe:v:1", "dlq", "dlq:ab12"].map(|end| format!("{{message:events}}:{end}"));
        assert_eq!(names(&keys), expected);
    }

    #[test]
    fn a_topic_without_a_name_is_refused() {
        assert!(PrefectKeys::standalone("").is_err());
        assert!(PrefectKeys::cluster("").is_err());
    }
}
