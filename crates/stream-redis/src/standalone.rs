//! [`Standalone`]: one server at one address, for every key.

use std::sync::Arc;

use async_trait::async_trait;
use stream_core::StreamKey;

use crate::command_connection::CommandConnection;
use crate::options::ConnectOptions;
use crate::reader::SocketReader;
use crate::{Appender, Connection, Connector, Error, Reader, transport};

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
        let stream = transport::open(&self.options).await?;
        Ok(Arc::new(CommandConnection::new(stream, &self.options).await?))
    }

    async fn open_appender(&self, _: &StreamKey) -> Result<Appender, Error> {
        Ok(Appender::on(transport::open(&self.options).await?, &self.options))
    }

    async fn open_reader(&self, _: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        let stream = transport::open(&self.options.named(name)).await?;
        Ok(Box::new(SocketReader::new(stream, self.options.response_timeout())))
    }
}
