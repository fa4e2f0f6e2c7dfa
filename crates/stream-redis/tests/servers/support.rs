//! Real servers for the tests: one process each, on a free port of this machine, ended with the test.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The folders of the servers to test against; empty, and said loudly, where none are given.
pub(crate) fn servers() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("STREAMKEEPER_SERVERS") else {
        eprintln!("SKIPPED: set STREAMKEEPER_SERVERS to a folder of servers (one folder each, with `redis-server`)");
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(&root)
        .unwrap_or_else(|error| panic!("STREAMKEEPER_SERVERS={}: {error}", root.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("redis-server").exists())
        .collect();
    assert!(!found.is_empty(), "STREAMKEEPER_SERVERS={} holds no server", root.display());
    found.sort();
    found
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A running server; ended when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    pub(crate) name: String,
    binary: PathBuf,
    args: Vec<String>,
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts the server of the folder `server` with `args` added.
    pub(crate) fn start(server: &Path, args: &[&str]) -> Self {
        Self::try_start(server, args).unwrap_or_else(|| panic!("{} ended at its start", server.display()))
    }

    /// Like [`start`](Self::start); `None` when the server does not take the arguments.
    pub(crate) fn try_start(server: &Path, args: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let binary = server.join("redis-server");
        let name = server.file_name().unwrap().to_string_lossy().into_owned();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = spawn(&binary, port, folder.path(), &args);
        let mut this = Self { child, port, name, binary, args, folder };
        this.wait().then_some(this)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The path of the unix socket, for servers started with `--unixsocket r.sock`.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("r.sock")
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, in the same folder.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.binary, self.port, self.folder.path(), &self.args);
        assert!(self.wait(), "{} ended at its restart", self.name);
    }

    /// Waits until it says that it is ready; `false` when it ended instead.
    fn wait(&mut self) -> bool {
        let mut log = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let ready = log.by_ref().any(|line| line.unwrap().contains("eady to accept connections"));
        // Nobody reads the log from here on, and the pipe must not fill up.
        std::thread::spawn(move || log.for_each(drop));
        ready
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(binary: &Path, port: u16, folder: &Path, args: &[String]) -> Child {
    Command::new(binary)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .arg("--dir")
        .arg(folder)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", binary.display()))
}
