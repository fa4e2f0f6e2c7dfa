//! Free ports for servers.
//!
//! They lie below the range from which the system takes the local ports of outgoing connections (32768 and up on Linux).
//! In that range a client that tries to reach a killed server can be given the server's own port, connect to itself, and
//! keep the server from coming back. The cluster bus, 10000 higher, lies below it as well, and above all of these.

use std::net::TcpListener;
use std::ops::Range;

const PORTS: Range<u16> = 11_000..21_000;

/// A port that nobody listens on at this moment, chosen at random so that test processes rarely meet.
pub(super) fn free_port() -> Option<u16> {
    (0..200).map(|_| fastrand::u16(PORTS)).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_listened_on() {
        let port = free_port().unwrap();
        assert!(PORTS.contains(&port));
        let held = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert_eq!(held.local_addr().unwrap().port(), port);
    }
}
