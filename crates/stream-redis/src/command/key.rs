//! Commands about keys and the server itself: `EXISTS`, `TYPE`, `PING`, `TIME`.

use std::time::Duration;

use stream_core::StreamKey;

use super::{Command, decode};
use crate::{Error, Request, Value};

/// `EXISTS`: whether the key holds anything. Tells a missing stream from a missing group after `NOGROUP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exists {
    /// The key.
    pub key: StreamKey,
}

impl Command for Exists {
    type Reply = bool;

    fn request(&self) -> Request {
        Request::new("EXISTS").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<bool, Error> {
        Ok(decode::count(&value)? > 0)
    }
}

/// `TYPE`: what the key holds, for example `stream`; `None` where there is nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyType {
    /// The key.
    pub key: StreamKey,
}

impl Command for KeyType {
    type Reply = Option<String>;

    fn request(&self) -> Request {
        Request::new("TYPE").key(&self.key)
    }

    fn decode(&self, value: Value) -> Result<Option<String>, Error> {
        match value.as_bytes() {
            Some(b"none") => Ok(None),
            Some(name) => Ok(Some(String::from_utf8_lossy(name).into_owned())),
            None => Err(decode::unexpected("the type of a key", &value)),
        }
    }
}

/// `PING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ping;

impl Command for Ping {
    type Reply = ();

    fn request(&self) -> Request {
        Request::new("PING")
    }

    fn decode(&self, value: Value) -> Result<(), Error> {
        match value.as_bytes() {
            Some(b"PONG") => Ok(()),
            _ => Err(decode::unexpected("PONG", &value)),
        }
    }
}

/// `TIME`: the server's clock, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time;

impl Command for Time {
    type Reply = Duration;

    fn request(&self) -> Request {
        Request::new("TIME")
    }

    fn decode(&self, value: Value) -> Result<Duration, Error> {
        match &value {
            Value::Array(parts) if parts.len() == 2 => {
                let (seconds, micros) = (decode::count(&parts[0])?, decode::count(&parts[1])?);
                Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
            }
            value => Err(decode::unexpected("seconds and microseconds", value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{key, list, text, wire, words};

    #[test]
    fn keys_encode_and_decode() {
        let exists = Exists { key: key("s") };
        assert_eq!(wire(&exists), "*2\r\n$6\r\nEXISTS\r\n$1\r\ns\r\n");
        assert!(exists.decode(Value::Int(1)).unwrap());
        assert!(!exists.decode(Value::Int(0)).unwrap());
        let kind = KeyType { key: key("s") };
        assert_eq!(words(&kind), "TYPE s");
        assert_eq!(kind.decode(text("stream")).unwrap().as_deref(), Some("stream"));
        assert_eq!(kind.decode(text("none")).unwrap(), None);
    }

    #[test]
    fn the_server_encodes_and_decodes() {
        assert_eq!(wire(&Ping), "*1\r\n$4\r\nPING\r\n");
        assert!(Ping.decode(text("PONG")).is_ok());
        assert!(Ping.decode(text("OK")).is_err());
        assert_eq!(words(&Time), "TIME");
        let expected = Duration::new(1_700_000_000, 5_000);
        assert_eq!(Time.decode(list([text("1700000000"), text("5")])).unwrap(), expected);
        assert!(Time.decode(list([text("1")])).is_err());
    }
}
