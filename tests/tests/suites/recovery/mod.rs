//! What is lost and comes back: connections, servers, groups, streams, owners.

mod exact;
mod killed;
mod missing;
mod refused;
mod rotated;
mod weather;
