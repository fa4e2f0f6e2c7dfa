//! Everything that knows Redis: commands as values, the connections that carry them, and what their errors mean.

mod client;
pub mod command;
mod connection;
mod error;
mod fenced;
#[allow(dead_code, reason = "the connector of real servers opens it")]
mod reader;
mod recovery;
mod request;
mod value;

pub use client::Client;
pub use connection::{Connection, Connector, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader};
pub use error::{Error, ErrorKind, ServerError};
pub use fenced::{Fenced, Owner, Taken};
pub use recovery::Recovery;
pub use request::Request;
pub use value::Value;
