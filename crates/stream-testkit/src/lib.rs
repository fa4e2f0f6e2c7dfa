//! Servers for tests: an in-memory model of Redis Streams.

pub mod memory;

pub use memory::MemoryServer;
