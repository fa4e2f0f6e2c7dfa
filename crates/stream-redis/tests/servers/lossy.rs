//! [`Lossy`]: a connector that loses replies after the server has carried out what was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use stream_core::StreamKey;
use stream_redis::{Client, Connection, Connector, Error, ErrorKind, Reader, Request, ServerError, Value};

/// Of the batches that `concerns` names, the reply to the first is lost, and then to every `period`th.
#[derive(Debug, Clone)]
pub(crate) struct Lossy {
    inner: Client,
    concerns: fn(&[Request]) -> bool,
    period: u32,
    sent: Arc<AtomicU32>,
}

impl Lossy {
    pub(crate) fn new(inner: Client, concerns: fn(&[Request]) -> bool, period: u32) -> Self {
        Self { inner, concerns, period, sent: Arc::default() }
    }

    /// How many replies were lost so far.
    pub(crate) fn lost(&self) -> u32 {
        self.sent.load(Ordering::Relaxed).div_ceil(self.period)
    }
}

struct LossyConnection(Arc<dyn Connection>, Lossy);

#[async_trait]
impl Connector for Lossy {
    async fn connect(&self, key: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let connection = self.inner.connector().connect(key).await?;
        Ok(Arc::new(LossyConnection(connection, self.clone())))
    }

    async fn open_reader(&self, key: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        self.inner.connector().open_reader(key, name).await
    }
}

#[async_trait]
impl Connection for LossyConnection {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let replies = self.0.send(requests).await?;
        let Lossy { concerns, period, sent, .. } = &self.1;
        if concerns(requests) && sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(*period) {
            return Err(Error::new(ErrorKind::Io, "the reply was lost"));
        }
        Ok(replies)
    }
}
