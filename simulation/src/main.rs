//! Runs seeds and tells what came of them; see `cargo xtask simulate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Parser;
use streamkeeper_simulation::{Mutation, Options, Outcome, Tally, run};

#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds, one after the other. Without it 500, or the one that `--seed` names.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long)]
    seed: Option<u64>,
    /// A bug to put in.
    #[arg(long, value_parser = mutation)]
    mutation: Option<Mutation>,
    /// Where journals of runs that failed go, or that of the only run.
    #[arg(long, default_value = "target/simulation")]
    journals: PathBuf,
    /// So many failures end it.
    #[arg(long, default_value_t = 3)]
    failures: usize,
}

fn mutation(name: &str) -> Result<Mutation, String> {
    let names: Vec<&str> = Mutation::ALL.iter().map(|mutation| mutation.name()).collect();
    let found = Mutation::ALL.into_iter().find(|mutation| mutation.name() == name);
    found.ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// What all runs came to together.
#[derive(Default)]
struct Total {
    tally: Tally,
    seeds: u64,
    failed: Vec<(u64, Vec<String>)>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or(0);
    let seeds = arguments.seeds.unwrap_or(if arguments.seed.is_some() { 1 } else { 500 });
    let began = Instant::now();
    let (next, enough, total) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(Total::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(usize::try_from(seeds).unwrap_or(1));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= seeds || enough.load(Ordering::Relaxed) {
                        return;
                    }
                    let seed = first.wrapping_add(place);
                    let outcome = run(seed, Options { mutation: arguments.mutation, verbose: false });
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.seeds += 1;
                    total.tally.add(&outcome.tally);
                    if !outcome.violations.is_empty() {
                        total.failed.push((seed, outcome.violations));
                        enough.fetch_or(total.failed.len() >= arguments.failures, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    total.failed.sort();
    tell(&total);
    println!("{:.1} s on {threads} threads", began.elapsed().as_secs_f64());
    let mut to_keep: Vec<u64> = total.failed.iter().map(|(seed, _)| *seed).collect();
    if seeds == 1 && to_keep.is_empty() {
        to_keep.push(first);
    }
    for seed in to_keep {
        keep(seed, arguments.mutation, &arguments.journals);
    }
    for (seed, violations) in &total.failed {
        println!("\nseed {seed} FAILED:");
        for violation in violations {
            println!("  {violation}");
        }
    }
    if total.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(total: &Total) {
    let tally = &total.tally;
    let hours = tally.simulated.as_secs_f64() / 3_600.0;
    println!("seeds {}, failed {}", total.seeds, total.failed.len());
    println!(
        "simulated hours {hours:.1}, entries {}, starts of handlers {}, commands {}, faults {}",
        tally.entries,
        tally.starts,
        tally.commands,
        tally.total()
    );
    for (name, count) in &tally.faults {
        println!("  {name}: {count}");
    }
}

/// Runs a seed once more and writes down all of it.
fn keep(seed: u64, mutation: Option<Mutation>, folder: &Path) {
    let Outcome { journal, .. } = run(seed, Options { mutation, verbose: true });
    let path = folder.join(format!("seed-{seed}.journal"));
    match fs::create_dir_all(folder).and_then(|()| fs::write(&path, journal)) {
        Ok(()) => println!("journal of seed {seed}: {}", path.display()),
        Err(error) => {
            eprintln!("error: the journal of seed {seed} could not be written to {}: {error}", path.display())
        }
    }
}
