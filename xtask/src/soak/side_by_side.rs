//! All topologies at the same time, each in a process of its own.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Soak;
use super::servers::Topology;
use crate::Failure;
use crate::fleet::this_program;

/// Runs `soak` on each topology, with the seeds from `seed` on, and shows what each has to tell.
pub(super) fn run(soak: &Soak, seed: u64) -> Result<(), Failure> {
    let mut running = Vec::new();
    for (place, topology) in (0..).zip(Topology::ALL) {
        running.push((topology, Ended(start(soak, topology, seed + place)?)));
    }
    let shown: Vec<_> = running
        .iter_mut()
        .filter_map(|(topology, child)| {
            let (stdout, name) = (child.0.stdout.take()?, topology.name());
            Some(std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    println!("{name:<10} | {line}");
                }
            }))
        })
        .collect();
    for thread in shown {
        let _ = thread.join();
    }
    let mut failed = Vec::new();
    for (topology, mut child) in running {
        if !child.0.wait()?.success() {
            failed.push(topology.name());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("the soak failed on {}", failed.join(", ")).into()) }
}

fn start(soak: &Soak, topology: Topology, seed: u64) -> Result<Child, Failure> {
    let mut command = Command::new(this_program()?);
    command.arg0("xtask").arg("soak").args(["--topology", topology.name(), "--seed", &seed.to_string()]);
    command.args(["--minutes", &soak.minutes.to_string(), "--rate", &soak.rate.to_string()]);
    if let Some(server) = &soak.server {
        command.args(["--server", server]);
    }
    if soak.keep {
        command.arg("--keep");
    }
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// A soak that does not outlive this one.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Asked, since its workers and servers have to end with it; both fail only if it is gone already.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
