//! [`ConnectOptionsBuilder`]: options one by one, checked together.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "rustls")]
use super::TlsOptions;
use super::{Address, ConnectOptions, CredentialProvider, Keepalive, Protocol, config};
use crate::Error;

/// Longer timeouts are taken for a mistake in the unit.
const LONGEST_TIMEOUT: Duration = Duration::from_mins(10);

/// Makes [`ConnectOptions`]; started by [`ConnectOptions::tcp`], [`ConnectOptions::unix`] or
/// [`ConnectOptions::to_builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ConnectOptionsBuilder {
    pub(super) options: ConnectOptions,
}

impl ConnectOptionsBuilder {
    pub(super) fn new(address: Address) -> Self {
        Self {
            options: ConnectOptions {
                address,
                tls: None,
                user: None,
                password: None,
                provider: None,
                database: 0,
                protocol: None,
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(5),
                keepalive: Some(Keepalive::default()),
                client_name: None,
            },
        }
    }

    /// Encrypts the connection (feature `rustls`). Default: not encrypted.
    #[cfg(feature = "rustls")]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.options.tls = Some(tls);
        self
    }

    /// The ACL user. Default: none, which is the server's user `default`.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.options.user = Some(user.into());
        self
    }

    /// The password. Default: none.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.options.password = Some(password.into());
        self
    }

    /// Asks `provider` for user and password at every connection, for secrets that change. Default: those given here.
    pub fn credentials(mut self, provider: impl CredentialProvider) -> Self {
        self.options.provider = Some(Arc::new(provider));
        self
    }

    /// The number of the database. Default: 0. A cluster has only 0.
    pub fn database(mut self, database: u32) -> Self {
        self.options.database = database;
        self
    }

    /// Insists on a protocol. Default: RESP3, and RESP2 where the server or the user's permissions do not have `HELLO`.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.options.protocol = Some(protocol);
        self
    }

    /// The limit for resolving, connecting, the TLS handshake and the greeting together. Default: 5 s. Too short a limit
    /// fails connections to a server that is merely slow, for example just after a failover.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// The limit for the reply to a command that does not block; when it passes, the connection is given up. Default: 5 s.
    /// Shorter than the server's longest pause (a fork, a slow script) makes healthy connections fail.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = timeout;
        self
    }

    /// TCP keepalive; `None` turns it off, and then a peer that vanished is noticed only by timeouts. Default: after 15 s,
    /// every 5 s, 3 times. Without effect on unix sockets.
    pub fn keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.options.keepalive = keepalive.into();
        self
    }

    /// The name shown in the server's client list: printable ASCII without spaces. Default: none.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.options.client_name = Some(name.into());
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when a value is out of its range or a file for TLS cannot be read.
    pub fn build(self) -> Result<ConnectOptions, Error> {
        let options = self.options;
        match &options.address {
            Address::Tcp { host, .. } if host.is_empty() => return Err(config("the host is empty")),
            Address::Tcp { port: 0, .. } => return Err(config("port 0 cannot be connected to: give 1 to 65535")),
            Address::Unix(path) if path.as_os_str().is_empty() => {
                return Err(config("the path of the socket is empty"));
            }
            Address::Unix(_) if !cfg!(unix) => return Err(config("this system has no unix sockets: give a host")),
            Address::Unix(_) if options.tls.is_some() => {
                return Err(config("a unix socket cannot be encrypted: leave TLS out or give a host"));
            }
            _ => {}
        }
        check_timeout("connect_timeout", options.connect_timeout)?;
        check_timeout("response_timeout", options.response_timeout)?;
        if let Some(keepalive) = options.keepalive {
            // The system counts in seconds; less than one would silently become none.
            for time in [keepalive.time, keepalive.interval] {
                if time < Duration::from_secs(1) || time > Duration::from_secs(32_767) {
                    return Err(config("keepalive is counted in seconds: give 1s to 32767s, or turn it off"));
                }
            }
            if keepalive.retries == 0 || keepalive.retries > 127 {
                return Err(config("keepalive needs 1 to 127 probes"));
            }
        }
        match options.client_name.as_deref() {
            Some(name) if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return Err(config("client_name must be printable ASCII without spaces"));
            }
            _ => {}
        }
        if options.provider.is_some() && (options.user.is_some() || options.password.is_some()) {
            return Err(config("user or password are given and a provider of them as well: leave one out"));
        }
        if options.user.as_deref() == Some("") {
            return Err(config("the user is empty: leave it out for the server's default user"));
        }
        #[cfg(feature = "rustls")]
        if let Some(tls) = &options.tls {
            // Read once now, so that a missing file is an error at the start and not of every later connection.
            tls.client_config()?;
        }
        Ok(options)
    }
}

fn check_timeout(name: &str, timeout: Duration) -> Result<(), Error> {
    if timeout < Duration::from_millis(1) || timeout > LONGEST_TIMEOUT {
        return Err(config(format!("{name} must be between 1ms and {}s", LONGEST_TIMEOUT.as_secs())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn the_defaults_are_those_documented() {
        let options = ConnectOptions::tcp("h", 1).build().unwrap();
        assert_eq!(options.connect_timeout(), Duration::from_secs(5));
        assert_eq!(options.response_timeout(), Duration::from_secs(5));
        let keepalive = options.keepalive().unwrap();
        assert_eq!((keepalive.time.as_secs(), keepalive.interval.as_secs(), keepalive.retries), (15, 5, 3));
        assert_eq!(options.protocol(), None);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let second = Duration::from_secs(1);
        for builder in [
            ConnectOptions::tcp("", 1),
            ConnectOptions::tcp("h", 0),
            ConnectOptions::unix(""),
            ConnectOptions::tcp("h", 1).connect_timeout(Duration::ZERO),
            ConnectOptions::tcp("h", 1).response_timeout(Duration::from_hours(1)),
            ConnectOptions::tcp("h", 1).keepalive(Keepalive::after(Duration::from_millis(10))),
            ConnectOptions::tcp("h", 1).keepalive(Keepalive { time: second, interval: second, retries: 0 }),
            ConnectOptions::tcp("h", 1).client_name("a b"),
            ConnectOptions::tcp("h", 1).client_name(""),
            ConnectOptions::tcp("h", 1).user(""),
        ] {
            let text = format!("{builder:?}");
            assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Config, "{text}");
        }
    }
}
