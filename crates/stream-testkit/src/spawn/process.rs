//! A server as a process of this machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;
use tokio::time::Instant;

use super::options::SOCKET;
use super::port::free_port;
use super::{ServerOptions, SpawnError, is_ready, last_words};
use crate::wait::pause;

/// How many ports are tried before the machine is held to be full.
const TRIES: u32 = 20;

#[derive(Debug)]
pub(super) struct Process {
    program: PathBuf,
    child: Child,
    folder: TempDir,
}

/// What came of one start on one port.
enum Started {
    Ready,
    PortTaken,
}

impl Process {
    pub(super) async fn start(program: &Path, options: &ServerOptions) -> Result<(Self, u16), SpawnError> {
        let io = |source| SpawnError::Io { what: program.display().to_string(), source };
        for _ in 0..TRIES {
            let port = free_port().ok_or(SpawnError::NoPort { tries: TRIES })?;
            let folder = tempfile::Builder::new().prefix("stream-testkit-").tempdir().map_err(io)?;
            let child = spawn(program, folder.path(), port, options)?;
            let mut this = Self { program: program.to_owned(), child, folder };
            match this.until_ready(port, options).await? {
                Started::Ready => return Ok((this, port)),
                Started::PortTaken => drop(this),
            }
        }
        Err(SpawnError::NoPort { tries: TRIES })
    }

    pub(super) async fn restart(&mut self, port: u16, options: &ServerOptions) -> Result<(), SpawnError> {
        self.kill9()?;
        let deadline = Instant::now() + options.deadline();
        loop {
            self.child = spawn(&self.program, self.folder.path(), port, options)?;
            match self.until_ready(port, options).await? {
                Started::Ready => return Ok(()),
                Started::PortTaken if Instant::now() < deadline => pause().await,
                Started::PortTaken => return Err(self.not_ready(options, None)),
            }
        }
    }

    pub(super) fn kill9(&mut self) -> Result<(), SpawnError> {
        let signal = |source| SpawnError::Signal { action: "kill", source };
        self.child.kill().map_err(signal)?;
        self.child.wait().map_err(signal)?;
        Ok(())
    }

    pub(super) fn pause(&self) -> Result<(), SpawnError> {
        let signal = |source: rustix::io::Errno| SpawnError::Signal { action: "pause", source: source.into() };
        kill_process(self.pid(), Signal::STOP).map_err(signal)?;
        // The signal is on its way; this returns when it has arrived, or when the process has ended instead.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options).map_err(signal)?;
        Ok(())
    }

    pub(super) fn resume(&self) -> Result<(), SpawnError> {
        kill_process(self.pid(), Signal::CONT)
            .map_err(|source| SpawnError::Signal { action: "resume", source: source.into() })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(log_of(self.folder.path())).unwrap_or_default()).into_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    async fn until_ready(&mut self, port: u16, options: &ServerOptions) -> Result<Started, SpawnError> {
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + options.deadline();
        loop {
            let answer = is_ready(&address, options, Some(self.child.id())).await;
            let what = || self.program.display().to_string();
            let ended = self.child.try_wait().map_err(|source| SpawnError::Io { what: what(), source })?;
            match (ended, answer) {
                (None, Ok(true)) => return Ok(Started::Ready),
                (Some(_), _) if self.log().contains("Address already in use") => return Ok(Started::PortTaken),
                (Some(status), _) => {
                    return Err(SpawnError::Ended {
                        what: what(),
                        status: status.to_string(),
                        log: last_words(&self.log()),
                    });
                }
                (None, answer) if Instant::now() >= deadline => return Err(self.not_ready(options, answer.err())),
                (None, _) => pause().await,
            }
        }
    }

    fn not_ready(&self, options: &ServerOptions, source: Option<super::CliError>) -> SpawnError {
        SpawnError::NotReady {
            what: self.program.display().to_string(),
            waited: options.deadline(),
            log: last_words(&self.log()),
            source,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process is gone already, and then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

fn spawn(program: &Path, folder: &Path, port: u16, options: &ServerOptions) -> Result<Child, SpawnError> {
    let io = |source| SpawnError::Io { what: program.display().to_string(), source };
    // Errors of the command line go to stderr before the server has a log, so both streams are the log.
    let log = File::create(log_of(folder)).map_err(io)?;
    let mut command = Command::new(program);
    if let Some(text) = options.config_text() {
        let file = folder.join("server.conf");
        if !file.exists() {
            fs::write(&file, text).map_err(io)?;
        }
        command.arg(file);
    }
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--dir"]).arg(folder);
    if options.wants_unix_socket() {
        command.arg("--unixsocket").arg(folder.join(SOCKET));
    }
    command.args(options.common_args()).current_dir(folder);
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(io)?).stderr(log);
    command.spawn().map_err(io)
}
