//! The few commands about hashes and sets that dead letters in Prefect's layout need.

use bytes::Bytes;
use stream_core::StreamKey;

use super::{Command, decode};
use crate::{Error, Request, Value};

/// `HGETALL`: names and values; none where the key is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HGetAll {
    /// The hash.
    pub key: StreamKey,
}

impl Command for HGetAll {
    type Reply = Vec<(Bytes, Bytes)>;

    fn request(&self) -> Request {
        Request::new("HGETALL").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<Self::Reply, Error> {
        let flat = match value {
            Value::Map(pairs) => pairs.into_iter().flat_map(|(name, value)| [name, value]).collect(),
            value => decode::array(value)?,
        };
        let mut parts = flat.into_iter().map(text);
        let mut fields = Vec::with_capacity(parts.len() / 2);
        while let Some(name) = parts.next() {
            let value = parts.next().ok_or_else(|| decode::unexpected("a value for each name", &Value::Nil))?;
            fields.push((name?, value?));
        }
        Ok(fields)
    }
}

/// `HGET`: the value of one field, if it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HGet {
    /// The hash.
    pub key: StreamKey,
    /// The field.
    pub field: &'static str,
}

impl Command for HGet {
    type Reply = Option<Bytes>;

    fn request(&self) -> Request {
        Request::new("HGET").key(&self.key).arg(self.field)
    }

    fn decode(&self, value: Value) -> Result<Option<Bytes>, Error> {
        if value == Value::Nil { Ok(None) } else { text(value).map(Some) }
    }
}

/// `SSCAN`: some members, and the cursor for more; at the cursor `0` the scan begins, and with it ends. Each member that is
/// there all the while comes at least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SScan {
    /// The set.
    pub key: StreamKey,
    /// Where to go on.
    pub cursor: Bytes,
    /// About how many; small sets come whole.
    pub count: usize,
}

impl Command for SScan {
    type Reply = (Bytes, Vec<Bytes>);

    fn request(&self) -> Request {
        Request::new("SSCAN").key(&self.key).arg(&self.cursor).arg("COUNT").int(self.count)
    }

    fn decode(&self, value: Value) -> Result<Self::Reply, Error> {
        let parts: Result<[Value; 2], _> = decode::array(value)?.try_into();
        let [cursor, members] =
            parts.map_err(|other| decode::unexpected("a cursor and members", &Value::Array(other)))?;
        let members = decode::array(members)?.into_iter().map(text).collect::<Result<_, _>>()?;
        Ok((text(cursor)?, members))
    }
}

/// `SCARD`: the number of members; 0 where the set is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SCard {
    /// The set.
    pub key: StreamKey,
}

impl Command for SCard {
    type Reply = u64;

    fn request(&self) -> Request {
        Request::new("SCARD").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

/// `SISMEMBER`: whether the set has this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SIsMember {
    /// The set.
    pub key: StreamKey,
    /// The member.
    pub member: Bytes,
}

impl Command for SIsMember {
    type Reply = bool;

    fn request(&self) -> Request {
        Request::new("SISMEMBER").key(&self.key).arg(&self.member)
    }

    fn decode(&self, value: Value) -> Result<bool, Error> {
        Ok(decode::count(&value)? > 0)
    }
}

/// `SADD`: the number of members that were not there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SAdd {
    /// The set.
    pub key: StreamKey,
    /// At least one member.
    pub members: Vec<Bytes>,
}

impl Command for SAdd {
    type Reply = u64;

    fn request(&self) -> Request {
        self.members.iter().fold(Request::new("SADD").key(&self.key), Request::arg)
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

/// `SREM`: the number of members that were removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SRem {
    /// The set.
    pub key: StreamKey,
    /// At least one member.
    pub members: Vec<Bytes>,
}

impl Command for SRem {
    type Reply = u64;

    fn request(&self) -> Request {
        self.members.iter().fold(Request::new("SREM").key(&self.key), Request::arg)
    }

    fn decode(&self, value: Value) -> Result<u64, Error> {
        decode::count(&value)
    }
}

/// `DEL`: whether the key was there. One key for each command, since they may lie in different slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Del {
    /// The key.
    pub key: StreamKey,
}

impl Command for Del {
    type Reply = bool;

    fn request(&self) -> Request {
        Request::new("DEL").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<bool, Error> {
        Ok(decode::count(&value)? > 0)
    }
}

fn text(value: Value) -> Result<Bytes, Error> {
    match value {
        Value::Bulk(text) => Ok(text),
        value => Err(decode::unexpected("text", &value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{key, list, text as bulk, words};

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn hashes_encode_and_decode_in_both_shapes() {
        let all = HGetAll { key: key("h") };
        assert_eq!(words(&all), "HGETALL h");
        let expected = [(bytes("a"), bytes("1")), (bytes("b"), bytes("2"))];
        assert_eq!(all.decode(list([bulk("a"), bulk("1"), bulk("b"), bulk("2")])).unwrap(), expected);
        let map = Value::Map(vec![(bulk("a"), bulk("1")), (bulk("b"), bulk("2"))]);
        assert_eq!(all.decode(map).unwrap(), expected);
        assert!(all.decode(list([bulk("a")])).is_err());
        assert!(all.decode(Value::Int(1)).is_err());
        let one = HGet { key: key("h"), field: "at" };
        assert_eq!(words(&one), "HGET h at");
        assert_eq!(one.decode(bulk("7")).unwrap(), Some(bytes("7")));
        assert_eq!(one.decode(Value::Nil).unwrap(), None);
        let delete = Del { key: key("h") };
        assert_eq!(words(&delete), "DEL h");
        assert!(delete.decode(Value::Int(1)).unwrap());
    }

    #[test]
    fn sets_encode_and_decode() {
        let scan = SScan { key: key("s"), cursor: bytes("0"), count: 10 };
        assert_eq!(words(&scan), "SSCAN s 0 COUNT 10");
        let reply = list([bulk("17"), list([bulk("a"), bulk("b")])]);
        assert_eq!(scan.decode(reply).unwrap(), (bytes("17"), vec![bytes("a"), bytes("b")]));
        assert!(scan.decode(list([bulk("17")])).is_err());
        let count = SCard { key: key("s") };
        assert_eq!((words(&count), count.decode(Value::Int(3)).unwrap()), ("SCARD s".to_owned(), 3));
        let member = SIsMember { key: key("s"), member: bytes("a") };
        assert_eq!(words(&member), "SISMEMBER s a");
        assert!(!member.decode(Value::Int(0)).unwrap());
        let add = SAdd { key: key("s"), members: vec![bytes("a"), bytes("b")] };
        assert_eq!((words(&add), add.decode(Value::Int(1)).unwrap()), ("SADD s a b".to_owned(), 1));
        let remove = SRem { key: key("s"), members: vec![bytes("a"), bytes("b")] };
        assert_eq!((words(&remove), remove.decode(Value::Int(2)).unwrap()), ("SREM s a b".to_owned(), 2));
    }
}
