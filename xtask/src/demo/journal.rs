//! The journal: what the handlers of one worker process did and when, written down by the handlers themselves.
//!
//! One file per process, one line per event, one `write(2)` per line before the handler goes on: what a process has begun
//! stands in its journal whatever happens to the process next. The clock is the machine's monotonic one, which all of its
//! processes share.
//!
//! ```text
//! worker 3 host-4711-0a1b2c3d
//! > 1700000000000-0 17 1 5000000000
//! < 1700000000000-0 17 1 5000001000 done
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use streamkeeper::EntryId;

use crate::Failure;

/// Nanoseconds of a clock that never jumps and is the same for all processes of this machine.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What a handler run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Start {
    pub(crate) entry: EntryId,
    pub(crate) order: u64,
    pub(crate) attempt: u32,
}

/// A line of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// The first line: under which name the process consumes.
    Worker { number: u32, consumer: String },
    /// A handler began.
    Started { what: Start, at: u64 },
    /// It ended.
    Ended { what: Start, at: u64, done: bool },
}

impl Record {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        if kind == "worker" {
            let number = words.next()?.parse().ok()?;
            return Some(Self::Worker { number, consumer: words.next()?.to_owned() });
        }
        let entry = EntryId::parse(words.next()?.as_bytes()).ok()?;
        let what = Start { entry, order: words.next()?.parse().ok()?, attempt: words.next()?.parse().ok()? };
        let at = words.next()?.parse().ok()?;
        let record = match (kind, words.next()) {
            (">", None) => Self::Started { what, at },
            ("<", Some("done")) => Self::Ended { what, at, done: true },
            ("<", Some("failed")) => Self::Ended { what, at, done: false },
            _ => return None,
        };
        words.next().is_none().then_some(record)
    }
}

/// Writes a journal.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
}

impl Writer {
    pub(crate) fn create(path: &Path, number: u32, consumer: &str) -> io::Result<Self> {
        let this = Self { file: OpenOptions::new().create_new(true).append(true).open(path)? };
        this.line(&format!("worker {number} {consumer}\n"))?;
        Ok(this)
    }

    pub(crate) fn started(&self, what: Start) -> io::Result<()> {
        self.line(&format!("> {} {} {} {}\n", what.entry, what.order, what.attempt, now()))
    }

    pub(crate) fn ended(&self, what: Start, done: bool) -> io::Result<()> {
        let how = if done { "done" } else { "failed" };
        self.line(&format!("< {} {} {} {} {how}\n", what.entry, what.order, what.attempt, now()))
    }

    fn line(&self, line: &str) -> io::Result<()> {
        (&self.file).write_all(line.as_bytes())
    }
}

/// Reads a journal while it is written.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    file: Option<File>,
    offset: u64,
    unread: Vec<u8>,
}

impl Tail {
    /// The whole lines that were added since the last call; none while there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not one of a journal.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Vec<Record>, Failure> {
        if self.file.is_none() {
            match File::open(path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            }
        }
        let Some(file) = &mut self.file else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(self.offset))?;
        self.offset += file.read_to_end(&mut self.unread)? as u64;
        let whole = self.unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.unread.split_off(whole);
        let lines = std::mem::replace(&mut self.unread, rest);
        std::str::from_utf8(&lines)?
            .lines()
            .map(|line| {
                let bad = || format!("{} has a line that is not one of a journal: {line}", path.display());
                Record::parse(line).ok_or_else(|| bad().into())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut tail = Tail::default();
        assert_eq!(tail.read(&path).unwrap(), []);

        let what = Start { entry: EntryId::new(7, 1), order: 12, attempt: 2 };
        let writer = Writer::create(&path, 3, "host-1-ab").unwrap();
        writer.started(what).unwrap();
        let records = tail.read(&path).unwrap();
        assert_eq!(records[0], Record::Worker { number: 3, consumer: "host-1-ab".to_owned() });
        let Record::Started { what: read, at } = records[1] else { panic!("{records:?}") };
        assert_eq!(read, what);

        writer.ended(what, true).unwrap();
        writer.line("< 7-1 12").unwrap();
        let records = tail.read(&path).unwrap();
        assert!(matches!(records[..], [Record::Ended { done: true, at: end, .. }] if end >= at), "{records:?}");
        writer.line(" 2 9 failed\n").unwrap();
        assert_eq!(tail.read(&path).unwrap(), [Record::Ended { what, at: 9, done: false }]);
    }

    #[test]
    fn a_line_out_of_shape_is_an_error() {
        #[track_caller]
        fn check(line: &str) {
            assert_eq!(Record::parse(line), None, "{line}");
        }
        check("");
        check("> 7-1 12 2");
        check("> 7-1 12 2 9 done");
        check("< 7-1 12 2 9");
        check("< 7-1 12 2 9 done twice");
        check("? 7-1 12 2 9");
        check("worker x host");
    }
}
