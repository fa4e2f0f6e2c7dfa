//! The names of things on the server, as types of their own so that a group can never be passed for a stream.
//!
//! All are bytes on the wire and may hold anything but nothing: an empty name is refused when it is made.

use std::fmt;
use std::sync::Arc;

/// A name was empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} is empty: give it at least one byte")]
pub struct NameError {
    what: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<[u8]>);

        impl $name {
            /// Makes the name from text or bytes.
            ///
            /// # Errors
            /// [`NameError`] when it is empty.
            pub fn new(name: impl AsRef<[u8]>) -> Result<Self, NameError> {
                match name.as_ref() {
                    [] => Err(NameError { what: $what }),
                    name => Ok(Self(name.into())),
                }
            }

            /// The bytes as they go over the wire.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&String::from_utf8_lossy(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", String::from_utf8_lossy(&self.0))
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;

            fn try_from(name: &str) -> Result<Self, Self::Error> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, Self::Error> {
                Self::new(name)
            }
        }
    };
}

name!(
    /// The key of a stream.
    StreamKey,
    "stream key"
);
name!(
    /// The name of a consumer group; unique within its stream.
    GroupName,
    "group name"
);
name!(
    /// The name of one consumer within a group. Two live processes must not share one: they would take each other's
    /// entries for their own.
    ConsumerName,
    "consumer name"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_refused_and_named() {
        assert_eq!(StreamKey::new("").unwrap_err().to_string(), "the stream key is empty: give it at least one byte");
        assert!(GroupName::new(b"").is_err());
        assert!(ConsumerName::try_from("a").is_ok());
    }
}
