//! Stopping in every state: in time, nothing lost, no attempt burned.

mod exact;
mod servers;
