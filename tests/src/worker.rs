//! [`Worker`]: a consumer in a process of its own, to be frozen and killed.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use stream_testkit::eventually;

use crate::server::SOON;

/// A worker process; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    journal: PathBuf,
}

impl Worker {
    /// Starts `program` (the test package's `test-worker`) with its arguments, of which the fifth is the journal.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(program: &str, args: &[&str]) -> Self {
        let child = Command::new(program).args(args).stdout(Stdio::null()).spawn().unwrap();
        Self { child, journal: PathBuf::from(args[4]) }
    }

    /// What its handlers have written so far.
    pub fn journal(&self) -> String {
        std::fs::read_to_string(&self.journal).unwrap_or_default()
    }

    /// Waits for a line that begins with `start`.
    pub async fn wrote(&self, start: &str) -> String {
        eventually(SOON, format!("a line with {start:?}"), || {
            let found = self.journal().lines().find(|line| line.starts_with(start)).map(str::to_owned);
            std::future::ready(found)
        })
        .await
    }

    /// Freezes it; returns when it has stopped.
    ///
    /// # Panics
    /// When it is dead.
    pub fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options).unwrap();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it is dead.
    pub fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// Asks it to stop and waits for its end; true when it ended well.
    ///
    /// # Panics
    /// When it is dead already.
    pub async fn stop(mut self) -> bool {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let child = &mut self.child;
        eventually(SOON, "the worker to end", || std::future::ready(child.try_wait().unwrap())).await.success()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
