//! A racer that runs: started with its task in the environment, heard, and killed with the value.

use std::process::Stdio;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::group::GROUP;
use super::racer::Racer;
use crate::Failure;

/// The line that a racer ends with, as far as it has these.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    pub(crate) n: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) allocations: Option<u64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    pub(crate) quantiles_us: Vec<(f64, f64)>,
}

/// A racer that runs. It is killed with the value.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) process: u32,
}

/// A racer's task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Errand<'a> {
    pub(crate) port: u16,
    pub(crate) stream: &'a str,
    pub(crate) entries: u64,
    pub(crate) size: usize,
    pub(crate) more: &'a [(&'a str, &'a str)],
}

impl Running {
    /// Starts a racer.
    ///
    /// # Errors
    /// Its program does not start.
    pub(crate) fn start(racer: &Racer, errand: Errand<'_>) -> Result<Self, Failure> {
        let mut command = Command::new(&racer.program);
        command
            .args(&racer.arguments)
            .env("PORT", errand.port.to_string())
            .env("STREAM", errand.stream)
            .env("GROUP", GROUP)
            .env("EXPECT", errand.entries.to_string())
            .env("SIZE", errand.size.to_string())
            .envs(racer.environment.iter().map(|(name, value)| (name, value)))
            .envs(errand.more.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {}: {error}", racer.program.display()))?;
        let process = child.id().ok_or("it ended at once")?;
        let stdout = child.stdout.take().ok_or("it has no output")?;
        Ok(Self { child, stdout: BufReader::new(stdout).lines(), process })
    }

    /// The line that it ends with; `None` if there is none.
    ///
    /// # Errors
    /// Its output cannot be read.
    pub(crate) async fn told(&mut self) -> Result<Option<Told>, Failure> {
        while let Some(line) = self.stdout.next_line().await? {
            if let Ok(told) = serde_json::from_str(&line) {
                return Ok(Some(told));
            }
        }
        Ok(None)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It failed: with its last words.
    pub(crate) async fn ended(mut self) -> Result<(), Failure> {
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut words).await?;
        }
        let status = self.child.wait().await?;
        let last = words.lines().last().unwrap_or_default();
        if status.success() { Ok(()) } else { Err(format!("it failed ({status}): {last}").into()) }
    }
}
