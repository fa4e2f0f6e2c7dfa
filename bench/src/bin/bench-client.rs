//! A racer of `cargo xtask bench`; see `streamkeeper_bench::client`.

use streamkeeper_bench::Failure;
use streamkeeper_bench::client::main as run;

fn main() -> Result<(), Failure> {
    run(None)
}
