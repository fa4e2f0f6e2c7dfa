//! [`ServerBinary`]: a server that can be started, its version and flavour.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stream_redis::Value;

use super::external::ExternalServer;

/// Who makes a server. Valkey calls itself Redis 7.2.4 for ever in `redis_version`; this and [`ServerVersion`] do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Flavor {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl Flavor {
    /// As in names of servers: `redis`, `valkey`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }
}

/// A version, compared as three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The third number.
    pub patch: u16,
}

impl ServerVersion {
    /// A version of three numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// Reads `7.0.15`; what follows the third number (`-rc1`) does not count.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().splitn(3, '.').map(|part| {
            let digits = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse::<u16>().ok()
        });
        Some(Self::new(numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How a server is had.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A program of this machine.
    Program(PathBuf),
    /// An image of a Docker engine.
    Image { image: String, tag: String },
    /// A server that runs already and is not ours to stop.
    External(ExternalServer),
}

/// A server that [`RealServer::start`](crate::RealServer::start) can start.
#[derive(Debug, Clone)]
pub struct ServerBinary {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) version: ServerVersion,
    pub(crate) flavor: Flavor,
}

impl ServerBinary {
    /// The server of the program at `path`, asked for its `--version`. `name` is what it is called in tables and in
    /// `STREAMKEEPER_SERVER`; without one it is made of flavour and version, as in `redis-7.0`.
    ///
    /// `None` when the program does not run or does not say a version.
    pub fn of_program(path: impl Into<PathBuf>, name: Option<&str>) -> Option<Self> {
        let path = path.into();
        let output = Command::new(&path).arg("--version").output().ok()?;
        let (flavor, version) = parse_version_line(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self::new(name, Source::Program(path), flavor, version))
    }

    pub(crate) fn new(name: Option<&str>, source: Source, flavor: Flavor, version: ServerVersion) -> Self {
        let name = match name {
            Some(name) => name.to_owned(),
            None => format!("{}-{}.{}", flavor.name(), version.major, version.minor),
        };
        Self { name, source, version, flavor }
    }

    /// What the server is called, for example `redis-7.0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program, if it is one of this machine and not a container or an external server.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Program(path) => Some(path),
            Source::Image { .. } | Source::External(_) => None,
        }
    }

    /// The version, as its maker counts.
    pub fn version(&self) -> ServerVersion {
        self.version
    }

    /// Who made it.
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Whether it runs already, named by `REDIS_URL`, so that it cannot be killed, paused or restarted and holds data
    /// that is not the test's. A test that needs more than that says so by failing.
    pub fn is_external(&self) -> bool {
        matches!(self.source, Source::External(_))
    }

    /// Where it is: a path, an image, or an address; never a password.
    pub fn location(&self) -> String {
        match &self.source {
            Source::Program(path) => path.display().to_string(),
            Source::Image { image, tag } => format!("image {image}:{tag}"),
            Source::External(server) => format!("external server at {}", server.address()),
        }
    }
}

/// Reads `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=e08dbad3e06f3fb`.
fn parse_version_line(line: &str) -> Option<(Flavor, ServerVersion)> {
    let flavor = if line.starts_with("Valkey ") { Flavor::Valkey } else { Flavor::Redis };
    let version = line.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    Some((flavor, ServerVersion::parse(version)?))
}

/// One field of an `INFO` reply.
pub(crate) fn info_field<'a>(info: &'a Value, field: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(info.as_bytes()?).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}

/// Flavour and version by an `INFO` reply.
pub(crate) fn parse_info(info: &Value) -> Option<(Flavor, ServerVersion)> {
    match info_field(info, "valkey_version") {
        Some(version) => Some((Flavor::Valkey, ServerVersion::parse(version)?)),
        None => Some((Flavor::Redis, ServerVersion::parse(info_field(info, "redis_version")?)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavor_and_version_are_read_from_the_version_line() {
        #[track_caller]
        fn check(line: &str, expected: Option<(Flavor, ServerVersion)>) {
            assert_eq!(parse_version_line(line), expected);
        }
        check("Redis server v=7.0.15 sha=0:0 malloc=jemalloc", Some((Flavor::Redis, ServerVersion::new(7, 0, 15))));
        check("Valkey server v=9.1.2 sha=0:1 malloc=libc", Some((Flavor::Valkey, ServerVersion::new(9, 1, 2))));
        check("Redis server v=8.6-rc1 sha=0:1", Some((Flavor::Redis, ServerVersion::new(8, 6, 0))));
        check("some other program 1.2", None);
        check("", None);
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(ServerVersion::parse("10.0.0") > ServerVersion::parse("9.11.12"));
        assert!(ServerVersion::parse("8.10.0") > ServerVersion::parse("8.6.3"));
        assert_eq!(ServerVersion::parse("seven"), None);
    }

    #[test]
    fn a_valkey_is_not_taken_for_the_redis_it_claims_to_be() {
        let info = Value::bulk("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n");
        assert_eq!(parse_info(&info), Some((Flavor::Valkey, ServerVersion::new(8, 1, 1))));
        assert_eq!(info_field(&info, "server_name"), Some("valkey"));
        assert_eq!(info_field(&info, "server"), None);
    }
}
