//! An in-memory model of Redis Streams, for exact tests of whatever reads and writes streams.
//!
//! [`MemoryServer`] stands behind the same traits as a real server and takes apart the same requests. What must stay
//! true: it answers as real servers do (the conformance test holds it against all of them, command by command), and it
//! is deterministic: its clock is tokio's, so that with paused time nothing but the test decides what happens when.
//!
//! ```
//! use stream_testkit::MemoryServer;
//!
//! let server = MemoryServer::new();
//! let id = server.add("orders", [("item", "apple")]);
//! assert_eq!(server.len("orders"), 1);
//! assert_eq!(server.entries("orders")[0].id(), id);
//! ```

mod args;
mod command;
mod connection;
mod db;
mod fault;
mod group;
mod link;
mod listpack;
mod profile;
mod reader;
mod reply;
mod script;
mod server;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod wait;

pub use fault::Fault;
pub use profile::Profile;
pub use server::{MemoryServer, Snapshot};
