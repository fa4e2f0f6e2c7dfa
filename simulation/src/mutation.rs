//! [`Mutation`]: bugs put in on purpose, to see that the simulation finds them.
//!
//! All of them are made at the seam between the library and a server: what a process sends, or what it hears, is what a
//! library with that bug would send or make of it. The library itself is the same in every run.

use stream_core::EntryId;
use stream_redis::command::Script;
use stream_redis::{Request, ServerError, Value};

use crate::machine::Machine;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Entries are acknowledged as they are read, before their handlers run.
    AcknowledgeFirst,
    /// Leases are renewed by a plain `XCLAIM`, whoever owns the entries.
    RenewUnfenced,
    /// The search for abandoned entries begins at the start of the pending list with each page.
    CursorRestarts,
    /// Trimming takes whatever was delivered, pending or not.
    TrimDelivered,
    /// A group that was lost is made anew at the end of its stream.
    GroupAtEnd,
    /// An entry that is given up is acknowledged, and then written to the dead letters.
    LetterLast,
    /// Acknowledgements that got no answer are taken for done.
    AcknowledgementsDropped,
    /// What a cut reply had brought is not looked for in the own pending list.
    OwnPendingUnread,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AcknowledgeFirst,
        Self::RenewUnfenced,
        Self::CursorRestarts,
        Self::TrimDelivered,
        Self::GroupAtEnd,
        Self::LetterLast,
        Self::AcknowledgementsDropped,
        Self::OwnPendingUnread,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AcknowledgeFirst => "acknowledge-first",
            Self::RenewUnfenced => "renew-unfenced",
            Self::CursorRestarts => "cursor-restarts",
            Self::TrimDelivered => "trim-delivered",
            Self::GroupAtEnd => "group-at-end",
            Self::LetterLast => "letter-last",
            Self::AcknowledgementsDropped => "acknowledgements-dropped",
            Self::OwnPendingUnread => "own-pending-unread",
        }
    }

    /// What becomes of a request of `machine` on its way out; `None` for what is left as it is.
    pub(crate) fn of_request(self, machine: &Machine, request: &Request) -> Option<Changed> {
        let args: Vec<&[u8]> = request.args().collect();
        match (self, request.command()) {
            (Self::RenewUnfenced, "EVALSHA" | "EVAL") if script(&args) == Some("renew") => {
                let [_, _, _, key, group, consumer, ids @ ..] = &args[..] else { return None };
                let mut claim = build("XCLAIM", &[key, group, consumer, b"0"]);
                for id in ids {
                    claim.push(id);
                }
                claim.push("JUSTID");
                Some(Changed::Sent { request: claim, answer: Some(Value::Array(vec![Value::Array(Vec::new()); 3])) })
            }
            (Self::CursorRestarts, "XAUTOCLAIM") => Some(Changed::sent(replaced("XAUTOCLAIM", &args, 5, b"0-0"))),
            (Self::TrimDelivered, "XPENDING") if args.len() == 3 && machine.group.is_none() => {
                Some(Changed::Answered(Value::Array(vec![Value::Int(0), Value::Nil, Value::Nil, Value::Nil])))
            }
            (Self::GroupAtEnd, "XGROUP CREATE") if machine.knows_group() => {
                Some(Changed::sent(replaced("XGROUP", &args, 4, b"$")))
            }
            (Self::LetterLast, "EVALSHA" | "EVAL") if script(&args) == Some("dead_letter") => {
                let [_, _, _, key, dead, group, _, id, _, fields @ ..] = &args[..] else { return None };
                let mut add = build("XADD", &[dead, b"*"]);
                for field in fields {
                    add.push(field);
                }
                Some(Changed::Split { first: build("XACK", &[key, group, id]), then: add })
            }
            (Self::OwnPendingUnread, "XPENDING")
                if args.len() == 7 && machine.group.is_some() && args[4] == EntryId::MAX.to_string().as_bytes() =>
            {
                Some(Changed::Answered(Value::Array(Vec::new())))
            }
            _ => None,
        }
    }

    /// What is made of a request that got no answer; `None` for an error.
    pub(crate) fn of_silence(self, request: &Request) -> Option<Result<Value, ServerError>> {
        let args: Vec<&[u8]> = request.args().collect();
        match (self, request.command()) {
            (Self::AcknowledgementsDropped, "XACK") => {
                Some(Ok(Value::Int(i64::try_from(args.len()).unwrap_or(i64::MAX).saturating_sub(3))))
            }
            (Self::AcknowledgementsDropped, "EVALSHA" | "EVAL") if script(&args) == Some("acknowledge") => {
                Some(Ok(Value::Array(Vec::new())))
            }
            _ => None,
        }
    }
}

/// What a request became.
pub(crate) enum Changed {
    /// Another is sent, and `answer` stands for what it answers well.
    Sent { request: Request, answer: Option<Value> },
    /// Nothing is sent.
    Answered(Value),
    /// Two are sent, one after the other.
    Split { first: Request, then: Request },
}

impl Changed {
    fn sent(request: Request) -> Self {
        Self::Sent { request, answer: None }
    }
}

/// The name of the script that a request calls.
pub(crate) fn script(args: &[&[u8]]) -> Option<&'static str> {
    let (name, text) = (args.first()?, args.get(1)?);
    let script = if *name == b"EVALSHA" { Script::by_sha(text) } else { Script::by_source(text) };
    script.map(Script::name)
}

fn build(command: &'static str, args: &[&[u8]]) -> Request {
    let mut request = Request::new(command);
    for arg in args {
        request.push(arg);
    }
    request
}

/// The same arguments with another one at a place.
fn replaced(command: &'static str, args: &[&[u8]], place: usize, by: &[u8]) -> Request {
    let mut request = Request::new(command);
    for (at, arg) in args.iter().enumerate().skip(1) {
        request.push(if at == place { by } else { arg });
    }
    request
}
