//! The worker processes: started, watched, killed and stopped by their ids, and never outliving the demo.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::history::{End, Exit, History};
use super::journal::{Tail, now};
use crate::Failure;

/// How long a worker may take to stop: its grace period and its last commands.
const STOP_WITHIN: Duration = Duration::from_secs(20);
const SIGABRT: i32 = 6;
/// How much of a log is shown where something went wrong.
const LAST_WORDS: u64 = 4_000;

/// All worker processes of one group.
#[derive(Debug)]
pub(crate) struct Fleet {
    folder: PathBuf,
    url: String,
    any_json: bool,
    workers: Vec<Worker>,
    started: u32,
    pub(crate) history: History,
}

#[derive(Debug)]
struct Worker {
    number: u32,
    /// Its stdin is a pipe that it watches: it ends with us.
    child: Child,
    journal: PathBuf,
    log: PathBuf,
    tail: Tail,
    stopping: Option<Instant>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fleet {
    pub(crate) fn new(folder: &Path, url: String, any_json: bool) -> Self {
        let history = History::default();
        Self { folder: folder.to_owned(), url, any_json, workers: Vec::new(), started: 0, history }
    }

    /// Starts another worker and returns its number.
    ///
    /// # Errors
    /// This program cannot be run again.
    pub(crate) fn start(&mut self) -> Result<u32, Failure> {
        self.started += 1;
        let number = self.started;
        let journal = self.folder.join(format!("journal-{number}"));
        let log = self.folder.join(format!("worker-{number}.log"));
        let mut command = Command::new(this_program()?);
        command.arg0("xtask").arg("demo-worker").args([
            "--url",
            &self.url,
            "--number",
            &number.to_string(),
            "--journal",
        ]);
        command.arg(&journal).current_dir(&self.folder);
        if self.any_json {
            command.arg("--any-json");
        }
        // A Ctrl-C at the terminal is ours to act on.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().map_err(|error| format!("cannot start a worker: {error}"))?;
        self.workers.push(Worker { number, child, journal, log, tail: Tail::default(), stopping: None });
        Ok(number)
    }

    /// Workers that have not been asked to stop, the oldest first.
    pub(crate) fn working(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().filter(|worker| worker.stopping.is_none()).map(|worker| worker.number)
    }

    /// Whether one has been asked to stop and has not ended yet.
    pub(crate) fn is_stopping(&self) -> bool {
        self.workers.iter().any(|worker| worker.stopping.is_some())
    }

    /// Whether all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Takes in what the journals have grown by, and who has ended. Returns the numbers of those that have aborted.
    ///
    /// # Errors
    /// A worker has ended as none should, or does not end.
    pub(crate) fn look(&mut self) -> Result<Vec<u32>, Failure> {
        let mut aborted = Vec::new();
        let mut place = 0;
        while let Some(worker) = self.workers.get_mut(place) {
            // First the process and then its journal, which then has all that there will be.
            let status = worker.child.try_wait()?;
            let at = now();
            take_in(worker, &mut self.history)?;
            let Some(status) = status else {
                if worker.stopping.is_some_and(|since| since.elapsed() > STOP_WITHIN) {
                    let words = last_words(&worker.log);
                    return Err(
                        format!("worker {} has not stopped within {STOP_WITHIN:?}\n{words}", worker.number).into()
                    );
                }
                place += 1;
                continue;
            };
            let how = if status.signal() == Some(SIGABRT) {
                aborted.push(worker.number);
                End::Aborted
            } else if status.success() && worker.stopping.is_some() {
                End::Stopped
            } else {
                return Err(unexpected(worker, status));
            };
            self.history.exits.push(Exit { process: worker.number, at, how });
            self.workers.remove(place);
        }
        Ok(aborted)
    }

    /// Kills a worker with SIGKILL. Returns the number of runs that it was in.
    ///
    /// # Errors
    /// Its journal cannot be read, or there is no such worker.
    pub(crate) fn kill(&mut self, number: u32) -> Result<usize, Failure> {
        let place = self.workers.iter().position(|worker| worker.number == number).ok_or("no such worker")?;
        let mut worker = self.workers.remove(place);
        worker.child.kill()?;
        worker.child.wait()?;
        let at = now();
        take_in(&mut worker, &mut self.history)?;
        self.history.exits.push(Exit { process: number, at, how: End::Killed });
        Ok(self.history.runs.iter().filter(|run| run.process == number && run.ended.is_none()).count())
    }

    /// Asks a worker to stop, by SIGTERM.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn stop(&mut self, number: u32) -> Result<(), Failure> {
        let worker = self.workers.iter_mut().find(|worker| worker.number == number).ok_or("no such worker")?;
        kill_process(Pid::from_child(&worker.child), Signal::TERM)?;
        worker.stopping = Some(Instant::now());
        Ok(())
    }

    /// What the workers that run have logged last, to find out why it does not go on.
    pub(crate) fn last_words(&self) -> String {
        let words = |worker: &Worker| format!("worker {}:\n{}", worker.number, last_words(&worker.log));
        self.workers.iter().map(words).collect::<Vec<_>>().join("\n")
    }
}

/// This program as it runs now, also where a build has meanwhile put another in its place: `cargo xtask test` builds the
/// workspace with other features before it comes to the demo, and on Linux the path of what was replaced names nothing.
fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

fn take_in(worker: &mut Worker, history: &mut History) -> Result<(), Failure> {
    for record in worker.tail.read(&worker.journal)? {
        history.add(worker.number, record);
    }
    Ok(())
}

fn unexpected(worker: &Worker, status: ExitStatus) -> Failure {
    format!("worker {} has ended by itself ({status}); its last words:\n{}", worker.number, last_words(&worker.log))
        .into()
}

fn last_words(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    read().unwrap_or_else(|error| format!("(no log: {error})"))
}
