//! Runs one part a number of times and does nothing else, for those who count instructions: `bench-parts NAME RUNS`.
//! Without arguments it prints the names, each with the items of one run.

use streamkeeper_bench::Failure;
use streamkeeper_bench::parts::PARTS;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, runs] = &arguments[..] else {
        for (name, make) in PARTS {
            println!("{name} {}", make().items);
        }
        return Ok(());
    };
    let runs: u64 = runs.parse()?;
    let (_, make) = PARTS.iter().find(|(known, _)| known == name).ok_or("there is no such part")?;
    let mut part = make();
    (0..runs).for_each(|_| part.run());
    Ok(())
}
