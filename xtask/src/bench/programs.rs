//! The racers' programs, built in release: a debug build says nothing about speed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::Failure;
use crate::steps::{cargo, root, run};

const PACKAGE: &str = "streamkeeper-bench";

/// Where the programs are.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
    peers: Option<PathBuf>,
}

impl Programs {
    /// Builds ours.
    ///
    /// # Errors
    /// They do not build, or the folder of peers is not there.
    pub(crate) fn build(peers: Option<PathBuf>) -> Result<Self, Failure> {
        let peers = match peers {
            Some(folder) => Some(
                fs::canonicalize(&folder)
                    .map_err(|error| format!("cannot look into the folder of peers {}: {error}", folder.display()))?,
            ),
            None => None,
        };
        let folder = release("racers")?;
        Ok(Self { folder, peers })
    }

    /// The racer of this repository.
    pub(crate) fn client(&self) -> PathBuf {
        self.folder.join("bench-client")
    }

    /// The same with its allocations counted.
    pub(crate) fn counted(&self) -> PathBuf {
        self.folder.join("bench-client-counted")
    }

    /// The folder of peers.
    pub(crate) fn peers(&self) -> Option<&Path> {
        self.peers.as_deref()
    }
}

/// Builds a part of the benchmarks in release, `racers` or `parts`, and returns where its programs are.
///
/// # Errors
/// It does not build.
pub(crate) fn release(part: &str) -> Result<PathBuf, Failure> {
    let package = ["--package", PACKAGE, "--no-default-features", "--features", part, "--bins"];
    if !run(cargo(&[&["build", "--quiet", "--release"], &package[..]].concat()))? {
        return Err("the benchmarks do not build; see above".into());
    }
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    Ok(root().join(target).join("release"))
}
