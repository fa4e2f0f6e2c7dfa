//! What the benchmarks run: the programs that race (`cargo xtask bench`), and the parts that are measured one by one.
//!
//! * [`client`]: one racer per process: the library, the floor (a raw client that reads, looks and acknowledges), and loops
//!   on the `redis` crate. All get their task from the environment; see [`client::Task`].
//! * [`parts`]: decoding, ledger, dispatch and the like, for criterion and for counting instructions.

#[cfg(feature = "racers")]
pub mod client;
#[cfg(feature = "parts")]
pub mod parts;

/// A program's failure.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
