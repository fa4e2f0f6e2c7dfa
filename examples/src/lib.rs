//! The examples of streamkeeper are in `examples/`: `cargo run -p streamkeeper-examples --example consume`.
