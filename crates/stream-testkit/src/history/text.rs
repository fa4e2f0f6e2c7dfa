//! A history as text: one event a line, to be kept, looked at and read back.
//!
//! ```text
//! 5000000 published 1700000000000-0 17 3 handled
//! 5000100 started 2 1700000000000-0 17 1
//! 5001000 finished 2 1700000000000-0 1 done
//! ```

use std::fmt;
use std::str::{FromStr, SplitN};

use stream_core::EntryId;

use super::History;
use super::event::{Cause, Ending, Event, Fate, Reason, Returned, What};

/// A line is not one of a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an event of a history: {line}")]
pub struct BadLine {
    line: String,
}

/// Words that stand for the values of a type.
macro_rules! words {
    ($type:ty: $($word:literal = $value:path),* $(,)?) => {
        impl Word for $type {
            fn word(&self) -> &'static str {
                match self {
                    $($value => $word,)*
                }
            }

            fn of_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($value),)*
                    _ => None,
                }
            }
        }
    };
}

trait Word: Sized {
    fn word(&self) -> &'static str;
    fn of_word(word: &str) -> Option<Self>;
}

words!(Fate: "handled" = Fate::Handled, "exhausted" = Fate::Exhausted, "kills" = Fate::Kills,
    "undecodable" = Fate::Undecodable, "rejected" = Fate::Rejected, "free" = Fate::Free);
words!(Returned: "done" = Returned::Done, "failed" = Returned::Failed, "rejected" = Returned::Rejected);
words!(Ending: "killed" = Ending::Killed, "aborted" = Ending::Aborted, "stopped" = Ending::Stopped);
words!(Cause: "frozen" = Cause::Frozen, "network" = Cause::Network, "server" = Cause::Server);
words!(Reason: "rejected" = Reason::Rejected, "exhausted" = Reason::Exhausted, "owner-died" = Reason::OwnerDied,
    "undecodable" = Reason::Undecodable);

/// A number that may be missing.
struct Maybe<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Maybe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        match &self.what {
            What::Published { entry, number, key, fate } => {
                write!(f, "published {entry} {number} {} {}", Maybe(*key), fate.word())
            }
            What::Unconfirmed { number, key, fate } => {
                write!(f, "unconfirmed {number} {} {}", Maybe(*key), fate.word())
            }
            What::ProcessStarted { process, consumer } => {
                write!(f, "process-started {process} {}", consumer.escape_default())
            }
            What::Stopping { process } => write!(f, "stopping {process}"),
            What::ProcessEnded { process, how } => write!(f, "process-ended {process} {}", how.word()),
            What::Started { process, entry, number, attempt } => {
                write!(f, "started {process} {entry} {number} {attempt}")
            }
            What::Finished { process, entry, attempt, result } => {
                write!(f, "finished {process} {entry} {attempt} {}", result.word())
            }
            What::LeaseLost { process, entry } => write!(f, "lease-lost {process} {entry}"),
            What::Acknowledged { entry } => write!(f, "acknowledged {entry}"),
            What::DoneUpTo { entry } => write!(f, "done-up-to {entry}"),
            What::TrimmedBelow { entry } => write!(f, "trimmed-below {entry}"),
            What::DeadLettered { entry, number, attempts, reason, consumer } => {
                let (number, consumer) = (Maybe(*number), consumer.escape_default());
                write!(f, "dead-lettered {entry} {number} {attempts} {} {consumer}", reason.word())
            }
            What::Cured { number } => write!(f, "cured {number}"),
            What::Redriven { letter, entry, fate } => write!(f, "redriven {letter} {entry} {}", fate.word()),
            What::Silence { process, cause, since } => {
                write!(f, "silence {} {} {since}", Maybe(*process), cause.word())
            }
            What::GroupLost { since } => write!(f, "group-lost {since}"),
            What::Forgotten { entry } => write!(f, "forgotten {entry}"),
            What::ReaderReady { process, after } => write!(f, "reader-ready {process} {after}"),
            What::ReaderGot { process, entry } => write!(f, "reader-got {process} {entry}"),
            What::ReaderGap { process, after, before } => write!(f, "reader-gap {process} {after} {before}"),
            What::ReaderReset { process, from } => write!(f, "reader-reset {process} {from}"),
            What::Resident { process, kib } => write!(f, "resident {process} {kib}"),
            What::Pending { entry } => write!(f, "pending {entry}"),
            What::End { delivered } => write!(f, "end {delivered}"),
            What::Broken { why } => write!(f, "broken {}", why.escape_default()),
        }
    }
}

impl FromStr for Event {
    type Err = BadLine;

    fn from_str(line: &str) -> Result<Self, BadLine> {
        parse(line).ok_or_else(|| BadLine { line: line.to_owned() })
    }
}

/// The words of a line, one by one; the last may have spaces in it.
struct Words<'a>(SplitN<'a, char>);

impl Words<'_> {
    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn maybe<T: FromStr>(&mut self) -> Option<Maybe<T>> {
        match self.0.next()? {
            "-" => Some(Maybe(None)),
            word => word.parse().ok().map(|value| Maybe(Some(value))),
        }
    }

    fn id(&mut self) -> Option<EntryId> {
        EntryId::parse(self.0.next()?.as_bytes()).ok()
    }

    fn word<T: Word>(&mut self) -> Option<T> {
        T::of_word(self.0.next()?)
    }

    fn text(&mut self) -> Option<String> {
        unescaped(self.0.next()?)
    }
}

fn parse(line: &str) -> Option<Event> {
    let mut head = line.splitn(3, ' ');
    let at = head.next()?.parse().ok()?;
    let kind = head.next()?;
    let rest = head.next()?;
    let count = match kind {
        "group-lost" | "cured" | "acknowledged" | "done-up-to" | "trimmed-below" | "forgotten" | "pending" | "end"
        | "broken" | "stopping" => 1,
        "process-started" | "process-ended" | "lease-lost" | "reader-ready" | "reader-got" | "reader-reset"
        | "resident" => 2,
        "unconfirmed" | "redriven" | "silence" | "reader-gap" => 3,
        "dead-lettered" => 5,
        _ => 4,
    };
    let mut words = Words(rest.splitn(count, ' '));
    let what = match kind {
        "published" => {
            What::Published { entry: words.id()?, number: words.number()?, key: words.maybe()?.0, fate: words.word()? }
        }
        "unconfirmed" => What::Unconfirmed { number: words.number()?, key: words.maybe()?.0, fate: words.word()? },
        "process-started" => What::ProcessStarted { process: words.number()?, consumer: words.text()? },
        "stopping" => What::Stopping { process: words.number()? },
        "process-ended" => What::ProcessEnded { process: words.number()?, how: words.word()? },
        "started" => What::Started {
            process: words.number()?,
            entry: words.id()?,
            number: words.number()?,
            attempt: words.number()?,
        },
        "finished" => What::Finished {
            process: words.number()?,
            entry: words.id()?,
            attempt: words.number()?,
            result: words.word()?,
        },
        "lease-lost" => What::LeaseLost { process: words.number()?, entry: words.id()? },
        "acknowledged" => What::Acknowledged { entry: words.id()? },
        "done-up-to" => What::DoneUpTo { entry: words.id()? },
        "trimmed-below" => What::TrimmedBelow { entry: words.id()? },
        "dead-lettered" => What::DeadLettered {
            entry: words.id()?,
            number: words.maybe()?.0,
            attempts: words.number()?,
            reason: words.word()?,
            consumer: words.text()?,
        },
        "cured" => What::Cured { number: words.number()? },
        "redriven" => What::Redriven { letter: words.id()?, entry: words.id()?, fate: words.word()? },
        "silence" => What::Silence { process: words.maybe()?.0, cause: words.word()?, since: words.number()? },
        "group-lost" => What::GroupLost { since: words.number()? },
        "forgotten" => What::Forgotten { entry: words.id()? },
        "reader-ready" => What::ReaderReady { process: words.number()?, after: words.id()? },
        "reader-got" => What::ReaderGot { process: words.number()?, entry: words.id()? },
        "reader-gap" => What::ReaderGap { process: words.number()?, after: words.id()?, before: words.id()? },
        "reader-reset" => What::ReaderReset { process: words.number()?, from: words.id()? },
        "resident" => What::Resident { process: words.number()?, kib: words.number()? },
        "pending" => What::Pending { entry: words.id()? },
        "end" => What::End { delivered: words.id()? },
        "broken" => What::Broken { why: words.text()? },
        _ => return None,
    };
    Some(Event { at, what })
}

/// The reverse of [`str::escape_default`].
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next()? {
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let code = chars.as_str().strip_prefix('{')?.split_once('}')?.0;
                out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
                chars.nth(code.len() + 1)?;
            }
            other @ ('\\' | '\'' | '"') => out.push(other),
            _ => return None,
        }
    }
    Some(out)
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events().iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl FromStr for History {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        Ok(Self { events: text.lines().map(Event::from_str).collect::<Result<_, _>>()? })
    }
}
