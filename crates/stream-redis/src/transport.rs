//! From options to a greeted stream: resolve, connect, encrypt, greet, all under one deadline.
//!
//! What must stay true: there is one way to a server, for the reading socket and for the command connection, so that
//! timeouts, TLS and the errors of authentication are the same for both.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::greeting;
use crate::options::{Address, ConnectOptions};
use crate::{Error, ErrorKind};

mod stream;
#[cfg(feature = "rustls")]
mod tls;

pub(crate) use stream::Stream;

/// How long sent data may stay unacknowledged by the peer's system before the connection counts as dead.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a stream whose server has accepted us: authenticated, named, in the right database.
///
/// # Errors
/// [`ErrorKind::Timeout`] when [`ConnectOptions::connect_timeout`] passes; [`ErrorKind::Io`] and [`ErrorKind::Tls`] from
/// the way there; otherwise what the server answered to the greeting.
pub(crate) async fn open(options: &ConnectOptions) -> Result<Stream, Error> {
    let deadline = Instant::now() + options.connect_timeout();
    let mut step = "connecting to";
    let opened = timeout_at(deadline, async {
        step = "asking for the credentials of";
        let authorised = options.authorised().await?;
        let mut stream = connect(options, deadline, &mut step).await?;
        step = "greeting";
        let (protocol, server) = greeting::greet(&mut stream, &authorised).await?;
        tracing::debug!(%options, ?protocol, name = server.name, version = server.version, "connected");
        Ok(stream)
    })
    .await;
    opened.unwrap_or_else(|_| {
        let hint = match step {
            "the TLS handshake with" => " (does that port want TLS? if not, the scheme is redis://)",
            "greeting" if !options.is_tls() => " (does that port want TLS? then the scheme is rediss://)",
            _ => "",
        };
        let limit = options.connect_timeout();
        Err(Error::new(ErrorKind::Timeout, format!("{step} {options} took longer than {limit:?}{hint}")))
    })
}

async fn connect(options: &ConnectOptions, deadline: Instant, step: &mut &'static str) -> Result<Stream, Error> {
    match options.address() {
        #[cfg(unix)]
        Address::Unix(path) => match tokio::net::UnixStream::connect(path).await {
            Ok(stream) => Ok(Stream::Unix(stream)),
            Err(cause) => Err(Error::new(ErrorKind::Io, format!("cannot connect to the socket {}", path.display()))
                .with_source(cause)),
        },
        #[cfg(not(unix))]
        Address::Unix(_) => Err(Error::new(ErrorKind::Config, "this system has no unix sockets: give a host")),
        Address::Tcp { host, port } => {
            *step = "resolving the host of";
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(|cause| {
                    Error::new(ErrorKind::Io, format!("cannot resolve the host `{host}`")).with_source(cause)
                })?
                .collect();
            *step = "connecting to";
            let stream = connect_any(host, *port, &addresses, deadline).await?;
            set_up(&stream, options).map_err(|cause| {
                Error::new(ErrorKind::Io, format!("cannot set up the socket to {host}:{port}")).with_source(cause)
            })?;
            match options.tls() {
                None => Ok(Stream::Tcp(stream)),
                #[cfg(feature = "rustls")]
                Some(tls) => {
                    *step = "the TLS handshake with";
                    tls::handshake(stream, tls, host, *port).await
                }
                #[cfg(not(feature = "rustls"))]
                Some(tls) => match *tls {},
            }
        }
    }
}

/// Tries the addresses in turn. Each gets an equal share of the time that is left, so that one that swallows packets does
/// not use up the time of the others.
async fn connect_any(host: &str, port: u16, addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Error> {
    let mut last: Option<(SocketAddr, io::Error)> = None;
    for (index, address) in addresses.iter().enumerate() {
        let share = share(deadline.saturating_duration_since(Instant::now()), addresses.len() - index);
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(cause)) => last = Some((*address, cause)),
            Err(_) => last = Some((*address, io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))),
        }
    }
    let Some((address, cause)) = last else {
        return Err(Error::new(ErrorKind::Io, format!("the host `{host}` has no address")));
    };
    let kind = if cause.kind() == io::ErrorKind::TimedOut { ErrorKind::Timeout } else { ErrorKind::Io };
    let which = match addresses.len() {
        1 => format!("at {address}"),
        count => format!("at any of its {count} addresses, last {address}"),
    };
    Err(Error::new(kind, format!("cannot connect to {host}:{port} {which}")).with_source(cause))
}

/// The part of `left` for the next of `addresses` addresses.
fn share(left: Duration, addresses: usize) -> Duration {
    left / u32::try_from(addresses).unwrap_or(u32::MAX).max(1)
}

fn set_up(stream: &TcpStream, options: &ConnectOptions) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    // What is not sent when a connection is given up is never sent: after an outage it would arrive behind what was sent
    // again on the next one. Nothing waits for it, since a reply is waited for before a connection is closed for good.
    socket.set_linger(Some(Duration::ZERO))?;
    if let Some(keepalive) = options.keepalive() {
        let settings = TcpKeepalive::new().with_time(keepalive.time);
        #[cfg(not(any(target_os = "openbsd", target_os = "haiku", target_os = "redox", target_os = "solaris")))]
        let settings = settings.with_interval(keepalive.interval).with_retries(keepalive.retries);
        socket.set_tcp_keepalive(&settings)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

#[cfg(test)]
mod tests;
