//! [`VARIABLES`]: every variable with its default, its meaning and how its text becomes a value.
//!
//! What must stay true: a default is the text that a user would write for it and goes the same way, so this table cannot
//! say something else than what happens; a test holds the documentation against it.

use super::parse::{self, Parsed};
use super::values::Values;

/// What a variable is about; values of one part are checked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Connection,
    Publisher,
    Consumer,
    Trimming,
    DeadLetters,
}

pub(super) const PARTS: [Part; 5] =
    [Part::Connection, Part::Publisher, Part::Consumer, Part::Trimming, Part::DeadLetters];

#[derive(Clone, Copy)]
pub(super) struct Variable {
    pub(super) part: Part,
    /// What follows the prefix.
    pub(super) name: &'static str,
    /// As one would write it; empty where there is none.
    pub(super) default: &'static str,
    /// The default with Prefect's own prefix, where it is another.
    pub(super) prefect: Option<&'static str>,
    pub(super) meaning: &'static str,
    pub(super) set: fn(&mut Values, &str) -> Parsed<()>,
}

impl Variable {
    pub(super) fn default_for(&self, prefect: bool) -> &'static str {
        if prefect { self.prefect.unwrap_or(self.default) } else { self.default }
    }
}

const fn var(
    part: Part,
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
    set: fn(&mut Values, &str) -> Parsed<()>,
) -> Variable {
    Variable { part, name, default, prefect: None, meaning, set }
}

const fn as_prefect(prefect: &'static str, variable: Variable) -> Variable {
    Variable { prefect: Some(prefect), ..variable }
}

/// A setter of one value, made by one parser.
macro_rules! set {
    ($field:ident = $parser:expr) => {
        |values, text| {
            values.$field = $parser(text)?;
            Ok(())
        }
    };
}

/// The same where an empty text is no value.
macro_rules! maybe {
    ($field:ident = $parser:expr) => {
        |values, text| {
            values.$field = if text.is_empty() { None } else { Some($parser(text)?) };
            Ok(())
        }
    };
}

fn text(text: &str) -> Parsed<String> {
    Ok(text.to_owned())
}

pub(super) const VARIABLES: &[Variable] = &[
    var(
        Part::Connection,
        "URL",
        "",
        "where the server is, or `redis+sentinel://…`, `redis+cluster://…`; goes before `HOST`, `PORT`, `DB`, `USERNAME`, `PASSWORD` and `SSL`",
        maybe!(url = text),
    ),
    var(Part::Connection, "HOST", "localhost", "its name or address", set!(host = text)),
    var(Part::Connection, "PORT", "6379", "its port", set!(port = |text| parse::number(text, "1 to 65535"))),
    var(
        Part::Connection,
        "DB",
        "0",
        "the number of the database",
        set!(database = |text| parse::number(text, "0 or more")),
    ),
    as_prefect(
        "default",
        var(
            Part::Connection,
            "USERNAME",
            "",
            "the ACL user; `default` without a password is no user",
            maybe!(username = text),
        ),
    ),
    var(Part::Connection, "PASSWORD", "", "the password", maybe!(password = text)),
    var(Part::Connection, "SSL", "false", "whether to encrypt (feature `rustls`)", set!(tls = parse::yes)),
    as_prefect(
        "20",
        var(
            Part::Connection,
            "HEALTH_CHECK_INTERVAL",
            "15",
            "the silence after which the system probes the peer (TCP keepalive), from 1 s; 0 turns that off",
            set!(keepalive = parse::duration),
        ),
    ),
    var(
        Part::Connection,
        "SOCKET_CONNECT_TIMEOUT",
        "",
        "how long connecting and greeting may take; without, 5 s",
        maybe!(connect_timeout = parse::duration),
    ),
    var(
        Part::Connection,
        "SOCKET_TIMEOUT",
        "",
        "how long the answer to a command may take; without, 5 s. Reads that wait have their own limit, `CONSUMER_BLOCK` and a margin",
        maybe!(response_timeout = parse::duration),
    ),
    as_prefect(
        "2",
        var(
            Part::Connection,
            "PROTOCOL",
            "",
            "2 or 3, for RESP2 or RESP3; without, 3, and 2 where the server does not know it",
            maybe!(protocol = super::values::protocol),
        ),
    ),
    var(
        Part::Connection,
        "RECONNECT_BASE",
        "1",
        "the longest first pause after a failure",
        set!(reconnect_base = parse::duration),
    ),
    var(Part::Connection, "RECONNECT_MAX", "60", "the longest pause of all", set!(reconnect_max = parse::duration)),
    as_prefect(
        "5",
        var(
            Part::Publisher,
            "PUBLISHER_BATCH_SIZE",
            "100",
            "entries in one write, 1 to 10000",
            set!(batch = |text| parse::number(text, "1 to 10000")),
        ),
    ),
    as_prefect(
        "10",
        var(
            Part::Publisher,
            "PUBLISHER_PUBLISH_EVERY",
            "0",
            "how long an incomplete batch waits for more, up to 10 s",
            set!(publish_every = parse::duration),
        ),
    ),
    var(
        Part::Publisher,
        "PUBLISHER_DEDUPLICATE_BY",
        "",
        "the attribute by which `Settings::prefect_publisher` drops duplicates; the plain publisher drops none",
        maybe!(deduplicate_by = text),
    ),
    var(
        Part::Publisher,
        "PUBLISHER_BUFFER",
        "10000",
        "entries accepted and not confirmed; more wait",
        set!(buffer = |text| parse::number(text, "1 to 1000000")),
    ),
    as_prefect(
        "1",
        var(
            Part::Consumer,
            "CONSUMER_BLOCK",
            "5",
            "how long one read waits on the server, 1 ms to 60 s",
            set!(block = parse::duration),
        ),
    ),
    as_prefect(
        "5",
        var(
            Part::Consumer,
            "CONSUMER_MIN_IDLE_TIME",
            "30",
            "the lease: how soon the death of a process is noticed",
            set!(lease = parse::duration),
        ),
    ),
    var(
        Part::Consumer,
        "CONSUMER_CLAIM_EVERY",
        "",
        "how often to look for what dead processes left; without, a third of the lease",
        maybe!(claim_every = parse::duration),
    ),
    as_prefect(
        "3",
        var(
            Part::Consumer,
            "CONSUMER_MAX_RETRIES",
            "7",
            "attempts after the first; then the entry is a dead letter",
            set!(retries = |text| parse::number(text, "0 or more")),
        ),
    ),
    var(
        Part::Consumer,
        "CONSUMER_RETRY_DELAY",
        "1",
        "the first pause before another attempt, which doubles; 0 for no pauses",
        set!(retry_delay = parse::duration),
    ),
    var(
        Part::Consumer,
        "CONSUMER_RETRY_DELAY_MAX",
        "300",
        "the longest such pause",
        set!(retry_delay_max = parse::duration),
    ),
    var(
        Part::Consumer,
        "CONSUMER_SHOULD_PROCESS_PENDING_MESSAGES",
        "true",
        "whether to take over what dead processes left",
        set!(take_over = parse::yes),
    ),
    var(
        Part::Consumer,
        "CONSUMER_STARTING_MESSAGE_ID",
        "0",
        "where a group begins that has to be created: 0, $, or the id after which",
        set!(start = parse::start),
    ),
    var(
        Part::Consumer,
        "CONSUMER_AUTOMATICALLY_ACKNOWLEDGE",
        "true",
        "understood, and changes nothing: a handler acknowledges by what it returns, and whoever pulls deliveries by hand",
        set!(acknowledge = parse::yes),
    ),
    var(
        Part::Consumer,
        "CONSUMER_CONCURRENCY",
        "64",
        "handlers at a time of a durable consumer; an ephemeral one has one",
        set!(concurrency = |text| parse::number(text, "1 to 1000000")),
    ),
    var(
        Part::Consumer,
        "CONSUMER_PREFETCH",
        "1000",
        "entries of each stream held beyond those that run",
        set!(prefetch = |text| parse::number(text, "0 to 1000000")),
    ),
    var(
        Part::Consumer,
        "CONSUMER_PREFETCH_BYTES",
        "8388608",
        "bytes of entries held before reading pauses",
        set!(prefetch_bytes = |text| parse::number(text, "1 or more")),
    ),
    var(
        Part::Consumer,
        "CONSUMER_TIMEOUT",
        "",
        "how long one attempt may take; without, no limit",
        maybe!(timeout = parse::duration),
    ),
    var(
        Part::Consumer,
        "CONSUMER_GRACE",
        "30",
        "how long running handlers may go on after a stop",
        set!(grace = parse::duration),
    ),
    var(
        Part::Trimming,
        "CONSUMER_TRIM_EVERY",
        "60",
        "how often the fleet trims; less than 1 s is raised to that",
        set!(trim_every = parse::duration),
    ),
    var(
        Part::Trimming,
        "CONSUMER_TRIM_EXCLUDE",
        "",
        "a pattern of group names that are not protected once idle: **their entries are deleted**",
        maybe!(trim_exclude = parse::pattern),
    ),
    var(
        Part::Trimming,
        "CONSUMER_TRIM_IDLE_THRESHOLD",
        "300",
        "after how long without a change a group of `CONSUMER_TRIM_EXCLUDE` is left out, from 60 s; without that pattern no group ever is",
        set!(trim_idle = parse::duration),
    ),
    var(
        Part::Trimming,
        "CONSUMER_TRIM_PROTECT",
        "",
        "groups with commas between that are deployed later and need everything until then",
        maybe!(trim_protect = parse::names),
    ),
    var(
        Part::Trimming,
        "CONSUMER_TRIM_OLDER_THAN",
        "",
        "trims only entries older than this",
        maybe!(trim_older_than = parse::duration),
    ),
    var(
        Part::Trimming,
        "CONSUMER_TRIM_LONGER_THAN",
        "",
        "keeps so many of the newest entries",
        maybe!(trim_longer_than = |text| parse::number(text, "0 or more")),
    ),
    var(
        Part::DeadLetters,
        "DEAD_LETTER_STREAM",
        "",
        "where dead letters go; without, the stream's key and `:dead`",
        maybe!(dead_letter = text),
    ),
    var(
        Part::DeadLetters,
        "DEAD_LETTER_MAX",
        "",
        "about how many are kept; without, all",
        maybe!(dead_letter_max = |text| parse::number(text, "1 or more")),
    ),
];

/// The table as the documentation has it.
pub(super) fn rendered() -> String {
    let head = "| Variable, after the prefix | Default | With Prefect's prefix | Meaning |\n|---|---|---|---|\n";
    let shown = |value: &str| if value.is_empty() { "–".to_owned() } else { format!("`{value}`") };
    let row = |variable: &Variable| {
        let (default, prefect) = (shown(variable.default), variable.prefect.map_or_else(String::new, shown));
        format!("| `{}` | {default} | {prefect} | {} |\n", variable.name, variable.meaning)
    };
    VARIABLES.iter().map(row).fold(head.to_owned(), |table, row| table + &row)
}
