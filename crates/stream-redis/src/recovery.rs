//! The recovery table: what an error means and what to do about it, by code and text, never by a client's opinion.
//!
//! Total on purpose: every kind has its row, and an unknown code keeps its text.

mod told;

use crate::{Error, ErrorKind, ServerError};
pub use told::Told;

/// What to do after an error.
///
/// | Errors | Recovery |
/// |---|---|
/// | `BUSYGROUP` | satisfied |
/// | `NOGROUP`, `no such key`, `XGROUP` without its key, `UNBLOCKED` as the stream went away | missing |
/// | `LOADING`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `MASTERDOWN`, `MISCONF`, `OOM`, `NOREPLICAS`, `CLIENT UNBLOCK`, a killed script | retry |
/// | the connection closed, timeouts, garbage, `max number of clients`, `READONLY`, `MOVED`, `ASK`, `UNBLOCKED` by a failover | reconnect |
/// | `WRONGTYPE`, `NOPERM`, `NOAUTH`, `WRONGPASS`, unknown commands and options, whatever else | fatal |
///
/// Two rows depend on what happened before, which only the caller knows: [`ErrorKind::Authentication`] after a good
/// session deserves one new connection, and so does what [`NodeDoubt`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recovery {
    /// What was wanted is so already; go on.
    Satisfied,
    /// A stream or group does not exist: a state, not a failure. Create it or wait for it.
    Missing,
    /// The server is busy with itself: keep the connection, back off, try again.
    Retry,
    /// The connection is gone or leads to a node that is no longer the one: open a new one, resolving anew.
    Reconnect,
    /// Trying again changes nothing; end with the error.
    Fatal,
}

impl Recovery {
    /// The row of `kind`.
    pub fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::GroupExists => Self::Satisfied,
            ErrorKind::Missing => Self::Missing,
            ErrorKind::Busy | ErrorKind::Unblocked => Self::Retry,
            ErrorKind::Io | ErrorKind::Timeout | ErrorKind::Protocol | ErrorKind::TooManyClients | ErrorKind::Moved => {
                Self::Reconnect
            }
            ErrorKind::Tls
            | ErrorKind::WrongType
            | ErrorKind::NoPermission
            | ErrorKind::Authentication
            | ErrorKind::Unsupported
            | ErrorKind::NoScript
            | ErrorKind::Refused
            | ErrorKind::Config
            | ErrorKind::Other => Self::Fatal,
        }
    }
}

/// So many doubtful answers in a row are a reason to look for another node.
const DOUBTFUL: u32 = 3;

/// Notices that a node which answers is perhaps no longer the one: a master that was cut off from its replicas
/// (`NOREPLICAS`), a node that was cut off from its cluster (`CLUSTERDOWN`), a replica that was cut off from its master
/// (`MASTERDOWN`). Each may pass, and then the connection is kept; but while it lasts, another node may have taken over,
/// and only who connects anew comes to that one.
#[derive(Debug, Clone, Default)]
pub struct NodeDoubt {
    in_a_row: u32,
}

impl NodeDoubt {
    /// What to do about `error`: [`Recovery::Reconnect`] for the third doubtful answer in a row, else its own row.
    pub fn recovery(&mut self, error: &Error) -> Recovery {
        if !matches!(error.code(), Some("NOREPLICAS" | "CLUSTERDOWN" | "MASTERDOWN")) {
            return error.recovery();
        }
        self.in_a_row += 1;
        if self.in_a_row < DOUBTFUL {
            return error.recovery();
        }
        self.in_a_row = 0;
        Recovery::Reconnect
    }

    /// Something succeeded there.
    pub fn reset(&mut self) {
        self.in_a_row = 0;
    }
}

/// The kind of an error reply.
pub(crate) fn classify(error: &ServerError) -> ErrorKind {
    let detail = error.detail.as_str();
    match error.code.as_str() {
        "BUSYGROUP" => ErrorKind::GroupExists,
        "NOGROUP" => ErrorKind::Missing,
        "UNBLOCKED" if detail.contains("stream key no longer exists") => ErrorKind::Missing,
        "UNBLOCKED" if detail.contains("via CLIENT UNBLOCK") => ErrorKind::Unblocked,
        "UNBLOCKED" | "READONLY" | "MOVED" | "ASK" => ErrorKind::Moved,
        "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "MISCONF" | "OOM" | "NOREPLICAS" => {
            ErrorKind::Busy
        }
        "WRONGTYPE" => ErrorKind::WrongType,
        "NOPERM" => ErrorKind::NoPermission,
        "NOAUTH" | "WRONGPASS" => ErrorKind::Authentication,
        "NOPROTO" => ErrorKind::Unsupported,
        "NOSCRIPT" => ErrorKind::NoScript,
        "CROSSSLOT" | "DENIED" | "EXECABORT" => ErrorKind::Refused,
        "ERR" => classify_err(detail),
        _ => ErrorKind::Other,
    }
}

/// `ERR` says nothing by itself; its texts do. They are the same from Redis 6.2 to 8.6 and on Valkey.
fn classify_err(detail: &str) -> ErrorKind {
    let starts = |prefix: &str| detail.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if starts("no such key") || starts("The XGROUP subcommand requires the key to exist") {
        ErrorKind::Missing
    } else if starts("max number of clients") {
        ErrorKind::TooManyClients
    } else if starts("unknown command")
        || starts("unknown redis command called from")
        || starts("unknown subcommand")
        || starts("syntax error")
    {
        ErrorKind::Unsupported
    } else if starts("ACL failure in script") || starts("The user executing the script can't") {
        ErrorKind::NoPermission
    } else if starts("AUTH ") || starts("Client sent AUTH") || starts("invalid password") {
        ErrorKind::Authentication
    } else if starts("Script killed by user") {
        ErrorKind::Busy
    } else {
        ErrorKind::Refused
    }
}

#[cfg(test)]
mod tests;
