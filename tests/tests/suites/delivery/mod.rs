//! What is delivered how often, to whom, and at which attempt.

mod exact;
mod frozen;
mod servers;
