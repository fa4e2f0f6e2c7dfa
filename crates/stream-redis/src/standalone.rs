//! [`Standalone`]: one server at one address, for every key.

use std::sync::Arc;

use async_trait::async_trait;
use stream_core::StreamKey;

use crate::command_connection::CommandConnection;
use crate::options::ConnectOptions;
use crate::{Connection, Connector, Error, Reader, transport};

/// Opens connections to the one server that the options name.
#[derive(Debug)]
pub(crate) struct Standalone {
    options: ConnectOptions,
}

impl Standalone {
    pub(crate) fn new(options: ConnectOptions) -> Self {
        Self { options }
    }
}

#[async_trait]
impl Connector for Standalone {
    async fn connect(&self, _: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let greeted = transport::open(&self.options).await?;
        Ok(Arc::new(CommandConnection::new(greeted, &self.options).await?))
    }

    async fn open_reader(&self, _: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        let options = self.options.named(name);
        reader(transport::open(&options).await?, &options)
    }
}

/// The one place where a greeted stream becomes a reader.
fn reader(greeted: transport::Greeted, options: &ConnectOptions) -> Result<Box<dyn Reader>, Error> {
    drop(greeted);
    Err(Error::new(crate::ErrorKind::Unsupported, format!("no reading socket for {options} is built in")))
}
