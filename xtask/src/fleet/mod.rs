//! Worker processes: started, watched, frozen, killed and stopped by their ids, and never outliving this one.

pub(crate) mod journal;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stream_testkit::history::{Cause, Ending, Event, History, Returned, What};
use streamkeeper::EntryId;

use self::journal::{Tail, now};
use crate::Failure;

/// How long a worker may take to stop: its grace period and its last commands.
const STOP_WITHIN: Duration = Duration::from_secs(30);
const SIGABRT: i32 = 6;
const SIGTERM: i32 = 15;
/// How much of a log is shown where something went wrong.
const LAST_WORDS: u64 = 4_000;

/// All worker processes of one group, and what they and others wrote down.
#[derive(Debug)]
pub(crate) struct Fleet {
    folder: PathBuf,
    workers: Vec<Worker>,
    started: u32,
    pub(crate) history: History,
    handled: HashSet<EntryId>,
    starts: usize,
    running: HashMap<u32, usize>,
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
    frozen: Option<u64>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Fleet {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            workers: Vec::new(),
            started: 0,
            history: History::default(),
            handled: HashSet::new(),
            starts: 0,
            running: HashMap::new(),
        }
    }

    /// The number of the worker that is started next.
    pub(crate) fn next(&self) -> u32 {
        self.started + 1
    }

    /// Starts another worker, as this program with `arguments`, a number and a journal. Returns the number.
    ///
    /// # Errors
    /// This program cannot be run again.
    pub(crate) fn start(&mut self, arguments: &[String]) -> Result<u32, Failure> {
        self.started += 1;
        let number = self.started;
        let journal = self.folder.join(format!("journal-{number}"));
        let log = self.folder.join(format!("worker-{number}.log"));
        let mut command = Command::new(this_program()?);
        command.arg0("xtask").args(arguments).args(["--number", &number.to_string(), "--journal"]);
        command.arg(&journal).current_dir(&self.folder);
        // A Ctrl-C at the terminal is ours to act on.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().map_err(|error| format!("cannot start a worker: {error}"))?;
        let worker = Worker { number, child, journal, log, tail: Tail::default(), stopping: None, frozen: None };
        self.workers.push(worker);
        Ok(number)
    }

    /// Adds what somebody else has written down.
    pub(crate) fn add(&mut self, event: Event) {
        match event.what {
            What::Started { process, .. } => {
                self.starts += 1;
                *self.running.entry(process).or_default() += 1;
            }
            What::Finished { process, entry, result, .. } => {
                if result == Returned::Done {
                    self.handled.insert(entry);
                }
                if let Some(running) = self.running.get_mut(&process) {
                    *running = running.saturating_sub(1);
                }
            }
            _ => {}
        }
        self.history.add(event.at, event.what);
    }

    fn add_all(&mut self, events: Vec<Event>) {
        for event in events {
            self.add(event);
        }
    }

    /// Entries that were handled at least once.
    pub(crate) fn handled(&self) -> u64 {
        self.handled.len() as u64
    }

    /// Starts of handlers.
    pub(crate) fn starts(&self) -> usize {
        self.starts
    }

    /// Workers that work: neither frozen nor asked to stop, the oldest first.
    pub(crate) fn working(&self) -> impl Iterator<Item = u32> {
        let works = |worker: &&Worker| worker.stopping.is_none() && worker.frozen.is_none();
        self.workers.iter().filter(works).map(|worker| worker.number)
    }

    /// How many have not been asked to stop, frozen ones included.
    pub(crate) fn alive(&self) -> usize {
        self.workers.iter().filter(|worker| worker.stopping.is_none()).count()
    }

    /// Whether one has been asked to stop and has not ended yet.
    pub(crate) fn is_stopping(&self) -> bool {
        self.workers.iter().any(|worker| worker.stopping.is_some())
    }

    /// Whether all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Takes in what the journals have grown by, and who has ended. Returns who that is, and how.
    ///
    /// # Errors
    /// A worker has ended as none should, or does not end.
    pub(crate) fn look(&mut self) -> Result<Vec<(u32, Ending)>, Failure> {
        let mut ended = Vec::new();
        let mut place = 0;
        while let Some(worker) = self.workers.get_mut(place) {
            // First the process and then its journal, which then has all that there will be.
            let status = worker.child.try_wait()?;
            let at = now();
            let events = worker.tail.read(&worker.journal)?;
            let Some(status) = status else {
                if worker.stopping.is_some_and(|since| since.elapsed() > STOP_WITHIN) {
                    let words = last_words(&worker.log);
                    return Err(
                        format!("worker {} has not stopped within {STOP_WITHIN:?}\n{words}", worker.number).into()
                    );
                }
                place += 1;
                self.add_all(events);
                continue;
            };
            let how = if status.signal() == Some(SIGABRT) {
                Ending::Aborted
            } else if worker.stopping.is_some() && (status.success() || is_unheard(status, &worker.tail)) {
                Ending::Stopped
            } else {
                return Err(unexpected(worker, status));
            };
            let process = worker.number;
            ended.push((process, how));
            self.workers.remove(place);
            self.add_all(events);
            self.history.add(at, What::ProcessEnded { process, how });
        }
        Ok(ended)
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
        let events = worker.tail.read(&worker.journal)?;
        self.add_all(events);
        self.history.add(at, What::ProcessEnded { process: number, how: Ending::Killed });
        Ok(self.running.get(&number).copied().unwrap_or(0))
    }

    /// Asks a worker to stop, by SIGTERM.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn stop(&mut self, number: u32) -> Result<(), Failure> {
        let at = now();
        let worker = self.worker(number)?;
        kill_process(Pid::from_child(&worker.child), Signal::TERM)?;
        worker.stopping = Some(Instant::now());
        self.history.add(at, What::Stopping { process: number });
        Ok(())
    }

    /// Freezes a worker, by SIGSTOP.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn freeze(&mut self, number: u32) -> Result<(), Failure> {
        let worker = self.worker(number)?;
        worker.frozen = Some(now());
        kill_process(Pid::from_child(&worker.child), Signal::STOP)?;
        Ok(())
    }

    /// Lets a frozen worker go on, and writes down for how long it was silent. One that had just come to its own end when it
    /// was to be frozen is gone by now.
    ///
    /// # Errors
    /// It cannot be signalled.
    pub(crate) fn thaw(&mut self, number: u32) -> Result<(), Failure> {
        let Ok(worker) = self.worker(number) else { return Ok(()) };
        kill_process(Pid::from_child(&worker.child), Signal::CONT)?;
        if let Some(since) = worker.frozen.take() {
            self.history.add(now(), What::Silence { process: Some(number), cause: Cause::Frozen, since });
        }
        Ok(())
    }

    fn worker(&mut self, number: u32) -> Result<&mut Worker, Failure> {
        self.workers.iter_mut().find(|worker| worker.number == number).ok_or_else(|| "no such worker".into())
    }

    /// What the workers that run have logged last, to find out why it does not go on.
    pub(crate) fn last_words(&self) -> String {
        let words = |worker: &Worker| format!("worker {}:\n{}", worker.number, last_words(&worker.log));
        self.workers.iter().map(words).collect::<Vec<_>>().join("\n")
    }
}

/// This program as it runs now, also where a build has meanwhile put another in its place: `cargo xtask test` builds the
/// workspace with other features before it comes to the demo, and on Linux the path of what was replaced names nothing.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// What a worker process does first: no core file for each abort, a log on stderr, and an end when the process that started
/// it is gone, since nobody else would end it then.
pub(crate) fn begin_worker() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    let level = tracing_subscriber::filter::LevelFilter::WARN;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).init();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        eprintln!("the process that started this one is gone");
        std::process::exit(3);
    });
}

/// Whether the signal to stop came before the process could listen to it, and so before it had begun anything.
fn is_unheard(status: ExitStatus, tail: &Tail) -> bool {
    status.signal() == Some(SIGTERM) && !tail.has_begun()
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
