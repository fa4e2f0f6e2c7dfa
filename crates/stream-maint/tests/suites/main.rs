//! Maintenance against the in-memory server and against every real server of the matrix.

mod dlq;
mod property;
mod support;
mod trim;
