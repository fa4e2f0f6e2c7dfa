//! `XGROUP`: makes, moves and removes groups and their consumers.

use stream_core::{ConsumerName, EntryId, GroupName, StreamKey};

use super::{Command, decode};
use crate::{Error, Request, Value};

/// `XGROUP CREATE`; an existing group is [`ErrorKind::GroupExists`](crate::ErrorKind::GroupExists).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XGroupCreate {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// An id (`0` reads everything) or `$`, which skips whatever is there already.
    pub start: String,
    /// `MKSTREAM`: create the stream where it is missing.
    pub make_stream: bool,
    /// `ENTRIESREAD`, since Redis 7.0: how many entries count as read, for the lag. A syntax error on Redis 6.2.
    pub entries_read: Option<u64>,
}

impl Command for XGroupCreate {
    type Reply = ();

    fn request(&self) -> Request {
        let mut request = Request::new("XGROUP CREATE").key(&self.key).arg(&self.group).arg(&self.start);
        if self.make_stream {
            request = request.arg("MKSTREAM");
        }
        with_entries_read(request, self.entries_read)
    }

    fn decode(&self, value: Value) -> Result<(), Error> {
        decode::ok(&value)
    }
}

/// `XGROUP SETID`: moves what the group has delivered last. Moving it forward skips entries for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XGroupSetId {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// Entries after this id are delivered next.
    pub last_delivered: EntryId,
    /// `ENTRIESREAD`, since Redis 7.0. A syntax error on Redis 6.2.
    pub entries_read: Option<u64>,
}

impl Command for XGroupSetId {
    type Reply = ();

    fn request(&self) -> Request {
        let request = Request::new("XGROUP SETID").key(&self.key).arg(&self.group).id(self.last_delivered);
        with_entries_read(request, self.entries_read)
    }

    fn decode(&self, value: Value) -> Result<(), Error> {
        decode::ok(&value)
    }
}

/// `XGROUP DESTROY`: whether there was such a group. Its pending entries are gone with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XGroupDestroy {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
}

impl Command for XGroupDestroy {
    type Reply = bool;

    fn request(&self) -> Request {
        Request::new("XGROUP DESTROY").key(&self.key).arg(&self.group)
    }

    fn decode(&self, value: Value) -> Result<bool, Error> {
        Ok(decode::count(&value)? > 0)
    }
}

/// `XGROUP CREATECONSUMER`: whether it is new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XGroupCreateConsumer {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// The consumer.
    pub consumer: ConsumerName,
}

impl Command for XGroupCreateConsumer {
    type Reply = bool;

    fn request(&self) -> Request {
        Request::new("XGROUP CREATECONSUMER").key(&self.key).arg(&self.group).arg(&self.consumer)
    }

    fn decode(&self, value: Value) -> Result<bool, Error> {
        Ok(decode::count(&value)? > 0)
    }
}

/// A read of the own pending list behind its end. It gives nothing and changes no entry, but shows, also before Redis 7.2,
/// where reads that give nothing do not count, that the consumer is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchConsumer {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// The consumer.
    pub consumer: ConsumerName,
}

impl Command for TouchConsumer {
    type Reply = ();

    fn request(&self) -> Request {
        // The greatest id itself stands for new entries.
        let end = EntryId::new(u64::MAX, u64::MAX - 1);
        let request = Request::new("XREADGROUP").arg("GROUP").arg(&self.group).arg(&self.consumer);
        request.arg("COUNT").int(1).arg("STREAMS").key(&self.key).id(end)
    }

    fn decode(&self, _: Value) -> Result<(), Error> {
        Ok(())
    }
}

/// `XGROUP DELCONSUMER`: the number of pending entries that were **destroyed** with it. Nobody gets them again: use
/// [`Fenced::remove_consumer`](crate::Fenced::remove_consumer), which keeps a consumer that holds any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XGroupDelConsumer {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// The consumer.
    pub consumer: ConsumerName,
}

impl Command for XGroupDelConsumer {
    type Reply = u64;

    fn request(&self) -> Request {
        Request::new("XGROUP DELCONSUMER").key(&self.key).arg(&self.group).arg(&self.consumer)
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

fn with_entries_read(request: Request, entries_read: Option<u64>) -> Request {
    match entries_read {
        Some(number) => request.arg("ENTRIESREAD").int(number),
        None => request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{consumer, group, id, key, text, wire, words};

    #[test]
    fn groups_encode_and_decode() {
        let mut create = XGroupCreate {
            key: key("s"),
            group: group("g"),
            start: "0".to_owned(),
            make_stream: false,
            entries_read: None,
        };
        assert_eq!(wire(&create), "*5\r\n$6\r\nXGROUP\r\n$6\r\nCREATE\r\n$1\r\ns\r\n$1\r\ng\r\n$1\r\n0\r\n");
        create.make_stream = true;
        create.entries_read = Some(7);
        assert_eq!(words(&create), "XGROUP CREATE s g 0 MKSTREAM ENTRIESREAD 7");
        create.decode(text("OK")).unwrap();
        assert!(create.decode(Value::Int(1)).is_err());

        let set = XGroupSetId { key: key("s"), group: group("g"), last_delivered: id(5, 1), entries_read: None };
        assert_eq!(words(&set), "XGROUP SETID s g 5-1");
        set.decode(text("OK")).unwrap();

        let destroy = XGroupDestroy { key: key("s"), group: group("g") };
        assert_eq!(words(&destroy), "XGROUP DESTROY s g");
        assert!(destroy.decode(Value::Int(1)).unwrap());
        assert!(!destroy.decode(Value::Int(0)).unwrap());
    }

    #[test]
    fn consumers_encode_and_decode() {
        let create = XGroupCreateConsumer { key: key("s"), group: group("g"), consumer: consumer("c") };
        assert_eq!(words(&create), "XGROUP CREATECONSUMER s g c");
        assert!(create.decode(Value::Int(1)).unwrap());
        let delete = XGroupDelConsumer { key: key("s"), group: group("g"), consumer: consumer("c") };
        assert_eq!(words(&delete), "XGROUP DELCONSUMER s g c");
        assert_eq!(delete.decode(Value::Int(3)).unwrap(), 3);
    }
}
