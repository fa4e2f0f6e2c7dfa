//! [`Peer`]: a program of the other side, in Python, with the real packages: installed once, below `target/interop`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use stream_testkit::eventually;

use crate::server::SOON;

const REQUIREMENTS: &str = include_str!("../interop/requirements.txt");

/// A process that publishes or handles messages; killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    what: String,
}

impl Peer {
    /// Starts `script` of `tests/interop` with `args`, for the server at `url`.
    ///
    /// # Panics
    /// When the packages cannot be installed or Python cannot be started.
    pub fn start(script: &str, url: &str, args: &[&str]) -> Self {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let environment = environment();
        let mut command = Command::new(&environment.python);
        if let Some(packages) = &environment.packages {
            command.env("PYTHONPATH", packages);
        }
        let child = command
            .arg(package.join("interop").join(script))
            .args(args)
            .env("REDIS_URL", url)
            .env("PREFECT_REDIS_MESSAGING_URL", url)
            .env("PREFECT_HOME", environment.folder.join("prefect"))
            .stdin(Stdio::null())
            .spawn();
        let what = format!("{script} {}", args.join(" "));
        Self { child: child.unwrap_or_else(|error| panic!("{what}: {error}")), what }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it fails.
    pub async fn done(mut self) {
        let (child, what) = (&mut self.child, self.what.clone());
        let ended = || std::future::ready(child.try_wait().unwrap_or_else(|error| panic!("{what}: {error}")));
        let status: ExitStatus = eventually(3 * SOON, format!("{what} to end"), ended).await;
        assert!(status.success(), "{}: {status}; what it said is above", self.what);
    }

    /// Kills it, with a signal that it cannot do anything about.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug)]
struct Environment {
    folder: PathBuf,
    python: PathBuf,
    /// Where the packages are, if they are not in a virtual environment.
    packages: Option<PathBuf>,
}

/// The environment with the packages, made when it is not there or was made for others.
fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/interop");
        let python = folder.join("venv/bin/python");
        let (done, packages) = (folder.join("installed.txt"), folder.join("packages"));
        if !std::fs::read_to_string(&done).is_ok_and(|installed| installed == REQUIREMENTS) {
            install(&folder, &python, &packages);
            std::fs::write(&done, REQUIREMENTS).unwrap_or_else(|error| panic!("{}: {error}", done.display()));
        }
        if python.exists() {
            Environment { folder, python, packages: None }
        } else {
            Environment { folder, python: "python3".into(), packages: Some(packages) }
        }
    })
}

/// Into a virtual environment, or, where the system's Python cannot make one, into a folder.
fn install(folder: &Path, python: &Path, packages: &Path) {
    for old in ["venv", "packages"] {
        let _ = std::fs::remove_dir_all(folder.join(old));
    }
    std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let requirements = folder.join("requirements.txt");
    std::fs::write(&requirements, REQUIREMENTS).unwrap_or_else(|error| panic!("{}: {error}", requirements.display()));
    let succeeded = |command: &mut Command| command.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    let pip = |python: &Path| {
        let mut command = Command::new(python);
        // Modules are compiled when they are first used, which most never are.
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-compile",
            "--disable-pip-version-check",
            "--requirement",
        ]);
        command.arg(&requirements);
        command
    };
    if succeeded(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv"))) && succeeded(&mut pip(python)) {
        return;
    }
    let _ = std::fs::remove_dir_all(folder.join("venv"));
    eprintln!("python3 cannot make a virtual environment; installing into a folder");
    assert!(
        succeeded(pip(Path::new("python3")).arg("--target").arg(packages)),
        "the packages of tests/interop/requirements.txt could not be installed: this needs python3 with pip, and a \
         package index that pip can reach",
    );
}
