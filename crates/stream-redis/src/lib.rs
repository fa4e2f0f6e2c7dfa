//! Everything that knows Redis: commands as values, the connections that carry them, and what their errors mean.

mod appender;
mod capability;
mod client;
mod cluster;
pub mod command;
mod command_connection;
mod connection;
mod error;
mod fenced;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod greeting;
mod options;
mod publisher;
mod reader;
mod recovery;
mod request;
mod sentinel;
mod standalone;
mod transport;
mod value;

pub use appender::Appender;
pub use capability::{Capabilities, Capability};
pub use client::Client;
pub use cluster::ClusterOptions;
pub use connection::{Connection, Connector, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Rest};
pub use error::{Error, ErrorKind, ServerError};
pub use fenced::{Fenced, HandedBack, Owner, Renewed, Taken};
pub use options::{
    Address, ConnectOptions, ConnectOptionsBuilder, CredentialProvider, Credentials, Keepalive, Protocol,
};
#[cfg(feature = "rustls")]
pub use options::{Pem, TlsOptions};
pub use publisher::{
    FastStreamFormat, FastStreamMessage, FastStreamPublisher, PartitionedPublisher, PrefectPublisher,
    PrefectPublisherBuilder, PublishError, Publisher, PublisherBuilder, Receipt, Unconfirmed,
};
pub use reader::SocketReader;
pub use recovery::{NodeDoubt, Recovery, Told};
pub use request::Request;
pub use sentinel::SentinelOptions;
pub use value::Value;
