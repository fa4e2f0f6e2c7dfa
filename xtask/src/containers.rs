//! Containers for the suites: their images where none can be pulled, and the step of `cargo xtask test` that runs on them.
//!
//! What must stay true: a machine without an engine or without an image is told so and skips nothing silently, and nothing
//! that was made in the engine outlives the run, but for images.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use stream_testkit::matrix::{Fetch, Surroundings};
use stream_testkit::remove_leftovers;

use crate::Failure;
use crate::integration::Integration;
use crate::steady::State;
use crate::steps::run;

/// What a server's name begins with where it is meant to be a container.
const CONTAINER: &str = "container:";

/// The server of the step: how nodes that are cut off are seen by others is alike in all.
const SERVER: &str = "container:redis-8.0";
/// The suites of the step.
const SUITE: &str = "topology::cut_off";

/// The variable that names a program which makes images of the servers in the folder that it is given.
const TOOL: &str = "STREAMKEEPER_IMAGES";

/// Nodes that are cut off, on containers; or why not.
pub(crate) fn guard() -> Result<State, Failure> {
    match ready() {
        Ok(()) => Integration::on(SERVER, SUITE).run(),
        Err(why) => {
            println!("SKIPPED: {why}. Nothing was cut off from its network here");
            Ok(State::Skipped)
        }
    }
}

fn ready() -> Result<(), String> {
    let mut surroundings = Surroundings::from_env();
    if !cfg!(target_os = "linux") {
        return Err("the addresses of containers can be reached on Linux only".to_owned());
    }
    if surroundings.redis_url.is_some() {
        return Err("REDIS_URL names the server to test on".to_owned());
    }
    remove_leftovers()?;
    provide(&mut surroundings, SERVER);
    surroundings.servers().map(|_| ()).map_err(|error| error.to_string())
}

/// Makes the images that a selection needs and the engine does not have, if that can be done here; what is still missing then
/// is pulled, or told, by whoever asks for it.
pub(crate) fn provide(surroundings: &mut Surroundings, selection: &str) {
    surroundings.selection = Some(selection.to_owned());
    let folder = surroundings.folder.clone().unwrap_or_else(|| surroundings.own_folder.clone());
    if wants_containers(selection) && is_missing(surroundings) {
        match env::var_os(TOOL).map(PathBuf::from) {
            Some(tool) if folder.is_dir() => {
                if let Err(error) = make(&tool, &folder) {
                    println!("could not make images: {error}");
                }
            }
            Some(_) => println!("no image can be made: there are no servers in {}", folder.display()),
            None => println!("there is no image, and {TOOL} names no program that makes any"),
        }
    }
}

/// Whether any server of a selection is to be a container.
pub(crate) fn wants_containers(selection: &str) -> bool {
    selection.split(',').any(|name| name.trim().starts_with(CONTAINER))
}

fn is_missing(surroundings: &Surroundings) -> bool {
    let mut here = surroundings.clone();
    here.fetch = Fetch::Present;
    here.servers().is_err()
}

fn make(tool: &Path, folder: &Path) -> Result<(), Failure> {
    let mut command = Command::new(tool);
    command.arg(folder);
    if run(command)? { Ok(()) } else { Err("the command failed; its output is above".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_selection_that_names_a_container_needs_images() {
        assert!(wants_containers("redis-7.0, container:redis-8.0"));
        assert!(wants_containers("container:all"));
        assert!(!wants_containers("redis-7.0,all"));
    }
}
