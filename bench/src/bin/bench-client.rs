//! A racer of `cargo xtask bench`; see `streamkeeper_bench::client`.

use streamkeeper_bench::client::{Failure, main as run};

fn main() -> Result<(), Failure> {
    run(None)
}
