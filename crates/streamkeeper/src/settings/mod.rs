//! Settings from the environment: [`Settings`], and the table of the variables that it reads.
//!
#![doc = include_str!("../docs/settings.md")]

mod error;
mod parse;
mod table;
#[cfg(test)]
mod tests;
mod values;

use std::ffi::{OsStr, OsString};
use std::fmt;

use stream_consumer::{DurableBuilder, EphemeralBuilder};
use stream_core::Partitions;
use stream_maint::{DeadLetters, TrimmerBuilder};
use stream_redis::{Client, ConnectOptions, Error, PrefectPublisherBuilder, PublisherBuilder};

pub use error::{SettingProblem, SettingsError};

use table::{PARTS, Part, VARIABLES, Variable};
use values::{Servers, Values};

/// The prefix of Prefect's own variables; with it, the defaults are Prefect's.
pub const PREFECT_PREFIX: &str = "PREFECT_REDIS_MESSAGING_";

/// The table of variables as Markdown, as it stands above: for the manual or the help text of a program.
///
/// ```
/// assert!(streamkeeper::settings::table().contains("| `CONSUMER_BLOCK` | `5` | `1` |"));
/// ```
pub fn table() -> String {
    table::rendered()
}

/// Settings from the environment, checked: where the server is, and builders for whatever works there. The variables are in
/// the [table](self) of this module.
///
/// ```
/// use std::time::Duration;
/// use streamkeeper::{Partitions, settings::Settings};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // As `Settings::from_env("ORDERS_")` with these two in the environment.
/// let settings = Settings::from_vars("ORDERS_", [("ORDERS_URL", "redis://db/1"), ("ORDERS_CONSUMER_BLOCK", "250ms")])?;
/// let client = settings.client();
/// let billing = settings.durable(&client, "orders", "billing").concurrency(8).build()?;
/// let tail = settings.ephemeral(&client, "orders").build()?;
/// let trimmer = settings.trimmer(&client, "orders").build()?;
/// let publisher = settings.publisher(&client, "orders").build()?;
///
/// let events = Partitions::new("events", 16)?; // one logical stream over several
/// let actions = settings.durable_partitions(&client, &events, "actions").build()?;
/// let events = settings.publisher_partitions(&client, &events).build_partitioned()?;
///
/// let error = Settings::from_vars("ORDERS_", [("ORDERS_CONSUMER_BLOK", "5")]).unwrap_err();
/// assert_eq!(error.to_string(), "ORDERS_CONSUMER_BLOK: there is no such setting: did you mean ORDERS_CONSUMER_BLOCK?");
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Settings {
    prefix: String,
    values: Values,
    servers: Servers,
}

impl fmt::Debug for Settings {
    /// The address without its password; no other value, since any might be a secret that went into the wrong variable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = format_args!("{}", self.connect_options());
        f.debug_struct("Settings").field("prefix", &self.prefix).field("server", &server).finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads every variable of this process whose name begins with `prefix`.
    ///
    /// # Errors
    /// [`SettingsError`] names each variable that is unknown, cannot be read, or is refused by the builder that it is for, and
    /// says what to write. An empty prefix is refused: every variable of the process would be a setting.
    pub fn from_env(prefix: &str) -> Result<Self, SettingsError> {
        Self::from_vars(prefix, std::env::vars_os())
    }

    /// The same from names and values of one's own: for tests, and for whoever keeps them elsewhere. Of a name that comes
    /// twice, the last value is taken.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_vars<N, V>(prefix: &str, vars: impl IntoIterator<Item = (N, V)>) -> Result<Self, SettingsError>
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let mut problems = Vec::new();
        let mut refuse =
            |name: &str, problem: String| problems.push(SettingProblem { variable: name.to_owned(), problem });
        if prefix.is_empty() {
            refuse("the prefix", "it is empty: name what the settings begin with, as in ORDERS_".to_owned());
            return Err(SettingsError::new(problems));
        }
        let defaults = Values::defaults(prefix == PREFECT_PREFIX);
        let mut given = Given(Vec::new());
        for (name, value) in sorted(vars) {
            let Some(name) = name.to_str().filter(|name| name.starts_with(prefix)) else { continue };
            let Some(variable) = VARIABLES.iter().find(|variable| variable.name == &name[prefix.len()..]) else {
                refuse(name, unknown(prefix, &name[prefix.len()..]));
                continue;
            };
            let Some(text) = value.to_str() else {
                refuse(name, "its value is not UTF-8".to_owned());
                continue;
            };
            given.0.retain(|(before, _)| before.name != variable.name);
            match (variable.set)(&mut defaults.clone(), text) {
                Ok(()) => given.0.push((variable, text.to_owned())),
                Err(problem) if text.is_empty() => {
                    refuse(name, format!("{problem} (it is empty: leave it out for the default)"));
                }
                Err(problem) => refuse(name, problem),
            }
        }
        for part in PARTS {
            for (names, problem) in given.complaints(&defaults, part) {
                let names: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
                refuse(&names.join(", "), problem);
            }
        }
        let values = given.on(&defaults, |_| true);
        match values.servers() {
            Ok(servers) if problems.is_empty() => {
                given.warn_of_overruled(prefix);
                Ok(Self { prefix: prefix.to_owned(), values, servers })
            }
            _ => Err(SettingsError::new(problems)),
        }
    }

    /// What the variables begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How to greet the server, and where it is, if it is one: a master that sentinels watch and the nodes of a cluster are
    /// found when they are needed.
    pub fn connect_options(&self) -> &ConnectOptions {
        self.servers.connect_options()
    }

    /// A client of the server, the watched master or the cluster. Connects to nothing yet.
    pub fn client(&self) -> Client {
        self.servers.client()
    }

    /// A durable consumer with these settings, to be changed further and built.
    pub fn durable(&self, client: &Client, stream: impl AsRef<[u8]>, group: impl AsRef<[u8]>) -> DurableBuilder {
        self.values.durable(client, group.as_ref()).stream(stream)
    }

    /// A durable consumer of all partitions with these settings.
    pub fn durable_partitions(
        &self,
        client: &Client,
        partitions: &Partitions,
        group: impl AsRef<[u8]>,
    ) -> DurableBuilder {
        self.values.durable(client, group.as_ref()).partitions(partitions)
    }

    /// An ephemeral consumer with these settings: it follows the live tail, one entry at a time, unless it is told otherwise.
    pub fn ephemeral(&self, client: &Client, stream: impl AsRef<[u8]>) -> EphemeralBuilder {
        self.values.ephemeral(client).stream(stream)
    }

    /// An ephemeral consumer of all partitions with these settings.
    pub fn ephemeral_partitions(&self, client: &Client, partitions: &Partitions) -> EphemeralBuilder {
        self.values.ephemeral(client).partitions(partitions)
    }

    /// A publisher with these settings.
    pub fn publisher(&self, client: &Client, stream: impl AsRef<[u8]>) -> PublisherBuilder {
        self.values.publisher(client).stream(stream)
    }

    /// A publisher for partitions with these settings, to be started with
    /// [`build_partitioned`](PublisherBuilder::build_partitioned). Batch and buffer are those of each partition.
    pub fn publisher_partitions(&self, client: &Client, partitions: &Partitions) -> PublisherBuilder {
        self.values.publisher(client).partitions(partitions)
    }

    /// A trimmer with these settings.
    pub fn trimmer(&self, client: &Client, stream: impl AsRef<[u8]>) -> TrimmerBuilder {
        self.values.trimmer(client, stream.as_ref())
    }

    /// The dead letters of `stream`: those that consumers with these settings write.
    ///
    /// # Errors
    /// When the stream has no name.
    pub fn dead_letters(&self, client: &Client, stream: impl AsRef<[u8]>) -> Result<DeadLetters, Error> {
        match &self.values.dead_letter {
            Some(key) => DeadLetters::new(client, key),
            None if stream.as_ref().is_empty() => DeadLetters::new(client, ""),
            None => DeadLetters::new(client, [stream.as_ref(), b":dead"].concat()),
        }
    }

    /// A publisher of Prefect's messages with these settings, which drops duplicates as they say.
    pub fn prefect_publisher(&self, client: &Client, topic: impl AsRef<str>) -> PrefectPublisherBuilder {
        self.values.prefect_publisher(client, topic.as_ref())
    }

    /// What `CONSUMER_AUTOMATICALLY_ACKNOWLEDGE` says. Handlers acknowledge by what they return in any case.
    pub fn acknowledges_automatically(&self) -> bool {
        self.values.acknowledge
    }
}

/// In the order of the names, so that errors are always the same; of one name the last value comes last.
fn sorted<N: AsRef<OsStr>, V: AsRef<OsStr>>(vars: impl IntoIterator<Item = (N, V)>) -> Vec<(OsString, OsString)> {
    let owned = |(name, value): (N, V)| (name.as_ref().to_owned(), value.as_ref().to_owned());
    let mut vars: Vec<(OsString, OsString)> = vars.into_iter().map(owned).collect();
    vars.sort_by(|(one, _), (other, _)| one.cmp(other));
    vars
}

fn unknown(prefix: &str, name: &str) -> String {
    let near = VARIABLES.iter().map(|variable| (distance(variable.name, name), variable.name)).min();
    match near {
        Some((edits, near)) if edits <= 3 => format!("there is no such setting: did you mean {prefix}{near}?"),
        _ => "there is no such setting: remove it, or look its name up in the table of `streamkeeper::settings`"
            .to_owned(),
    }
}

/// So many letters have to be put in, taken out or changed to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.bytes().enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (place, against) in other.bytes().enumerate() {
            let changed = before + usize::from(letter != against);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

/// Variables that were given and can be read, with their texts.
struct Given(Vec<(&'static Variable, String)>);

impl Given {
    /// `defaults` with those that `wanted` picks.
    fn on(&self, defaults: &Values, wanted: impl Fn(&Variable) -> bool) -> Values {
        let mut values = defaults.clone();
        for (variable, text) in self.0.iter().filter(|(variable, _)| wanted(variable)) {
            // It was read before, so it can be read.
            let _ = (variable.set)(&mut values, text);
        }
        values
    }

    /// What the builders refuse of one part, and the names of the variables that it is about.
    fn complaints(&self, defaults: &Values, part: Part) -> Vec<(Vec<&'static str>, String)> {
        let all = self.on(defaults, |one| one.part == part);
        let Err(problem) = all.check(part) else { return Vec::new() };
        let names = || self.0.iter().filter(|(variable, _)| variable.part == part).map(|(variable, _)| variable.name);
        let suspects: Vec<_> =
            names().filter(|name| self.on(defaults, |one| one.name == *name).check(part).is_err()).collect();
        let mut complaints = Vec::new();
        for suspect in &suspects {
            // Beside what is above suspicion: another value may be what makes this one right.
            let beside =
                self.on(defaults, |one| one.part == part && (one.name == *suspect || !suspects.contains(&one.name)));
            if let Err(problem) = beside.check(part) {
                complaints.push((vec![*suspect], problem));
            }
        }
        if complaints.is_empty() {
            // Each would do; they do not go together.
            complaints.push((names().collect(), problem));
        }
        complaints
    }

    /// A URL goes before the variables for its parts, and that is said.
    fn warn_of_overruled(&self, prefix: &str) {
        const OVERRULED: [&str; 6] = ["HOST", "PORT", "DB", "USERNAME", "PASSWORD", "SSL"];
        if self.0.iter().any(|(variable, text)| variable.name == "URL" && !text.is_empty()) {
            for (variable, _) in self.0.iter().filter(|(variable, _)| OVERRULED.contains(&variable.name)) {
                tracing::warn!("{prefix}{} is not used, because {prefix}URL says where the server is", variable.name);
            }
        }
    }
}
