//! The journal: what one worker process did and when, written down by itself.
//!
//! One file per process, one event a line in the text form of a [`History`](stream_testkit::history::History), one
//! `write(2)` per line before a handler goes on: what a process has begun stands in its journal whatever happens to the
//! process next. The clock is the machine's monotonic one, which all of its processes share.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use stream_testkit::history::{Event, What};

use crate::Failure;

/// Microseconds of a clock that never jumps and is the same for all processes of this machine.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// A time in microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Writes a journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    /// Begins the journal of a process.
    ///
    /// # Errors
    /// The file cannot be written, or is there already.
    pub(crate) fn create(path: &Path, process: u32, consumer: &str) -> io::Result<Self> {
        let this = Self { file: OpenOptions::new().create_new(true).append(true).open(path)? };
        this.line(now(), What::ProcessStarted { process, consumer: consumer.to_owned() })?;
        Ok(this)
    }

    /// Writes down what happens now. Without a journal nothing can be proven, so a process that cannot write it ends.
    pub(crate) fn write(&self, what: What) {
        if let Err(error) = self.line(now(), what) {
            eprintln!("cannot write the journal: {error}");
            std::process::exit(2);
        }
    }

    fn line(&self, at: u64, what: What) -> io::Result<()> {
        (&self.file).write_all(format!("{}\n", Event { at, what }).as_bytes())
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
    /// Whether there was a file at the last [`read`](Self::read).
    pub(crate) fn has_begun(&self) -> bool {
        self.file.is_some()
    }

    /// The events of the whole lines that were added since the last call; none while there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not one of a journal.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Vec<Event>, Failure> {
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
            .map(|line| line.parse().map_err(|error| format!("{}: {error}", path.display()).into()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use streamkeeper::EntryId;

    #[test]
    fn what_is_written_is_read_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut tail = Tail::default();
        assert_eq!(tail.read(&path).unwrap(), []);
        assert!(!tail.has_begun());

        let entry = EntryId::new(7, 1);
        let journal = Journal::create(&path, 3, "host-1-ab").unwrap();
        journal.write(What::LeaseLost { process: 3, entry });
        let events = tail.read(&path).unwrap();
        assert!(tail.has_begun());
        assert_eq!(events[0].what, What::ProcessStarted { process: 3, consumer: "host-1-ab".to_owned() });
        assert_eq!(events[1].what, What::LeaseLost { process: 3, entry });
        assert!(events[1].at >= events[0].at);

        (&journal.file).write_all(b"9 lease-lo").unwrap();
        assert_eq!(tail.read(&path).unwrap(), []);
        (&journal.file).write_all(b"st 3 7-1\n9 nonsense\n").unwrap();
        let error = tail.read(&path).unwrap_err().to_string();
        assert!(error.ends_with("journal: not an event of a history: 9 nonsense"), "{error}");
        assert!(Journal::create(&path, 3, "host").is_err(), "each process has a journal of its own");
    }
}
