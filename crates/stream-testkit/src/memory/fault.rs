//! [`Fault`]: what can be made to go wrong with a command, and the rules that say when.

use std::time::Duration;

use bytes::Bytes;
use stream_redis::ServerError;

use super::script;

/// What goes wrong with one command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The server answers with this error and does nothing.
    Error(ServerError),
    /// The connection dies; the command is not carried out.
    CutBefore,
    /// The command is carried out, then the connection dies: the reply is lost. A read that blocks dies when it is
    /// served, with the entries in the pending list.
    CutAfter,
    /// Like [`CutAfter`](Self::CutAfter), but that many entries of the reply arrive at a reader before it fails.
    CutAfterEntries(usize),
    /// Neither this command nor any after it on the same connection is ever answered; none is carried out. Ends when
    /// the connection is dropped or killed, or at the response timeout if the server model has one.
    Hang,
    /// The command is carried out at once, and its reply arrives that much later.
    Delay(Duration),
}

impl Fault {
    /// An error reply from its line, for example `LOADING Redis is loading the dataset in memory`.
    pub fn error(line: &str) -> Self {
        Self::Error(ServerError::parse(line))
    }
}

/// The names a command goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    /// In capitals, with the subcommand or the name of the script: `XADD`, `XGROUP CREATE`, `EVALSHA RENEW`.
    pub(super) name: String,
    /// As the server writes it in errors: `xgroup|create`.
    pub(super) acl: String,
}

impl Label {
    pub(super) fn of(args: &[Bytes]) -> Self {
        let upper = |arg: &Bytes| String::from_utf8_lossy(arg).to_ascii_uppercase();
        let command = args.first().map(upper).unwrap_or_default();
        let acl = command.to_ascii_lowercase();
        let second = match command.as_str() {
            "XGROUP" | "XINFO" | "COMMAND" | "SCRIPT" | "CLIENT" | "CONFIG" => args.get(1).map(upper),
            "EVALSHA" | "EVAL" => {
                let script = args.get(1).and_then(|arg| script::find(command == "EVALSHA", arg));
                return Self {
                    name: script
                        .map_or(command.clone(), |script| format!("{command} {}", script.name().to_uppercase())),
                    acl,
                };
            }
            _ => None,
        };
        match second {
            Some(second) => {
                Self { acl: format!("{acl}|{}", second.to_lowercase()), name: format!("{command} {second}") }
            }
            None => Self { name: command, acl },
        }
    }

    /// For opening a connection.
    pub(super) fn connect() -> Self {
        Self { name: "CONNECT".to_owned(), acl: "connect".to_owned() }
    }

    /// Whether one of the patterns means this command.
    pub(super) fn is_denied(&self, denied: &[String]) -> bool {
        denied.iter().any(|pattern| self.matches(pattern))
    }

    /// Whether `pattern` means this command: its whole name, its first word or its second, or `*` for any command.
    fn matches(&self, pattern: &str) -> bool {
        match self.name.split_once(' ') {
            _ if self.name == pattern => true,
            _ if self.name == "CONNECT" => false,
            Some((first, second)) => pattern == first || pattern == second || pattern == "*",
            None => pattern == "*",
        }
    }
}

/// Rules of what goes wrong, in the order they were made.
#[derive(Default)]
pub(super) struct Faults {
    rules: Vec<Rule>,
    choose: Option<Choose>,
}

/// Says for every command what goes wrong with it.
pub(super) type Choose = Box<dyn FnMut(&str) -> Option<Fault> + Send>;

#[derive(Debug)]
struct Rule {
    pattern: String,
    fault: Fault,
    once: bool,
}

impl Faults {
    pub(super) fn add(&mut self, pattern: &str, fault: Fault, once: bool) {
        self.rules.push(Rule { pattern: pattern.to_ascii_uppercase(), fault, once });
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
        self.choose = None;
    }

    pub(super) fn choose(&mut self, choose: Choose) {
        self.choose = Some(choose);
    }

    /// The first rule for the command; used up if it was for one time.
    pub(super) fn take(&mut self, label: &Label) -> Option<Fault> {
        let Some(index) = self.rules.iter().position(|rule| label.matches(&rule.pattern)) else {
            return self.choose.as_mut().and_then(|choose| choose(&label.name));
        };
        let rule = &self.rules[index];
        if rule.once { Some(self.rules.remove(index).fault) } else { Some(rule.fault.clone()) }
    }
}
