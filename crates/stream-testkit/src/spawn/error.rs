//! [`SpawnError`]: why a server did not start or could not be handled.

use std::io;
use std::time::Duration;

use super::CliError;

/// Why a server did not start, or could not be killed, paused or restarted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program could not be run, or its folder not be made.
    #[error("could not start {what}")]
    Io {
        /// What.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The server ended by itself.
    #[error("{what} ended at once ({status}); its last words:\n{log}")]
    Ended {
        /// What was started.
        what: String,
        /// How it ended.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// The server did not answer in time.
    #[error("{what} was not ready within {waited:?}; its last words:\n{log}")]
    NotReady {
        /// What was started.
        what: String,
        /// How long was waited.
        waited: Duration,
        /// The end of its log.
        log: String,
        /// Why the last try to reach it failed.
        source: Option<CliError>,
    },
    /// No port could be had: others took each one that was free a moment before.
    #[error("found no free port on the loopback interface after {tries} tries")]
    NoPort {
        /// How many were tried.
        tries: u32,
    },
    /// The server is the one of `REDIS_URL`, and the test wants something that only a server of its own can do.
    #[error("cannot {wanted}: it is the external one of REDIS_URL; unset REDIS_URL to run this test")]
    External {
        /// What was wanted.
        wanted: &'static str,
    },
    /// The server runs in a container, where this cannot be had.
    #[error("cannot {wanted}: the server runs in a container; use a server program (`cargo xtask servers`)")]
    Containerized {
        /// What was wanted.
        wanted: &'static str,
    },
    /// The server is not in a network of its own, which only containers can be.
    #[error("cannot {wanted}: it is in no network of its own, as containers are (`--server container:NAME`)")]
    NoNetwork {
        /// What was wanted.
        wanted: &'static str,
    },
    /// The process does not take the signal: it is dead.
    #[error("could not {action} the server")]
    Signal {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The container engine failed.
    #[error("the container engine could not {action}")]
    Engine {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server is up but a question to it failed.
    #[error("the server does not answer as it should")]
    Cli(#[from] CliError),
}
