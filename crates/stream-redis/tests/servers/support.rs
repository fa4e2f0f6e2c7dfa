//! Real servers for the tests: one process each, on a free port of this machine, ended with the test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let binary = server.join("redis-server");
        let name = server.file_name().unwrap().to_string_lossy().into_owned();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let child = spawn(&binary, port, folder.path(), &args);
        let mut this = Self { child, port, name, binary, args, folder };
        this.wait();
        this
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
        self.wait();
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "{} ended at its start", self.name);
            assert!(Instant::now() < deadline, "{} does not listen", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
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
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", binary.display()))
}
