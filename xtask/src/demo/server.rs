//! What the demo asks the server itself, past the library: the state of the group, and at the end all there is.

use std::collections::HashMap;

use stream_redis::Value;
use stream_testkit::{Cli, CliError};
use streamkeeper::{DeadLetter, Entry, EntryId};

use super::worker::{DEAD_LETTERS, GROUP, STREAM};
use crate::Failure;

/// Asks one server. Each question has a connection of its own: the server may die between two.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    address: String,
}

/// Where the group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) pending: u64,
    /// `None` where the server does not know, as Redis 6.2.
    pub(crate) lag: Option<u64>,
    pub(crate) last_delivered: EntryId,
    pub(crate) last_published: EntryId,
    pub(crate) dead_letters: u64,
}

/// What the server has in the end.
#[derive(Debug, Default)]
pub(crate) struct Final {
    /// All entries of the stream.
    pub(crate) entries: HashMap<EntryId, Entry>,
    pub(crate) letters: Vec<DeadLetter>,
    /// Dead letters that are none.
    pub(crate) bad_letters: Vec<String>,
    /// Consumers of the group and what they hold.
    pub(crate) consumers: Vec<(String, u64)>,
    /// What the group holds.
    pub(crate) pending: u64,
}

impl Asked {
    pub(crate) fn new(address: String) -> Self {
        Self { address }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn command(&self, command: &[&str]) -> Result<Value, CliError> {
        Cli::connect(&self.address, None).await?.command(command).await
    }

    /// `None` while the server is away, or there is no stream or group yet.
    pub(crate) async fn state(&self) -> Option<State> {
        let mut cli = Cli::connect(&self.address, None).await.ok()?;
        let groups = cli.command(&["XINFO", "GROUPS", STREAM]).await.ok()?;
        let stream = cli.command(&["XINFO", "STREAM", STREAM]).await.ok()?;
        let dead_letters = cli.command(&["XLEN", DEAD_LETTERS]).await.ok()?.as_int()?;
        let group = items(&groups).iter().find(|group| text(field(group, "name")) == GROUP)?;
        Some(State {
            pending: field(group, "pending")?.as_int()? as u64,
            lag: field(group, "lag").and_then(Value::as_int).map(|lag| lag as u64),
            last_delivered: EntryId::parse(field(group, "last-delivered-id")?.as_bytes()?).ok()?,
            last_published: EntryId::parse(field(&stream, "last-generated-id")?.as_bytes()?).ok()?,
            dead_letters: dead_letters as u64,
        })
    }

    /// Everything. To be asked when nobody changes it any more.
    pub(crate) async fn all(&self) -> Result<Final, Failure> {
        let mut cli = Cli::connect(&self.address, None).await?;
        let mut found = Final::default();
        for entry in range(&mut cli, STREAM).await? {
            found.entries.insert(entry.id(), entry);
        }
        for entry in range(&mut cli, DEAD_LETTERS).await? {
            match DeadLetter::from_entry(&entry) {
                Ok(letter) => found.letters.push(letter),
                Err(error) => found.bad_letters.push(error.to_string()),
            }
        }
        let consumers = cli.command(&["XINFO", "CONSUMERS", STREAM, GROUP]).await?;
        for consumer in items(&consumers) {
            let pending = field(consumer, "pending").and_then(Value::as_int).unwrap_or(-1);
            found.consumers.push((text(field(consumer, "name")), pending as u64));
        }
        let pending = cli.command(&["XPENDING", STREAM, GROUP]).await?;
        found.pending = items(&pending).first().and_then(Value::as_int).ok_or("XPENDING has no number")? as u64;
        Ok(found)
    }
}

async fn range(cli: &mut Cli, key: &str) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    let mut from = "-".to_owned();
    loop {
        let page = cli.command(&["XRANGE", key, &from, "+", "COUNT", "1000"]).await?;
        let Some(last) = items(&page).last() else { return Ok(found) };
        from = format!("({}", entry_of(last)?.id());
        for entry in items(&page) {
            found.push(entry_of(entry)?);
        }
    }
}

/// Decodes `[id, [name, value, ...]]`.
pub(crate) fn entry_of(value: &Value) -> Result<Entry, Failure> {
    let bad = "an entry of XRANGE is out of shape";
    let [id, fields] = items(value) else { return Err(bad.into()) };
    let id = EntryId::parse(id.as_bytes().ok_or(bad)?)?;
    let bytes: Option<Vec<&[u8]>> = items(fields).iter().map(Value::as_bytes).collect();
    Ok(Entry::new(id, bytes.ok_or(bad)?.chunks_exact(2).map(|pair| (pair[0], pair[1])))?)
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

/// A value of a map that came as a flat array.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    items(value).chunks_exact(2).find(|pair| pair[0].as_bytes() == Some(name.as_bytes())).map(|pair| &pair[1])
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_bytes).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}
