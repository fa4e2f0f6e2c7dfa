//! The greeting of a new connection: protocol, authentication, name, database; and what its refusals mean.
//!
//! What must stay true: one round trip where the server has `HELLO`, two where it does not; the server's own words in
//! every refusal; no byte read beyond the replies.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::options::{Address, ConnectOptions, Protocol};
use crate::{Error, ErrorKind, Request, ServerError, Value};

pub(crate) mod reply;

use reply::NotResp;

/// Replies to a greeting take some hundred bytes; more is not a greeting.
const LARGEST: usize = 64 * 1024;
/// The slots of a cluster of many hundred nodes take some hundred kilobytes.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// What the server says it is. A hint only: Valkey calls itself Redis 7.2.4 in some places, and proxies say anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// `redis` or `valkey`; unknown over RESP2.
    pub(crate) name: Option<String>,
    /// For example `7.0.15`; unknown over RESP2.
    pub(crate) version: Option<String>,
}

/// Greets the server on `stream`.
pub(crate) async fn greet<S>(stream: &mut S, options: &ConnectOptions) -> Result<(Protocol, ServerIdentity), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if options.protocol() != Some(Protocol::Resp2) {
        let mut requests = vec![hello(options)];
        requests.extend(select(options));
        let mut wire = Wire { stream: &mut *stream, options, buffer: Vec::new(), largest: LARGEST };
        let mut replies = wire.exchange(&requests).await?.into_iter();
        match replies.next() {
            Some(Value::Error(error)) if !can_fall_back(&error, options) => {
                return Err(refusal(error, "HELLO", options));
            }
            Some(Value::Error(error)) if options.protocol() == Some(Protocol::Resp3) => {
                let message = "the server does not speak RESP3: leave the protocol out to fall back to RESP2";
                return Err(Error::new(ErrorKind::Unsupported, message).at("HELLO", None).with_source(error));
            }
            Some(Value::Error(_)) | None => {}
            Some(reply) => {
                if let Some(Value::Error(error)) = replies.next() {
                    return Err(refusal(error, "SELECT", options));
                }
                return Ok(identify(&reply));
            }
        }
    }
    let requests: Vec<Request> =
        [auth(options), set_name(options), select(options), Some(Request::new("PING"))].into_iter().flatten().collect();
    let mut wire = Wire { stream, options, buffer: Vec::new(), largest: LARGEST };
    for (request, reply) in requests.iter().zip(wire.exchange(&requests).await?) {
        if let Value::Error(error) = reply
            && matters(request.command(), &error)
        {
            return Err(refusal(error, request.command(), options));
        }
    }
    Ok((Protocol::Resp2, ServerIdentity::default()))
}

/// Asks the server on `stream`, which is greeted, a few things about itself before the stream goes to its use. Error
/// replies are in their places.
pub(crate) async fn ask<S>(stream: &mut S, options: &ConnectOptions, requests: &[Request]) -> Result<Vec<Value>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    Wire { stream, options, buffer: Vec::new(), largest: LARGEST_ANSWER }.exchange(requests).await
}

fn hello(options: &ConnectOptions) -> Request {
    let mut request = Request::new("HELLO").arg("3");
    if let Some((user, password)) = credentials(options) {
        request = request.arg("AUTH").arg(user.unwrap_or("default")).arg(password);
    }
    match options.client_name() {
        Some(name) => request.arg("SETNAME").arg(name),
        None => request,
    }
}

fn auth(options: &ConnectOptions) -> Option<Request> {
    let (user, password) = credentials(options)?;
    // The form without a user is the only one that a server before ACLs knows.
    Some(match user {
        Some(user) => Request::new("AUTH").arg(user).arg(password),
        None => Request::new("AUTH").arg(password),
    })
}

/// A user without a password is one that needs none; the server still wants the argument.
fn credentials(options: &ConnectOptions) -> Option<(Option<&str>, &str)> {
    match (options.user(), options.password()) {
        (None, None) => None,
        (user, password) => Some((user, password.unwrap_or_default())),
    }
}

fn set_name(options: &ConnectOptions) -> Option<Request> {
    options.client_name().map(|name| Request::new("CLIENT SETNAME").arg(name))
}

fn select(options: &ConnectOptions) -> Option<Request> {
    match options.database() {
        0 => None,
        database => Some(Request::new("SELECT").int(database)),
    }
}

/// Whether RESP2 may still work: the server has no `HELLO`, or not this version of the protocol, or the user may not. A
/// server that asks for the password which `HELLO` has just brought did not understand it: some look at the password
/// before they look whether there is such a command.
fn can_fall_back(error: &ServerError, options: &ConnectOptions) -> bool {
    matches!(crate::recovery::classify(error), ErrorKind::Unsupported | ErrorKind::NoPermission)
        || (error.code == "NOAUTH" && credentials(options).is_some())
}

/// Whether an error reply to one command of the RESP2 greeting fails the connection. A name is decoration, and `PING`
/// only finds out whether the server wants a password: one that is loading or may not be pinged is greeted all the same.
fn matters(command: &str, error: &ServerError) -> bool {
    match command {
        "AUTH" | "SELECT" => true,
        _ => {
            matches!(
                crate::recovery::classify(error),
                ErrorKind::Authentication | ErrorKind::TooManyClients | ErrorKind::Moved
            ) || error.code == "DENIED"
        }
    }
}

/// The reply to `HELLO`: a map, or a flat list where the server answers in RESP2.
fn identify(reply: &Value) -> (Protocol, ServerIdentity) {
    let get = |wanted: &str| -> Option<&Value> {
        let wanted = Some(wanted.as_bytes());
        match reply {
            Value::Map(pairs) => pairs.iter().find(|(name, _)| name.as_bytes() == wanted).map(|(_, value)| value),
            Value::Array(items) => items.chunks_exact(2).find(|pair| pair[0].as_bytes() == wanted).map(|pair| &pair[1]),
            _ => None,
        }
    };
    let text = |name| get(name).and_then(Value::as_bytes).map(|text| String::from_utf8_lossy(text).into_owned());
    let protocol = match get("proto").and_then(Value::as_int) {
        Some(2) => Protocol::Resp2,
        _ => Protocol::Resp3,
    };
    (protocol, ServerIdentity { name: text("server"), version: text("version") })
}

/// The server's words, and what to do about them.
fn refusal(error: ServerError, command: &'static str, options: &ConnectOptions) -> Error {
    let hint = match error.code.as_str() {
        "NOAUTH" if credentials(options).is_none() => {
            "the server asks for a password and none is given: redis://:password@host or redis://user:password@host"
        }
        "WRONGPASS" if options.user().is_some() && options.password().is_none() => {
            "a user was given and no password: a password alone is written redis://:password@host"
        }
        "WRONGPASS" if options.user().is_none() => "no user was given, so the password was tried for `default`",
        "ERR" if error.detail.contains("without any password configured") => {
            "the server has no password for its default user: leave the password out or give the user it belongs to"
        }
        "ERR" if command == "SELECT" => "choose a database that the server has; a cluster has only 0",
        "NOPERM" if command == "SELECT" => "allow the user SELECT or use database 0",
        _ => "",
    };
    let error = Error::from_server(error).at(command, None);
    if hint.is_empty() { error } else { error.with_hint(hint) }
}

struct Wire<'a, S> {
    stream: &'a mut S,
    options: &'a ConnectOptions,
    buffer: Vec<u8>,
    largest: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<'_, S> {
    /// Writes all requests in one go and reads a reply to each. Reading goes on when writing failed: a server that is
    /// full says so and closes, so the reason may be there though our words did not arrive.
    async fn exchange(&mut self, requests: &[Request]) -> Result<Vec<Value>, Error> {
        let mut out = Vec::new();
        for request in requests {
            request.encode(&mut out);
        }
        let written = async {
            self.stream.write_all(&out).await?;
            self.stream.flush().await
        }
        .await;
        let mut replies = Vec::with_capacity(requests.len());
        while replies.len() < requests.len() {
            match self.read().await {
                // What the server says unasked, it says in place of all further replies.
                Ok(Value::Error(error)) if is_farewell(&error) => return Err(refusal(error, "HELLO", self.options)),
                Ok(reply) => replies.push(reply),
                Err(error) => {
                    return Err(match written {
                        Err(cause) => self.failed("writing the greeting to", cause),
                        Ok(()) => error,
                    });
                }
            }
        }
        if self.buffer.is_empty() {
            Ok(replies)
        } else {
            Err(Error::new(ErrorKind::Protocol, format!("{} sent more than it was asked", self.options)))
        }
    }

    async fn read(&mut self) -> Result<Value, Error> {
        loop {
            match reply::parse(&self.buffer) {
                Ok(Some((value, used))) => {
                    // Nobody has asked for it, or it only describes the reply that follows.
                    let unasked = matches!(self.buffer[0], b'>' | b'|');
                    self.buffer.drain(..used);
                    if !unasked {
                        return Ok(value);
                    }
                }
                Ok(None) if self.buffer.len() > self.largest => {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        format!("an answer of {} is longer than {} bytes", self.options, self.largest),
                    ));
                }
                Ok(None) => {}
                Err(NotResp(byte)) => return Err(self.not_resp(byte)),
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    return Err(
                        self.ended(Error::new(ErrorKind::Io, format!("{} closed the connection", self.options)))
                    );
                }
                Ok(_) => {}
                Err(cause) => return Err(self.failed("reading the greeting of", cause)),
            }
        }
    }

    fn failed(&self, what: &str, cause: std::io::Error) -> Error {
        // With TLS 1.3 a server refuses a client certificate only after the handshake.
        let refused = cause.kind() == std::io::ErrorKind::InvalidData;
        let kind = if refused && self.options.is_tls() { ErrorKind::Tls } else { ErrorKind::Io };
        self.ended(Error::new(kind, format!("{what} {} failed", self.options)).with_source(cause))
    }

    /// The connection ended at our first words: what may be behind that. A port with TLS resets one without.
    fn ended(&self, error: Error) -> Error {
        match self.options.address() {
            _ if self.options.is_tls() => error.with_hint("does the server ask for a client certificate?"),
            Address::Tcp { .. } => error.with_hint("does that port want TLS? then the scheme is rediss://"),
            Address::Unix(_) => error,
        }
    }

    fn not_resp(&self, byte: u8) -> Error {
        // 0x15 and 0x16 open the records of TLS: an alert, a handshake.
        if matches!(byte, 0x15 | 0x16) {
            let message = format!("{} answers with TLS: use rediss:// and the feature `rustls`", self.options);
            return Error::new(ErrorKind::Tls, message);
        }
        Error::new(
            ErrorKind::Protocol,
            format!("{} is not a Redis server: it answers with byte {byte:#04x}", self.options),
        )
    }
}

/// Errors after which the server closes the connection, whatever was asked.
fn is_farewell(error: &ServerError) -> bool {
    error.code == "DENIED" || crate::recovery::classify(error) == ErrorKind::TooManyClients
}

#[cfg(test)]
mod tests;
