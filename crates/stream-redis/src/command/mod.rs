//! Commands as values: a struct with the arguments, its encoding into a [`Request`] and the decoding of its reply.
//!
//! What must stay true: a decoder accepts the RESP2 and the RESP3 shape of a reply and the shorter shapes of Redis 6.2, a
//! field that a server does not know is `None` and never a made-up 0, and a shape nobody knows is an error that shows
//! types and lengths but no byte of a payload.

mod acknowledge;
mod add;
mod claim;
mod collection;
pub(crate) mod decode;
mod group;
mod info;
mod key;
mod pending;
mod range;
pub(crate) mod script;
mod trim;

pub use acknowledge::XAck;
pub use add::XAdd;
pub use claim::{AutoClaimed, Claimed, XAutoClaim, XClaim};
pub use collection::{Del, HGet, HGetAll, SAdd, SCard, SIsMember, SRem, SScan};
pub use group::{TouchConsumer, XGroupCreate, XGroupCreateConsumer, XGroupDelConsumer, XGroupDestroy, XGroupSetId};
pub use info::{ConsumerInfo, GroupInfo, StreamInfo, XInfoConsumers, XInfoGroups, XInfoStream};
pub use key::{Exists, KeyType, Ping, Time};
pub use pending::{PendingEntry, PendingSummary, XPending, XPendingSummary};
pub use range::{XDel, XLastEntry, XLen, XRange};
pub use script::Script;
pub use trim::{Precision, Trim, TrimTo, XTrim};

use crate::{Connection, Error, Request, Value};

/// One command with its arguments, and how to read its reply.
pub trait Command {
    /// What the reply means.
    type Reply;

    /// The command as it goes to the server.
    fn request(&self) -> Request;

    /// Reads a reply that is not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) when the reply has a shape that no supported server sends.
    fn decode(&self, value: Value) -> Result<Self::Reply, Error>;
}

/// Sends `command` and reads its reply.
///
/// # Errors
/// What the connection or the server answered, or a reply of an unknown shape; all name the command and its key.
pub async fn run<C: Command + Sync + ?Sized>(connection: &dyn Connection, command: &C) -> Result<C::Reply, Error> {
    let request = command.request();
    let value = connection.call(&request).await?;
    command.decode(value).map_err(|error| error.at(request.command(), request.stream()))
}

/// Milliseconds of `duration` as the server counts them, rounded up so that a lease never becomes shorter.
pub(crate) fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(MAX_MILLISECONDS)
}

/// Servers refuse times near the end of a signed 64-bit number; this is 285 million years.
const MAX_MILLISECONDS: u64 = 1 << 53;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stream_core::{ConsumerName, EntryId, GroupName, StreamKey};

    /// The arguments of a command with spaces between them.
    pub(crate) fn words(command: &impl Command) -> String {
        command.request().args().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// The exact bytes on the wire.
    pub(crate) fn wire(command: &impl Command) -> String {
        let mut out = Vec::new();
        command.request().encode(&mut out);
        String::from_utf8(out).unwrap()
    }

    pub(crate) fn key(name: &str) -> StreamKey {
        StreamKey::new(name).unwrap()
    }

    pub(crate) fn group(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    pub(crate) fn consumer(name: &str) -> ConsumerName {
        ConsumerName::new(name).unwrap()
    }

    pub(crate) fn id(ms: u64, seq: u64) -> EntryId {
        EntryId::new(ms, seq)
    }

    pub(crate) fn text(text: &str) -> Value {
        Value::bulk(text)
    }

    pub(crate) fn list(values: impl IntoIterator<Item = Value>) -> Value {
        Value::Array(values.into_iter().collect())
    }

    #[test]
    fn durations_round_up_to_whole_milliseconds() {
        use std::time::Duration;
        assert_eq!(milliseconds(Duration::from_micros(1)), 1);
        assert_eq!(milliseconds(Duration::from_secs(2)), 2000);
        assert_eq!(milliseconds(Duration::MAX), MAX_MILLISECONDS);
    }
}
