//! [`Error`]: what went wrong, at which command and key; and [`ErrorKind`], which callers match.
//!
//! An error never holds an argument of the command: those may be payloads or secrets.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use stream_core::StreamKey;

use crate::Recovery;

/// An error reply as the server sent it: `code` is its first word, `detail` the text after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {detail}")]
pub struct ServerError {
    /// The first word, for example `NOGROUP` or `ERR`.
    pub code: String,
    /// The rest.
    pub detail: String,
}

impl ServerError {
    /// Reads an error line, without the leading `-`.
    ///
    /// Two things are put right on the way. What a script raised looks the same from every version: Redis 6.2 hides the
    /// error of a command inside `ERR Error running script (call to f_…): @user_script:1: …`, later versions put the place
    /// behind it. And the arguments that `ERR unknown command` repeats are cut off: they may be payloads or passwords.
    ///
    /// ```
    /// use stream_redis::ServerError;
    /// let error = ServerError::parse("ERR Error running script (call to f_0632): @user_script:1: NOGROUP No such key 'k'");
    /// assert_eq!(error.to_string(), "NOGROUP No such key 'k' script: 0632, on @user_script:1.");
    /// ```
    pub fn parse(line: &str) -> Self {
        let line = line.trim_end();
        match unwrap_script(line) {
            Some(text) => Self::split(&text),
            None => Self::split(line),
        }
    }

    fn split(line: &str) -> Self {
        let (code, detail) = line.split_once(' ').unwrap_or((line, ""));
        let detail = detail.split(", with args beginning with").next().unwrap_or_default();
        Self { code: code.to_owned(), detail: detail.to_owned() }
    }
}

/// The error inside Redis 6.2's wrapper around what a script raised, in the form of later versions. What the scripting
/// layer finds itself repeats the place and may keep the dash of the wire: `@user_script: 1: -OOM …`; that is also what a
/// script gets from `redis.pcall` and may hand on.
fn unwrap_script(line: &str) -> Option<String> {
    let (text, place) = match line.strip_prefix("ERR Error running script (call to f_") {
        Some(rest) => {
            let (script, rest) = rest.split_once("): @user_script:")?;
            let (number, text) = rest.split_once(": ")?;
            (text, format!(" script: {script}, on @user_script:{number}."))
        }
        None => (line, String::new()),
    };
    let text = match text.strip_prefix("@user_script: ") {
        Some(again) => again.split_once(": ")?.1,
        None if place.is_empty() => return None,
        None => text,
    };
    let text = text.strip_prefix('-').unwrap_or(text);
    let code = text.split(' ').next().unwrap_or_default();
    let has_code = code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    Some(format!("{}{text}{place}", if has_code { "" } else { "ERR " }))
}

/// What kind of thing went wrong. [`Error::recovery`] says what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The connection failed: refused, reset, closed, name not resolved.
    Io,
    /// No answer before the deadline.
    Timeout,
    /// The peer sent something that is not RESP, or a reply of an unknown shape.
    Protocol,
    /// The TLS handshake failed: certificate, host name, or no TLS on the other side.
    Tls,
    /// The server has no room for another client.
    TooManyClients,
    /// The group exists already.
    GroupExists,
    /// The stream or the group does not exist (any more).
    Missing,
    /// The server is busy with itself: loading, a script, no memory, no disk, too few replicas, cluster down.
    Busy,
    /// A blocked command was ended by `CLIENT UNBLOCK`.
    Unblocked,
    /// This node does not serve writes, or this slot, any more.
    Moved,
    /// The key holds something that is not a stream.
    WrongType,
    /// The user may not run this command or touch this key, also from within a script.
    NoPermission,
    /// No or wrong user name or password. Final when a process starts. A caller who was already authenticated once may
    /// try a new connection first: passwords are rotated, and a server that restarts may load its users late.
    Authentication,
    /// The server does not know the command, or an option of it.
    Unsupported,
    /// The script is not cached on the server.
    NoScript,
    /// The server refused the command as it is: bad id, wrong number of arguments, keys in different slots.
    Refused,
    /// A setting is wrong: a URL, a file, a value out of range.
    Config,
    /// An error reply that no rule names.
    Other,
}

/// Why a command, a read or a connection failed.
///
/// [`kind`](Self::kind) is for matching, [`recovery`](Self::recovery) says what to do. The cause, where there is one, is
/// in [`source`](StdError::source) and is not repeated in the text.
pub struct Error(Box<Repr>);

struct Repr {
    kind: ErrorKind,
    message: String,
    command: Option<&'static str>,
    key: Option<StreamKey>,
    server: Option<ServerError>,
    attempts: u32,
    elapsed: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with a message: lower case, no full stop, what and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Repr {
            kind,
            message: message.into(),
            command: None,
            key: None,
            server: None,
            attempts: 1,
            elapsed: None,
            source: None,
        }))
    }

    /// Classifies an error reply by its code and text, as [`Recovery`] describes.
    pub fn from_server(error: ServerError) -> Self {
        let mut this = Self::new(crate::recovery::classify(&error), error.to_string());
        this.0.server = Some(error);
        this
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds what to do about it to the text, in parentheses.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        self.0.message = format!("{} ({hint})", self.0.message);
        self
    }

    /// Names the command and the key it was about.
    #[must_use]
    pub fn at(mut self, command: &'static str, key: Option<&StreamKey>) -> Self {
        self.0.command = Some(command);
        self.0.key = key.cloned();
        self
    }

    /// Tells how often and how long it was tried.
    #[must_use]
    pub fn after(mut self, attempts: u32, elapsed: Duration) -> Self {
        self.0.attempts = attempts;
        self.0.elapsed = Some(elapsed);
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What to do about it.
    pub fn recovery(&self) -> Recovery {
        Recovery::of(self.0.kind)
    }

    /// Whether it may be over by itself: the server is busy, or the connection is gone.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.recovery(), Recovery::Reconnect | Recovery::Retry)
    }

    /// The command that failed, if it was one.
    pub fn command(&self) -> Option<&'static str> {
        self.0.command
    }

    /// The stream the command was about.
    pub fn key(&self) -> Option<&StreamKey> {
        self.0.key.as_ref()
    }

    /// The error reply, if the server sent one.
    pub fn server(&self) -> Option<&ServerError> {
        self.0.server.as_ref()
    }

    /// The code of the error reply, for example `NOGROUP`.
    pub fn code(&self) -> Option<&str> {
        self.server().map(|error| error.code.as_str())
    }

    /// How often it was tried.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// How long it was tried, where that was measured.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.elapsed
    }
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Self {
        Self::from_server(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = &self.0;
        if let Some(command) = repr.command {
            write!(f, "{command}")?;
            if let Some(key) = &repr.key {
                write!(f, " {key}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&repr.message)?;
        if repr.attempts > 1 {
            write!(f, " (after {} attempts", repr.attempts)?;
            if let Some(elapsed) = repr.elapsed {
                write!(f, " in {elapsed:.1?}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("command", &self.0.command)
            .field("key", &self.0.key)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
