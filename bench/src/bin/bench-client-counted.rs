//! A racer whose allocations are counted, which costs it time: for counts and not for rates.

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use streamkeeper_bench::Failure;
use streamkeeper_bench::client::main as run;

#[global_allocator]
static COUNTED: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

fn main() -> Result<(), Failure> {
    run(Some(|| COUNTED.stats().allocations as u64))
}
