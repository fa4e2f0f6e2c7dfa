//! The TLS handshake, and what its failures mean.

use std::io;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::Error as TlsError;

use super::Stream;
use crate::options::TlsOptions;
use crate::{Error, ErrorKind};

pub(super) async fn handshake(stream: TcpStream, tls: &TlsOptions, host: &str, port: u16) -> Result<Stream, Error> {
    let name = tls.name_of(host)?;
    let tls = tls.clone();
    // Files may be read: not on a thread that drives other tasks.
    let config = tokio::task::spawn_blocking(move || tls.client_config())
        .await
        .map_err(|cause| Error::new(ErrorKind::Tls, "reading the TLS files was interrupted").with_source(cause))??;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(cause) => Err(explain(cause, host, port)),
    }
}

/// A connection that ends in mid-handshake is a matter of the network or of a server that starts or stops; what rustls
/// itself refuses does not change by trying again.
fn explain(cause: io::Error, host: &str, port: u16) -> Error {
    let to = format!("{host}:{port}");
    let error = match cause.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        None => Error::new(ErrorKind::Io, format!("the connection to {to} ended during the TLS handshake")),
        Some(TlsError::InvalidMessage(_)) => Error::new(
            ErrorKind::Tls,
            format!("{to} answers without TLS: if that port is right, the scheme is redis://"),
        ),
        Some(TlsError::InvalidCertificate(_)) => {
            Error::new(ErrorKind::Tls, format!("the certificate of {to} is not accepted"))
        }
        Some(TlsError::AlertReceived(_)) => {
            Error::new(ErrorKind::Tls, format!("{to} refused the TLS handshake: does it ask for a client certificate?"))
        }
        Some(_) => Error::new(ErrorKind::Tls, format!("the TLS handshake with {to} failed")),
    };
    error.with_source(cause)
}
