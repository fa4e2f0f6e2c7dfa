//! [`RealServer`]: one real server for one test.
//!
//! A spawned server has a free port of the loopback interface and a folder of its own, and ends with the value: nothing
//! that a test starts outlives it. Where the server is one that runs already (`REDIS_URL`) or a container, what cannot be
//! done with it is an error and not a silent difference.

mod cli;
mod container;
mod error;
mod network;
mod options;
mod port;
mod process;

use std::path::{Path, PathBuf};

use stream_redis::Value;

pub use cli::{Cli, CliError};
use container::Container;
pub use error::SpawnError;
pub use network::Network;
pub use options::{AppendFsync, ServerOptions};
use process::Process;

use crate::matrix::{Flavor, ServerBinary, ServerVersion, Source, info_field, parse_info};

/// A running server. Dropping it kills the process (or removes the container) and waits for its end.
#[derive(Debug)]
pub struct RealServer {
    binary: ServerBinary,
    options: ServerOptions,
    host: String,
    port: u16,
    version: ServerVersion,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Process(Process),
    Container(Box<Container>),
    External,
}

impl RealServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// [`SpawnError`]: the program does not run, ends at once (its last words are in the error), or is not ready in time;
    /// or the server is an external one and `options` ask for something it would have to be started with.
    pub async fn start(binary: &ServerBinary, options: &ServerOptions) -> Result<Self, SpawnError> {
        Self::start_in(binary, options, None).await
    }

    /// The same in a network: a container then has an address of its own, and can be [cut off](Self::cut_off). Programs of
    /// this machine have no use for it.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn start_in(
        binary: &ServerBinary,
        options: &ServerOptions,
        network: Option<&Network>,
    ) -> Result<Self, SpawnError> {
        let (host, port, backend) = match &binary.source {
            Source::Program(path) => {
                let (process, port) = Process::start(path, options).await?;
                ("127.0.0.1".to_owned(), port, Backend::Process(process))
            }
            Source::Image { image, tag } => {
                let container = Container::start(image, tag, binary.flavor, options, network).await?;
                let (host, port) = container.place();
                (host, port, Backend::Container(Box::new(container)))
            }
            Source::External(server) => {
                if let Some(option) = options.needs_an_own_server() {
                    return Err(SpawnError::External { wanted: option });
                }
                (server.host().to_owned(), server.port(), Backend::External)
            }
        };
        let mut this =
            Self { binary: binary.clone(), options: options.clone(), host, port, version: binary.version, backend };
        let info = this.cli(&["INFO", "server"]).await?;
        if let Some((_, version)) = parse_info(&info) {
            this.version = version;
        }
        Ok(this)
    }

    /// What the server is called, for example `redis-7.0`.
    pub fn name(&self) -> &str {
        self.binary.name()
    }

    /// Its version, as the running server says.
    pub fn version(&self) -> ServerVersion {
        self.version
    }

    /// Who made it.
    pub fn flavor(&self) -> Flavor {
        self.binary.flavor()
    }

    /// The host, as in `127.0.0.1`; the same after [`restart`](Self::restart) and [`rejoin`](Self::rejoin).
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; the same after [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as in `127.0.0.1:21042`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The URL to connect to, with the password of [`ServerOptions::requirepass`].
    pub fn url(&self) -> String {
        match (&self.binary.source, self.options.password()) {
            (Source::External(server), _) => server.url().to_owned(),
            (_, Some(password)) => format!("redis://:{password}@{}/", self.address()),
            (_, None) => format!("redis://{}/", self.address()),
        }
    }

    /// The unix socket, if [`ServerOptions::unix_socket`] asked for one.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        let folder = self.folder()?;
        self.options.wants_unix_socket().then(|| folder.join(options::SOCKET))
    }

    /// The server's own folder, with its log `server.log` and its append-only files.
    pub fn folder(&self) -> Option<&Path> {
        match &self.backend {
            Backend::Process(process) => Some(process.folder()),
            Backend::Container(_) | Backend::External => None,
        }
    }

    /// What the server has logged so far; empty for one that is not a process of this machine.
    pub fn log(&self) -> String {
        match &self.backend {
            Backend::Process(process) => process.log(),
            Backend::Container(_) | Backend::External => String::new(),
        }
    }

    /// Whether it is an external server, which cannot be killed, paused or restarted and holds other data as well.
    pub fn is_external(&self) -> bool {
        matches!(self.backend, Backend::External)
    }

    /// Whether it is a container.
    pub fn is_container(&self) -> bool {
        matches!(self.backend, Backend::Container(_))
    }

    /// A key that no other test uses: `label` and a random tail. Needed where servers are shared, harmless elsewhere.
    pub fn fresh_key(&self, label: &str) -> String {
        format!("{label}:{:016x}", fastrand::u64(..))
    }

    /// Runs one command on a connection of its own and returns the reply, nested arrays included.
    ///
    /// # Errors
    /// [`CliError`]: no connection, no answer within 10 seconds, or an error reply.
    pub async fn cli<A: AsRef<[u8]>>(&self, command: &[A]) -> Result<Value, CliError> {
        self.connect().await?.command(command).await
    }

    /// A connection for several commands: a transaction, a blocked read.
    ///
    /// # Errors
    /// [`CliError`]: no connection, or wrong credentials.
    pub async fn connect(&self) -> Result<Cli, CliError> {
        let credentials = match &self.binary.source {
            Source::External(server) => server.credentials(),
            Source::Program(_) | Source::Image { .. } => self.options.password().map(|word| (None, word.to_owned())),
        };
        Cli::connect(&self.address(), credentials).await
    }

    /// Kills the server with SIGKILL and waits for its end: what was not on disk is lost. Nothing if it is dead.
    ///
    /// # Errors
    /// [`SpawnError::External`] for an external server.
    pub async fn kill9(&mut self) -> Result<(), SpawnError> {
        match &mut self.backend {
            Backend::Process(process) => process.kill9(),
            Backend::Container(container) => container.kill9().await,
            Backend::External => Err(SpawnError::External { wanted: "kill the server" }),
        }
    }

    /// Starts the server again on the same port and folder, killed before if it still runs, and waits until it answers.
    /// Data survives as far as the append-only file has it.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn restart(&mut self) -> Result<(), SpawnError> {
        match &mut self.backend {
            Backend::Process(process) => process.restart(self.port, &self.options).await,
            Backend::Container(container) => container.restart(&self.options).await,
            Backend::External => Err(SpawnError::External { wanted: "restart the server" }),
        }
    }

    /// Freezes the server (SIGSTOP): connections stay open and nothing answers, until [`resume`](Self::resume). Returns
    /// when it has stopped.
    ///
    /// # Errors
    /// [`SpawnError::External`] for an external server; [`SpawnError::Signal`] when it is dead.
    pub async fn pause(&self) -> Result<(), SpawnError> {
        match &self.backend {
            Backend::Process(process) => process.pause(),
            Backend::Container(container) => container.pause().await,
            Backend::External => Err(SpawnError::External { wanted: "pause the server" }),
        }
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    /// Those of [`pause`](Self::pause).
    pub async fn resume(&self) -> Result<(), SpawnError> {
        match &self.backend {
            Backend::Process(process) => process.resume(),
            Backend::Container(container) => container.resume().await,
            Backend::External => Err(SpawnError::External { wanted: "resume the server" }),
        }
    }

    /// Cuts a container off by disconnecting its network, until [`rejoin`](Self::rejoin) or [`restart`](Self::restart). It
    /// goes on and holds its connections to be open, as do its clients: nothing is reset, and nothing answers. A client that
    /// connects meanwhile hears nothing for some seconds, and then that there is no route.
    ///
    /// # Errors
    /// [`SpawnError::NoNetwork`] for a server that is no container or was not [started in a network](Self::start_in);
    /// [`SpawnError::Engine`] when it is cut off already.
    pub async fn cut_off(&self) -> Result<(), SpawnError> {
        match &self.backend {
            Backend::Container(container) => container.cut_off().await,
            Backend::Process(_) | Backend::External => Err(SpawnError::NoNetwork { wanted: "cut the server off" }),
        }
    }

    /// Brings a container that was cut off back, at the address that it had.
    ///
    /// # Errors
    /// Those of [`cut_off`](Self::cut_off).
    pub async fn rejoin(&self) -> Result<(), SpawnError> {
        match &self.backend {
            Backend::Container(container) => container.rejoin().await,
            Backend::Process(_) | Backend::External => Err(SpawnError::NoNetwork { wanted: "bring the server back" }),
        }
    }
}

/// The end of a log.
fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Whether the server answers, has loaded its data, and (where that is known) is the process `pid`.
///
/// The process is checked because another server may have taken the port between our look at it and the start.
async fn is_ready(address: &str, options: &ServerOptions, pid: Option<u32>) -> Result<bool, CliError> {
    let credentials = options.password().map(|word| (None, word.to_owned()));
    let mut cli = Cli::connect(address, credentials).await?;
    cli.command(&["PING"]).await?;
    let info = cli.command(&["INFO"]).await?;
    let same = pid.is_none_or(|pid| info_field(&info, "process_id") == Some(&pid.to_string()));
    // A sentinel has no data, and says nothing about loading it.
    Ok(same && info_field(&info, "loading").is_none_or(|loading| loading == "0"))
}

#[cfg(test)]
mod tests;
