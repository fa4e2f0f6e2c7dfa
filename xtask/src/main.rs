//! The repository's own commands: `cargo xtask --help`.
//!
//! A file per command. What a contributor or a CI machine has to run is a command here and not a line of a script, so
//! that both run the same.

mod asked;
mod bench;
mod containers;
mod demo;
mod fleet;
mod fuzz;
mod instructions;
mod integration;
mod servers;
mod simulate;
mod soak;
mod steady;
mod steps;
mod table;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the repository.
///
/// `cargo xtask demo` shows the library at work. `cargo xtask servers` shows which Redis and Valkey servers the tests would run on. `cargo xtask test`
/// is all that a change has to pass.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Bench),
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    Fuzz(fuzz::Fuzz),
    Servers(servers::Servers),
    Soak(soak::Soak),
    #[command(hide = true)]
    SoakWorker(soak::SoakWorker),
    Instructions(instructions::Instructions),
    Integration(integration::Integration),
    Simulate(simulate::Simulate),
    Test(test::Test),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::DemoWorker(command) => command.run(),
        Command::Fuzz(command) => command.run(),
        Command::Servers(command) => command.run(),
        Command::Soak(command) => command.run(),
        Command::SoakWorker(command) => command.run(),
        Command::Instructions(command) => command.run(),
        Command::Integration(command) => command.run().map(|_| ()),
        Command::Simulate(command) => command.run(),
        Command::Test(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// A command's failure, shown with its causes.
type Failure = Box<dyn std::error::Error>;
