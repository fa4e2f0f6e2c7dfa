//! What a server is asked directly, past the library: the state of a group, and at the end all there is.

use std::collections::HashMap;

use stream_redis::Value;
use stream_testkit::{Cli, CliError};
use streamkeeper::{DeadLetter, Entry, EntryId};

use crate::Failure;

/// Which stream and group are asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) stream: &'static str,
    pub(crate) group: &'static str,
    pub(crate) dead_letters: &'static str,
}

/// Asks one server. Each question has a connection of its own: the server may die between two.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    address: String,
    names: Names,
}

/// Where the group stands, all at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) pending: u64,
    pub(crate) oldest_pending: Option<EntryId>,
    /// `None` where the server does not know, as Redis 6.2.
    pub(crate) lag: Option<u64>,
    pub(crate) last_delivered: EntryId,
    pub(crate) last_published: EntryId,
    /// `None` where the stream is empty.
    pub(crate) first: Option<EntryId>,
    pub(crate) dead_letters: u64,
}

impl State {
    /// Nothing is left to deliver, and nothing to finish: what waits for another attempt is pending.
    pub(crate) fn is_settled(&self) -> bool {
        self.pending == 0 && self.last_delivered == self.last_published
    }
}

/// What the server has in the end.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// All entries of the stream.
    pub(crate) entries: HashMap<EntryId, Entry>,
    pub(crate) letters: Vec<DeadLetter>,
    /// Dead letters that are none.
    pub(crate) bad_letters: Vec<String>,
    /// What the group holds.
    pub(crate) pending: Vec<EntryId>,
}

impl Asked {
    pub(crate) fn new(address: String, names: Names) -> Self {
        Self { address, names }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn command(&self, command: &[&str]) -> Result<Value, CliError> {
        Cli::connect(&self.address, None).await?.command(command).await
    }

    /// `None` while the server is away, is a replica or does not serve the stream, or there is no stream or group yet.
    pub(crate) async fn state(&self) -> Option<State> {
        let Names { stream, group, dead_letters } = self.names;
        let mut cli = Cli::connect(&self.address, None).await.ok()?;
        let role = cli.command(&["ROLE"]).await.ok()?;
        if items(&role).first()?.as_bytes()? != b"master" {
            return None;
        }
        cli.command(&["MULTI"]).await.ok()?;
        let questions: [&[&str]; 4] = [
            &["XINFO", "GROUPS", stream],
            &["XINFO", "STREAM", stream],
            &["XPENDING", stream, group],
            &["XLEN", dead_letters],
        ];
        for question in questions {
            cli.command(question).await.ok()?;
        }
        let answers = cli.command(&["EXEC"]).await.ok()?;
        let [groups, info, pending, dead_letters] = items(&answers) else { return None };
        let group = items(groups).iter().find(|one| text(field(one, "name")) == group)?;
        let id = |value: &Value| EntryId::parse(value.as_bytes()?).ok();
        Some(State {
            pending: field(group, "pending")?.as_int()? as u64,
            oldest_pending: items(pending).get(1).and_then(id),
            lag: field(group, "lag").and_then(Value::as_int).map(|lag| lag as u64),
            last_delivered: id(field(group, "last-delivered-id")?)?,
            last_published: id(field(info, "last-generated-id")?)?,
            first: field(info, "first-entry").and_then(|entry| id(items(entry).first()?)),
            dead_letters: dead_letters.as_int()? as u64,
        })
    }

    /// Everything. To be asked when nobody changes it any more.
    pub(crate) async fn all(&self) -> Result<Found, Failure> {
        let Names { stream, group, dead_letters } = self.names;
        let mut cli = Cli::connect(&self.address, None).await?;
        let mut found = Found::default();
        for entry in range(&mut cli, stream).await? {
            found.entries.insert(entry.id(), entry);
        }
        for entry in range(&mut cli, dead_letters).await? {
            match DeadLetter::from_entry(&entry) {
                Ok(letter) => found.letters.push(letter),
                Err(error) => found.bad_letters.push(error.to_string()),
            }
        }
        let pending = cli.command(&["XPENDING", stream, group, "-", "+", "1000000"]).await?;
        for line in items(&pending) {
            let id = items(line).first().and_then(Value::as_bytes).ok_or("XPENDING is out of shape")?;
            found.pending.push(EntryId::parse(id)?);
        }
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

pub(crate) fn items(value: &Value) -> &[Value] {
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
