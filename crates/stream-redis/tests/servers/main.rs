//! Tests against real servers: those that [`stream_testkit::matrix`] finds, each test on all of them at once. A missing
//! server is a failure that says how to get one.

mod capability;
mod commands;
mod connect;
mod every_server;
mod lossy;
mod publish_once;
mod publisher;
mod reader;
mod scripted;
mod scripts;
#[cfg(feature = "rustls")]
mod tls;
#[cfg(feature = "rustls")]
mod tls_cluster;
