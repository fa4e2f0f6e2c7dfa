//! Tests against real servers. They start their own from the folder in `STREAMKEEPER_SERVERS`, and say that they were
//! skipped where that is not set.

mod capability;
mod connect;
mod publisher;
mod reader;
mod support;
#[cfg(feature = "rustls")]
mod tls;
