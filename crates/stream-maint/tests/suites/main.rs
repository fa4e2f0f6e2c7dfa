//! Maintenance against the in-memory server and against every real server of the matrix.

mod cleanup;
mod dlq;
mod lag;
mod property;
mod stale;
mod support;
mod trim;
mod trouble;
