//! Checks that the builders of both kinds of consumers make, and the name that a consumer has when none is given.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use stream_core::{ConsumerName, NameError, StreamKey};

use crate::error::ConfigError;

pub(crate) fn at_least_one(setting: &'static str, value: usize, remedy: &'static str) -> Result<(), ConfigError> {
    if value == 0 { Err(out_of_range(setting, value, remedy)) } else { Ok(()) }
}

pub(crate) fn out_of_range(setting: &'static str, value: impl fmt::Display, remedy: &'static str) -> ConfigError {
    ConfigError::OutOfRange { setting, value: value.to_string(), remedy }
}

/// At least one stream, and each once.
pub(crate) fn check_streams(streams: &[StreamKey]) -> Result<(), ConfigError> {
    if streams.is_empty() {
        let remedy = "name the stream to read with `.stream(..)`";
        return Err(ConfigError::Missing { setting: "stream", remedy });
    }
    let mut seen = HashSet::with_capacity(streams.len());
    match streams.iter().find(|key| !seen.insert(*key)) {
        Some(twice) => Err(out_of_range("stream", twice, "it is named twice; name each stream once")),
        None => Ok(()),
    }
}

pub(crate) fn check_block(block: Duration) -> Result<(), ConfigError> {
    if block < Duration::from_millis(1) || block > Duration::from_mins(1) {
        let remedy = "from 1 ms to 60 s: zero would wait for ever, and a long wait hides a deleted stream";
        return Err(ConfigError::duration("block", block, remedy));
    }
    Ok(())
}

/// Host, process id and a random part: unique for each process, also when process ids are used again.
pub(crate) fn default_name() -> Result<ConsumerName, NameError> {
    let host = hostname::get().ok().and_then(|host| host.into_string().ok()).filter(|host| !host.is_empty());
    let host = host.as_deref().unwrap_or("host");
    ConsumerName::new(format!("{host}-{}-{:08x}", std::process::id(), fastrand::u32(..)))
}
