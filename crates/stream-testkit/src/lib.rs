//! Servers for tests.
//!
//! * [`MemoryServer`] is a model of Redis Streams in memory, on tokio's clock: with paused time, a test of a run loop is
//!   exact. See [`memory`].
//! * [`matrix`] finds the real servers of this machine and [`RealServer`] starts them: one process, port and folder per
//!   value, ended with it. Kill -9, restart and pause are methods, because surviving them is what is tested.
//! * [`SentinelSetup`] and [`RealCluster`] are several of them that belong together; as containers they are in a [`Network`]
//!   from which each can be cut off.
//! * [`Proxy`] stands between a client and a server and is the network that fails.
//! * [`Warnings`] keeps what is logged, for tests of what is told and how often.
//! * [`history::History`] is what was seen to happen, and judges whether the guarantees held.
//! * [`eventually`] is the only way a test of a real server waits for something.

#[cfg(feature = "servers")]
mod engine;
pub mod history;
mod log;
#[cfg(feature = "servers")]
pub mod matrix;
pub mod memory;
#[cfg(feature = "servers")]
pub mod proxy;
mod scripted;
#[cfg(feature = "servers")]
mod spawn;
#[cfg(feature = "servers")]
mod topology;
mod wait;

#[cfg(feature = "servers")]
pub use engine::remove_leftovers;
pub use log::Warnings;
#[cfg(feature = "servers")]
pub use matrix::{Flavor, ServerBinary, ServerVersion};
pub use memory::MemoryServer;
#[cfg(feature = "servers")]
pub use proxy::Proxy;
pub use scripted::Scripted;
#[cfg(feature = "servers")]
pub use spawn::{AppendFsync, Cli, CliError, Network, RealServer, ServerOptions, SpawnError};
#[cfg(feature = "servers")]
pub use topology::{RealCluster, SentinelSetup};
pub use wait::{eventually, work_for};
