//! [`Value`]: one reply of the server, RESP2 and RESP3 alike.

use bytes::Bytes;

use crate::ServerError;

/// One reply, or a part of one. Text is bytes; decoders accept the RESP2 and the RESP3 shape of the same reply.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Null, of either protocol.
    Nil,
    /// An integer.
    Int(i64),
    /// A string: bulk, simple or verbatim.
    Bulk(Bytes),
    /// An array, a set or a push.
    Array(Vec<Value>),
    /// A RESP3 map; a RESP2 server sends the same as a flat array.
    Map(Vec<(Value, Value)>),
    /// A RESP3 floating point number.
    Double(f64),
    /// A RESP3 boolean.
    Bool(bool),
    /// An error inside a reply, for example of one command of a transaction.
    Error(ServerError),
}

impl Value {
    /// A string reply, mostly for tests and models of a server.
    pub fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(Bytes::copy_from_slice(text.as_ref()))
    }

    /// The bytes of a string reply.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An integer, also one sent as text.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }
}
