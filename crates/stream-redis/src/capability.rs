//! [`Capabilities`]: what a server can do beyond Redis 6.2 without the extras, found out by asking it.
//!
//! Versions lie (Valkey reports Redis 7.2.4 for ever, proxies say anything), so every answer comes from a command that was
//! tried. What must stay true: no probe changes anything, whatever the key holds; each was run on a missing key, a stream
//! and a string on every server of the matrix.

use std::fmt;

use stream_core::StreamKey;

use crate::{Connection, Error, ErrorKind, Recovery, Request, ServerError, Value};

/// Something that not every server can do, or not for every user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// `XAUTOCLAIM` (Redis 6.2).
    AutoClaim,
    /// `XAUTOCLAIM` names deleted entries and takes them off the pending list (Redis 7.0). Without it, both are up to us.
    DeletedIds,
    /// `EVAL` is allowed.
    Scripts,
    /// `XACKDEL` (Redis 8.2, not Valkey).
    AckDel,
    /// `XTRIM … ACKED`: trimming that spares what a group still needs (Redis 8.2, not Valkey).
    AckedTrim,
    /// `XREADGROUP … CLAIM`: one read for idle and new entries (Redis 8.4, not Valkey).
    ReadClaim,
    /// `XADD … IDMP`: an entry that is added twice is there once (Redis 8.6, not Valkey).
    Idempotent,
    /// `XNACK` (Redis 8.8, not Valkey).
    Nack,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AutoClaim,
        Self::DeletedIds,
        Self::Scripts,
        Self::AckDel,
        Self::AckedTrim,
        Self::ReadClaim,
        Self::Idempotent,
        Self::Nack,
    ];

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// What one server can do for one user. Holds for one connection: after a failover the next node may be another version.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Asks for everything, in one round trip (two where permissions hide something). `stream` is the key the probes name,
    /// so that permissions and cluster slots are those of the stream they are for; it is not changed.
    ///
    /// # Errors
    /// When the connection fails, or the server is busy or no longer the right one: ask again later, on a new connection.
    /// A missing permission is no error, it is a missing capability.
    pub async fn probe(connection: &dyn Connection, stream: &StreamKey) -> Result<Self, Error> {
        Self::probe_for(connection, stream, &Capability::ALL).await
    }

    /// Like [`probe`](Self::probe), for those who need only some; the others count as missing.
    ///
    /// # Errors
    /// Those of [`probe`](Self::probe).
    pub async fn probe_for(
        connection: &dyn Connection,
        stream: &StreamKey,
        wanted: &[Capability],
    ) -> Result<Self, Error> {
        let mut probe = Probe::new(stream, wanted);
        while !probe.requests().is_empty() {
            let replies = connection.send(probe.requests()).await?;
            probe.answered(&replies)?;
        }
        Ok(probe.found())
    }

    /// Whether the server can do this.
    pub fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// The same and `capability`.
    #[must_use]
    pub fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Capability::ALL.iter().filter(|capability| self.has(**capability))).finish()
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        capabilities.into_iter().fold(Self::default(), Self::with)
    }
}

/// The questions, and what the answers so far came to; for those who ask over a connection of their own.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    wanted: &'a [Capability],
    /// To be asked next; nothing when all is answered.
    requests: Vec<Request>,
    /// What permissions hide; once it is known, it is what was asked for last.
    hidden: Option<Vec<Capability>>,
    found: Capabilities,
}

impl<'a> Probe<'a> {
    pub(crate) fn new(stream: &StreamKey, wanted: &'a [Capability]) -> Self {
        let requests = wanted.iter().map(|wanted| probe(*wanted, stream)).collect();
        Self { wanted, requests, hidden: None, found: Capabilities::default() }
    }

    pub(crate) fn requests(&self) -> &[Request] {
        &self.requests
    }

    pub(crate) fn answered(&mut self, replies: &[Result<Value, ServerError>]) -> Result<(), Error> {
        let requests = std::mem::take(&mut self.requests);
        if let Some(hidden) = self.hidden.take() {
            // Those who may not ask, and servers that cannot be asked, have what is hidden counted as missing.
            if let [Ok(docs)] = replies {
                self.found = hidden.into_iter().filter(|it| documented(*it, docs)).fold(self.found, Capabilities::with);
            }
            return Ok(());
        }
        let mut hidden = Vec::new();
        for ((wanted, request), reply) in self.wanted.iter().zip(&requests).zip(replies) {
            match judge(*wanted, reply) {
                Verdict::Yes => self.found = self.found.with(*wanted),
                Verdict::No => {}
                Verdict::Hidden => hidden.push(*wanted),
                Verdict::NotNow(error) => {
                    return Err(Error::from_server(error).at(request.command(), request.stream()));
                }
            }
        }
        if !hidden.is_empty() {
            self.requests.push(Request::new("COMMAND DOCS").arg("XADD").arg("XTRIM").arg("XAUTOCLAIM"));
            self.hidden = Some(hidden);
        }
        Ok(())
    }

    pub(crate) fn found(&self) -> Capabilities {
        self.found
    }
}

/// A group and consumer that nobody has: every probe ends at it.
const NOBODY: &str = "streamkeeper-probe";

/// A command that succeeds or fails at something else where the capability is there, and changes nothing either way. The
/// two `XADD`s lack the value of their field, which is looked at after their options and their id.
fn probe(wanted: Capability, stream: &StreamKey) -> Request {
    match wanted {
        Capability::AutoClaim => {
            Request::new("XAUTOCLAIM").key(stream).arg(NOBODY).arg(NOBODY).arg("0").arg("0-0").arg("COUNT").arg("1")
        }
        // Came with the same version as the list of deleted ids, and can be seen without a group.
        Capability::DeletedIds => Request::new("XADD").key(stream).arg("NOMKSTREAM").arg("1-*").arg("field"),
        Capability::Scripts => Request::new("EVAL").arg("return 1").arg("0"),
        Capability::AckDel => Request::new("XACKDEL").key(stream).arg(NOBODY).arg("IDS").arg("1").arg("0-1"),
        // Every id is at least 0, so nothing is trimmed.
        Capability::AckedTrim => Request::new("XTRIM").key(stream).arg("MINID").arg("0").arg("ACKED"),
        Capability::ReadClaim => Request::new("XREADGROUP")
            .arg("GROUP")
            .arg(NOBODY)
            .arg(NOBODY)
            .arg("COUNT")
            .arg("1")
            .arg("CLAIM")
            .arg("0")
            .arg("STREAMS")
            .key(stream)
            .arg(">"),
        Capability::Idempotent => {
            Request::new("XADD").key(stream).arg("NOMKSTREAM").arg("IDMP").arg(NOBODY).arg("1").arg("*").arg("field")
        }
        Capability::Nack => Request::new("XNACK").key(stream).arg(NOBODY).arg("FAIL").arg("IDS").arg("1").arg("0-1"),
    }
}

enum Verdict {
    Yes,
    No,
    /// The probe was stopped before its options were looked at, for reasons that say nothing about other commands.
    Hidden,
    /// The server is in no state to be asked.
    NotNow(ServerError),
}

fn judge(wanted: Capability, reply: &Result<Value, ServerError>) -> Verdict {
    let Err(error) = reply else { return Verdict::Yes };
    let kind = crate::recovery::classify(error);
    match (kind, wanted) {
        // The memory or the disk is full, perhaps for days: no reason to go without an answer.
        (ErrorKind::Busy, _) if ["OOM", "MISCONF", "NOREPLICAS"].contains(&error.code.as_str()) => Verdict::Hidden,
        _ if matches!(Recovery::of(kind), Recovery::Retry | Recovery::Reconnect) => Verdict::NotNow(error.clone()),
        // Who may not add entries may still claim them.
        (ErrorKind::NoPermission, Capability::DeletedIds) => Verdict::Hidden,
        (ErrorKind::NoPermission | ErrorKind::Unsupported, _) | (_, Capability::Scripts) => Verdict::No,
        (_, Capability::Idempotent | Capability::DeletedIds) => {
            if error.detail.starts_with("wrong number of arguments") { Verdict::Yes } else { Verdict::No }
        }
        _ => Verdict::Yes,
    }
}

/// What the server's own documentation of its commands says. The command itself came with the list of deleted ids.
fn documented(wanted: Capability, docs: &Value) -> bool {
    let of = |command: &str| -> Option<&Value> {
        let is = |name: &Value| name.as_bytes().is_some_and(|name| name.eq_ignore_ascii_case(command.as_bytes()));
        match docs {
            Value::Map(pairs) => pairs.iter().find(|(name, _)| is(name)).map(|(_, docs)| docs),
            Value::Array(items) => items.chunks_exact(2).find(|pair| is(&pair[0])).map(|pair| &pair[1]),
            _ => None,
        }
    };
    match wanted {
        Capability::AutoClaim | Capability::DeletedIds => of("xautoclaim").is_some(),
        Capability::AckedTrim => of("xtrim").is_some_and(|docs| mentions(docs, b"ACKED")),
        Capability::Idempotent => of("xadd").is_some_and(|docs| mentions(docs, b"IDMP")),
        _ => false,
    }
}

fn mentions(docs: &Value, token: &[u8]) -> bool {
    match docs {
        Value::Bulk(text) => text == token,
        Value::Array(items) => items.iter().any(|item| mentions(item, token)),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| mentions(value, token)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
