//! Everything that knows Redis: commands as values, the connections that carry them, and what their errors mean.

mod client;
mod connection;
mod error;
mod recovery;
mod request;
mod value;

pub use client::Client;
pub use connection::{Connection, Connector, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader};
pub use error::{Error, ErrorKind, ServerError};
pub use recovery::Recovery;
pub use request::Request;
pub use value::Value;
