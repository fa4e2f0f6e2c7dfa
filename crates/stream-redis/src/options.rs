//! [`ConnectOptions`]: where a server is and how to greet it, validated when it is made.
//!
//! What must stay true: nothing here connects, and no text made from the options (`Debug`, `Display`, errors) holds the
//! password.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, ErrorKind};

mod builder;
mod credentials;
mod hosts;
#[cfg(feature = "rustls")]
mod tls;
mod url;

pub use builder::ConnectOptionsBuilder;
pub use credentials::{CredentialProvider, Credentials};
pub(crate) use hosts::split;

/// Without the feature `rustls` there is no value of this type.
#[cfg(not(feature = "rustls"))]
mod tls {
    #[derive(Debug, Clone)]
    pub(crate) enum TlsOptions {}
}

#[cfg(not(feature = "rustls"))]
pub(crate) use tls::TlsOptions;
#[cfg(feature = "rustls")]
pub use tls::{Pem, TlsOptions};

/// The port of a server when none is given.
const DEFAULT_PORT: u16 = 6379;

/// The version of the protocol that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2: all servers.
    Resp2,
    /// RESP3: Redis 6 and later, all of Valkey.
    Resp3,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A host name or an IP address (IPv6 without brackets) and a port.
    Tcp {
        /// Resolved anew for every connection.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// TCP keepalive: how the system notices that a peer is gone while nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keepalive {
    /// Idle for this long before the first probe.
    pub time: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Probes without an answer before the connection is given up.
    pub retries: u32,
}

impl Keepalive {
    /// Probes after `time` of silence, then every 5 s (or `time`, where that is less), 3 times.
    pub fn after(time: Duration) -> Self {
        Self { time, interval: time.min(Duration::from_secs(5)), retries: 3 }
    }
}

impl Default for Keepalive {
    /// After 15 s of silence, every 5 s, 3 times: a dead peer is noticed within 30 s.
    fn default() -> Self {
        Self::after(Duration::from_secs(15))
    }
}

/// How to reach and greet one server.
///
/// From a URL:
///
/// | URL | Server |
/// |---|---|
/// | `redis://[user[:password]@]host[:port][/database]` | TCP; `valkey://` means the same |
/// | `rediss://…`, `valkeys://…` | TLS (feature `rustls`) |
/// | `redis+unix:///path/to.sock`, `unix:///path/to.sock` | a unix socket |
///
/// A password alone is written `redis://:password@host`; reserved characters in it are percent-encoded. Parameters after
/// `?`: `protocol` (`resp2` or `resp3`), `connect_timeout`, `response_timeout`, `keepalive` (`15s`, `500ms`, `2m`;
/// `keepalive=off`), `client_name`, `db`, `user`, `pass`; with TLS `tls_ca_file`, `tls_certificate_file`,
/// `tls_key_file`, `tls_server_name`, `danger_accept_invalid_certificates=true`. Any other is an error, so that a misspelt
/// timeout does not pass unnoticed.
///
/// ```
/// use stream_redis::ConnectOptions;
/// let options = ConnectOptions::from_url("redis://app:s%40fe@db.internal/2?connect_timeout=3s")?;
/// assert_eq!(options.to_string(), "redis://app:***@db.internal:6379/2");
/// # Ok::<(), stream_redis::Error>(())
/// ```
#[derive(Clone)]
pub struct ConnectOptions {
    address: Address,
    tls: Option<TlsOptions>,
    user: Option<String>,
    password: Option<String>,
    provider: Option<Arc<dyn CredentialProvider>>,
    database: u32,
    protocol: Option<Protocol>,
    connect_timeout: Duration,
    response_timeout: Duration,
    keepalive: Option<Keepalive>,
    client_name: Option<String>,
}

impl ConnectOptions {
    /// Options from a URL; the table of what it may hold is above.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the part that is wrong; never with the password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        url::parse(url)?.build()
    }

    /// Starts options for a server at `host` (a name or an address, IPv6 without brackets) and `port`.
    pub fn tcp(host: impl Into<String>, port: u16) -> ConnectOptionsBuilder {
        ConnectOptionsBuilder::new(Address::Tcp { host: host.into(), port })
    }

    /// Starts options for a server at a unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> ConnectOptionsBuilder {
        ConnectOptionsBuilder::new(Address::Unix(path.into()))
    }

    /// The same options, to change some of them.
    pub fn to_builder(&self) -> ConnectOptionsBuilder {
        ConnectOptionsBuilder { options: self.clone() }
    }

    /// Where the server listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The user, where one is given.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The number of the database.
    pub fn database(&self) -> u32 {
        self.database
    }

    /// The protocol that is insisted on; `None` tries RESP3 and falls back to RESP2.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// The limit for resolving, connecting, the TLS handshake and the greeting together.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The limit for the reply to a command that does not block.
    pub fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// TCP keepalive; `None` when it is off.
    pub fn keepalive(&self) -> Option<Keepalive> {
        self.keepalive
    }

    /// The name that the connection shows in the server's client list.
    pub fn client_name(&self) -> Option<&str> {
        self.client_name.as_deref()
    }

    pub(crate) fn tls(&self) -> Option<&TlsOptions> {
        self.tls.as_ref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The same options for a server at another address.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        Self { address: Address::Tcp { host: host.to_owned(), port }, ..self.clone() }
    }

    /// The same options with less time to connect, if `limit` is less.
    pub(crate) fn within(&self, limit: Duration) -> Self {
        Self { connect_timeout: self.connect_timeout.min(limit), ..self.clone() }
    }

    /// The same options for another user and database.
    pub(crate) fn with_credentials(self, user: Option<String>, password: Option<String>, database: u32) -> Self {
        Self { user, password, database, provider: None, ..self }
    }

    /// The same options with what the provider of the credentials says now, if there is one.
    pub(crate) async fn authorised(&self) -> Result<Cow<'_, Self>, Error> {
        let Some(provider) = &self.provider else { return Ok(Cow::Borrowed(self)) };
        let (user, password) = provider.credentials().await?.into_parts();
        Ok(Cow::Owned(self.clone().with_credentials(user, Some(password), self.database)))
    }

    /// The same options under another client name. What the server would refuse in a name becomes `-`.
    pub(crate) fn named(&self, name: &str) -> Self {
        let name: String = name.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
        let client_name = if name.is_empty() { self.client_name.clone() } else { Some(name) };
        Self { client_name, ..self.clone() }
    }
}

impl fmt::Display for ConnectOptions {
    /// As a URL without the parameters and with `***` for the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = match (&self.user, &self.password) {
            (None, None) => String::new(),
            (user, Some(_)) => format!("{}:***@", user.as_deref().unwrap_or_default()),
            (Some(user), None) => format!("{user}@"),
        };
        match &self.address {
            Address::Tcp { host, port } => {
                let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{scheme}://{credentials}{open}{host}{close}:{port}/{}", self.database)
            }
            Address::Unix(path) => {
                write!(f, "redis+unix://{}?db={}", path.display(), self.database)?;
                if let Some(user) = &self.user {
                    write!(f, "&user={user}")?;
                }
                if self.password.is_some() {
                    f.write_str("&pass=***")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("provider", &self.provider.is_some())
            .field("database", &self.database)
            .field("protocol", &self.protocol)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("keepalive", &self.keepalive)
            .field("client_name", &self.client_name)
            .finish()
    }
}

fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_in_no_text() {
        for options in [
            ConnectOptions::tcp("h", 1).user("u").password("hunter2").build().unwrap(),
            ConnectOptions::tcp("h", 1).password("hunter2").build().unwrap(),
            ConnectOptions::unix("/s").user("u").password("hunter2").build().unwrap(),
        ] {
            let builder = options.to_builder();
            let text = format!("{options} {options:?} {builder:?}");
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("***"), "{text}");
        }
    }

    #[test]
    fn a_name_from_elsewhere_is_made_acceptable() {
        let options = ConnectOptions::tcp("h", 1).client_name("mine").build().unwrap();
        assert_eq!(options.named("reader of größe").client_name(), Some("reader-of-gr--e"));
        assert_eq!(options.named("").client_name(), Some("mine"));
    }
}
