//! What the integration suites share: servers to run on, consumers to watch, a journal of what their handlers did.
//!
//! The suites use the library through its facade, as a user does. What they ask the server themselves goes through the
//! test kit's own connection, so that the library is not checked with the library.

pub mod consumer;
pub mod journal;
pub mod python;
pub mod server;
pub mod worker;

pub use consumer::{Events, Running, start};
pub use journal::{Journal, Run};
pub use python::Peer;
pub use server::{Ask, SOON, on_each, on_each_own};
pub use worker::Worker;
