//! Processor time and memory of processes, as the system counts them. Only Linux tells; elsewhere these figures are
//! unknown and said to be so.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Processor time of a process and of all it starts. A thread or a child that ends keeps what it had at the last look.
#[derive(Debug)]
pub(crate) struct Cpu {
    process: u32,
    threads: HashMap<u32, u64>,
}

impl Cpu {
    pub(crate) fn of(process: u32) -> Self {
        Self { process, threads: HashMap::new() }
    }

    /// What was used until now; `None` where that cannot be known.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        for process in family(self.process) {
            for thread in threads(process) {
                if let Some(used) = used(process, thread) {
                    self.threads.insert(thread, used);
                }
            }
        }
        let all: u64 = self.threads.values().sum();
        (!self.threads.is_empty()).then(|| Duration::from_nanos(all))
    }
}

/// Memory of a process and of all it starts: resident now, and the most it ever was. In MiB.
pub(crate) fn memory(process: u32) -> Option<(f64, f64)> {
    let mut sum = (0.0, 0.0);
    for process in family(process) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        sum.0 += kibibytes(&status, "VmRSS:").unwrap_or(0.0) / 1024.0;
        sum.1 += kibibytes(&status, "VmHWM:").unwrap_or(0.0) / 1024.0;
    }
    (sum.1 > 0.0).then_some(sum)
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Nanoseconds that a thread ran.
fn used(process: u32, thread: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    line.split_whitespace().next()?.parse().ok()
}

fn threads(process: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The process and its descendants.
fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut next = 0;
    while let Some(&process) = family.get(next) {
        next += 1;
        for thread in threads(process) {
            let children = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    family
}

/// How busy the machine was in the last minute, in processors.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_line_that_names_it() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((kibibytes(status, "VmHWM:"), kibibytes(status, "VmRSS:")), (Some(2048.0), Some(1024.0)));
        assert_eq!(kibibytes(status, "VmSwap:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_time_and_memory() {
        let mut cpu = Cpu::of(std::process::id());
        let before = cpu.look().unwrap();
        let sum: u64 = (0..5_000_000_u64).map(std::hint::black_box).sum();
        assert!(sum > 0 && cpu.look().unwrap() > before);
        let (now, most) = memory(std::process::id()).unwrap();
        assert!(now > 0.0 && most >= now);
    }
}
