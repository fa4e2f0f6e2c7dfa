//! Running other programs: what is run is printed, and how long it took.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io};

use crate::Failure;

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    let xtask =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_owned)
}

/// The cargo that runs this program, in the workspace's folder.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // Set by the cargo that started this program, and not meant for the packages that the new one builds.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command` with its output on ours. Returns whether it succeeded.
pub(crate) fn run(mut command: Command) -> Result<bool, Failure> {
    println!("$ {}", shown(&command));
    Ok(command.status().map_err(|error| not_started(&command, &error))?.success())
}

/// Runs `command`, shows what it prints to stdout, and gives each line of it to `each`.
pub(crate) fn run_reading(mut command: Command, mut each: impl FnMut(&str)) -> Result<bool, Failure> {
    println!("$ {}", shown(&command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| not_started(&command, &error))?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            each(&line);
        }
    }
    Ok(child.wait()?.success())
}

/// What `command` prints, without showing it; an error if it fails.
pub(crate) fn output_of(mut command: Command) -> Result<String, Failure> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| not_started(&command, &error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        Err(format!("`{}` failed", shown(&command)).into())
    }
}

/// Runs `work` and tells how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let value = work();
    (value, started.elapsed())
}

fn not_started(command: &Command, error: &io::Error) -> Failure {
    format!("could not run `{}`: {error}", shown(command)).into()
}

/// As one would type it, with the variables that were set for it.
fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        let (name, value) = (name.to_string_lossy(), value?.to_string_lossy());
        Some(if value.contains(' ') { format!("{name}='{value}'") } else { format!("{name}={value}") })
    });
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy().into_owned());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").env_remove("HOME");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn the_workspace_is_found() {
        assert!(root().join("xtask").join("Cargo.toml").is_file());
    }
}
