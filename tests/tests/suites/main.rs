//! The integration suites: consumers through the facade, on every server of the matrix, and exact ones on the
//! in-memory server with paused time.

mod bad_input;
mod bounded_memory;
mod delivery;
mod envelopes;
mod ephemeral;
mod field_cases;
mod host;
mod interop;
mod maint;
mod memory;
mod partitions;
mod prefect;
mod recovery;
mod stopping;
mod topology;
