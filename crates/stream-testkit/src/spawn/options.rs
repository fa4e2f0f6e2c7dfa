//! [`ServerOptions`]: how a server is started.

use std::time::Duration;

/// The name of the unix socket in the server's folder.
pub(super) const SOCKET: &str = "server.sock";

/// When the append-only file reaches the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AppendFsync {
    /// Before each reply: a kill -9 loses nothing that was confirmed.
    Always,
    /// Once a second. A kill -9 of the process loses little, since most of the data is the system's by then: while the file
    /// is being forced to the disk, the server writes up to two seconds later and confirms nevertheless.
    EverySecond,
}

/// How a server is started. By default without any persistence, password or unix socket.
///
/// ```
/// use stream_testkit::{AppendFsync, ServerOptions};
/// let options = ServerOptions::new().aof(AppendFsync::Always).args(["--maxmemory", "10mb"]);
/// ```
#[derive(Clone)]
pub struct ServerOptions {
    aof: Option<AppendFsync>,
    unix_socket: bool,
    password: Option<String>,
    config: Option<String>,
    args: Vec<String>,
    ready_within: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            aof: None,
            unix_socket: false,
            password: None,
            config: None,
            args: Vec::new(),
            ready_within: Duration::from_secs(30),
        }
    }
}

impl ServerOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes an append-only file, so that data survives [`kill9`](crate::RealServer::kill9) and
    /// [`restart`](crate::RealServer::restart).
    #[must_use]
    pub fn aof(mut self, fsync: AppendFsync) -> Self {
        self.aof = Some(fsync);
        self
    }

    /// Listens on a unix socket too: [`RealServer::unix_socket`](crate::RealServer::unix_socket).
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Asks for a password. It appears in the URL as it is: no characters that a URL escapes.
    #[must_use]
    pub fn requirepass(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Starts with a configuration file of this text, which the server may rewrite and then finds again after a restart: a
    /// sentinel keeps its state there.
    #[must_use]
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = Some(text.into());
        self
    }

    /// Adds one argument of the server program, as in `--maxclients`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments of the server program.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// How long a start may take until the server answers, 30 seconds by default. Shorter makes a loaded machine fail.
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(super) fn config_text(&self) -> Option<&str> {
        self.config.as_deref()
    }

    pub(super) fn wants_unix_socket(&self) -> bool {
        self.unix_socket
    }

    pub(super) fn deadline(&self) -> Duration {
        self.ready_within
    }

    /// The first option that a server which runs already cannot have.
    pub(super) fn needs_an_own_server(&self) -> Option<&'static str> {
        if self.aof.is_some() {
            Some("choose how the server persists")
        } else if self.unix_socket {
            Some("open a unix socket of the server")
        } else if self.password.is_some() {
            Some("set the password of the server")
        } else if !self.args.is_empty() || self.config.is_some() {
            Some("start the server with arguments")
        } else {
            None
        }
    }

    /// The arguments that do not depend on where the server runs.
    pub(super) fn common_args(&self) -> Vec<String> {
        let mut args: Vec<String> = ["--save", "", "--appendonly"].map(str::to_owned).into();
        match self.aof {
            None => args.push("no".to_owned()),
            Some(fsync) => {
                let fsync = if fsync == AppendFsync::Always { "always" } else { "everysec" };
                args.extend(["yes", "--appendfsync", fsync].map(str::to_owned));
            }
        }
        if let Some(password) = &self.password {
            args.extend(["--requirepass".to_owned(), password.clone()]);
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

impl std::fmt::Debug for ServerOptions {
    /// Leaves out the password and the arguments, which may hold one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions")
            .field("aof", &self.aof)
            .field("unix_socket", &self.unix_socket)
            .field("args", &self.args.len())
            .finish_non_exhaustive()
    }
}
