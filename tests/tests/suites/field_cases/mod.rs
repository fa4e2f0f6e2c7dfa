//! What went wrong for other consumers of Redis Streams, each as a test named after its case.

mod access;
mod payloads;
