//! [`ConfigError`]: a setting that cannot work, refused at `build()`. [`RunError`]: why a consumer could not go on.

use std::time::Duration;

use stream_core::{NameError, PolicyError, StreamKey};

/// A setting that cannot work. The text says what, where and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name is empty.
    #[error("{0}")]
    Name(#[from] NameError),
    /// A duration or a limit of a policy is out of range.
    #[error("{0}")]
    Policy(#[from] PolicyError),
    /// A setting that has no default was not given.
    #[error("{setting} is missing: {remedy}")]
    Missing {
        /// The setting.
        setting: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A number or a duration is out of range.
    #[error("{setting} is {value}: {remedy}")]
    OutOfRange {
        /// The setting.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Two settings contradict each other.
    #[error("{first} and {second} contradict each other: {remedy}")]
    Conflict {
        /// One setting.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// What to do.
        remedy: &'static str,
    },
}

impl ConfigError {
    pub(crate) fn duration(setting: &'static str, value: Duration, remedy: &'static str) -> Self {
        Self::OutOfRange { setting, value: format!("{value:?}"), remedy }
    }
}

/// Why a consumer ended although nobody asked it to: something that trying again does not mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server refused for good: wrong type, no permission, wrong password. The cause is the source.
    #[error("cannot consume the stream {stream}")]
    Stream {
        /// The stream.
        stream: StreamKey,
        /// What the server said.
        source: stream_redis::Error,
    },
    /// The group does not exist any more, and the settings say that it is not to be made anew.
    #[error("the group of the stream {stream} is gone, and the consumer was told not to recreate it")]
    GroupLost {
        /// The stream.
        stream: StreamKey,
    },
    /// Entries were gone before they were read, or the stream was made anew, and the settings say that this is the end.
    #[error("the stream {stream} lost entries before they were read, and the consumer was told to end then")]
    EntriesMissing {
        /// The stream.
        stream: StreamKey,
    },
    /// A task of the consumer panicked: a bug of this library.
    #[error("a task of the consumer for the stream {stream} panicked, which is a bug of the library")]
    Panicked {
        /// The stream.
        stream: StreamKey,
    },
}

impl RunError {
    /// The stream that could not be consumed.
    pub fn stream(&self) -> &StreamKey {
        match self {
            Self::Stream { stream, .. }
            | Self::GroupLost { stream }
            | Self::EntriesMissing { stream }
            | Self::Panicked { stream } => stream,
        }
    }
}
