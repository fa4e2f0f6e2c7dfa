//! Just enough RESP2 for the floor: commands are written as they are, of replies only the entries' ids and last values
//! are found.
//!
//! What must stay true: nothing is done that a consumer could leave out, so that the floor is what the server allows.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

/// Room that there is for one read.
const READ: usize = 64 << 10;

/// A connection with a buffer of what has arrived.
pub(crate) struct Socket {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Entries that are missing of the reply that is being read.
    left: usize,
}

impl Socket {
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 1 << 20], start: 0, end: 0, left: 0 })
    }

    /// The same connection once more, for a thread of its own.
    pub(crate) fn again(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads one reply. `each` gets the id of every entry, as the bulk string that it came in, and its last value. Returns
    /// the number of entries; 0 for a reply without any.
    pub(crate) fn reply(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<usize> {
        let mut entries = 0;
        loop {
            let mut at = self.start;
            let found = scan(&self.buffer[..self.end], &mut at, &mut self.left, &mut |id, value| {
                entries += 1;
                each(id, value);
            })?;
            self.start = at;
            if found {
                return Ok(entries);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.end < READ {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < READ {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        match self.stream.read(&mut self.buffer[self.end..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            more => {
                self.end += more;
                Ok(())
            }
        }
    }
}

/// Looks through what has arrived of a reply, from `at` on; whether it is complete.
fn scan(bytes: &[u8], at: &mut usize, left: &mut usize, each: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<bool> {
    if *left == 0 {
        match head(bytes, *at)? {
            None => return Ok(false),
            Some((next, entries)) => (*at, *left) = (next, entries),
        }
    }
    while *left > 0 {
        let Some(entry) = entry(bytes, *at) else { return Ok(false) };
        each(&bytes[entry.id.0..entry.id.1], &bytes[entry.value.0..entry.value.1]);
        *at = entry.next;
        *left -= 1;
    }
    Ok(true)
}

/// The beginning of a reply: where its entries begin, and how many there are.
fn head(bytes: &[u8], at: usize) -> io::Result<Option<(usize, usize)>> {
    let Some(&kind) = bytes.get(at) else { return Ok(None) };
    match kind {
        b'*' => Ok(entries_from(bytes, at)),
        b':' | b'+' | b'_' => Ok(line(bytes, at).map(|next| (next, 0))),
        b'$' => match number(bytes, at + 1) {
            Some((length, next)) if length < 0 => Ok(Some((next, 0))),
            _ => Ok(bulk(bytes, at).map(|(_, _, next)| (next, 0))),
        },
        b'-' => match line(bytes, at) {
            Some(next) => Err(io::Error::other(String::from_utf8_lossy(&bytes[at..next]).into_owned())),
            None => Ok(None),
        },
        other => Err(io::Error::other(format!("a reply of an unknown type, {:?}", char::from(other)))),
    }
}

/// `*1 *2 $stream *N`, or a null array.
fn entries_from(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let (streams, at) = number(bytes, at + 1)?;
    if streams < 0 {
        return Some((at, 0));
    }
    let (_, at) = number(bytes, at + 1)?;
    let (_, _, at) = bulk(bytes, at)?;
    let (entries, at) = number(bytes, at + 1)?;
    Some((at, usize::try_from(entries).unwrap_or(0)))
}

struct Entry {
    id: (usize, usize),
    value: (usize, usize),
    next: usize,
}

fn entry(bytes: &[u8], at: usize) -> Option<Entry> {
    let (_, id) = number(bytes, at + 1)?;
    let (_, _, fields) = bulk(bytes, id)?;
    let (strings, mut next) = number(bytes, fields + 1)?;
    let mut value = (next, next);
    for _ in 0..strings {
        let (begin, end, after) = bulk(bytes, next)?;
        (value, next) = ((begin, end), after);
    }
    Some(Entry { id: (id, fields), value, next })
}

/// A string at `at`: where it begins and ends, and where the next thing begins.
fn bulk(bytes: &[u8], at: usize) -> Option<(usize, usize, usize)> {
    let (length, begin) = number(bytes, at + 1)?;
    let end = begin + usize::try_from(length).ok()?;
    (end + 2 <= bytes.len()).then_some((begin, end, end + 2))
}

/// The number at `at` and where its line ends.
fn number(bytes: &[u8], mut at: usize) -> Option<(i64, usize)> {
    let negative = *bytes.get(at)? == b'-';
    at += usize::from(negative);
    let mut number = 0;
    loop {
        match *bytes.get(at)? {
            b'\r' => {
                bytes.get(at + 1)?;
                return Some((if negative { -number } else { number }, at + 2));
            }
            digit => number = number * 10 + i64::from(digit.wrapping_sub(b'0')),
        }
        at += 1;
    }
}

fn line(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some(at + length + 2)
}

/// Appends a command.
pub(crate) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    begin(out, words.len());
    for word in words {
        argument(out, word);
    }
}

/// Begins a command of so many words.
pub(crate) fn begin(out: &mut Vec<u8>, words: usize) {
    out.push(b'*');
    out.extend_from_slice(itoa::Buffer::new().format(words).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a word of a command.
pub(crate) fn argument(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b'$');
    out.extend_from_slice(itoa::Buffer::new().format(word.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything found when the reply arrives byte by byte.
    fn found(reply: &[u8]) -> io::Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        let (mut at, mut left) = (0, 0);
        for end in 0..=reply.len() {
            let done = scan(&reply[..end], &mut at, &mut left, &mut |id, value| {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                found.push((text(id), text(value)));
            })?;
            assert_eq!(done, end == reply.len(), "after {end} bytes");
        }
        Ok(found)
    }

    #[test]
    fn entries_are_found_whatever_the_chunks() {
        let reply =
            b"*1\r\n*2\r\n$1\r\ns\r\n*2\r\n*2\r\n$3\r\n1-0\r\n*4\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\nb\r\n$2\r\nyy\r\n\
            *2\r\n$3\r\n2-0\r\n*2\r\n$1\r\na\r\n$0\r\n\r\n";
        let expected = [("$3\r\n1-0\r\n", "yy"), ("$3\r\n2-0\r\n", "")].map(|(id, value)| (id.into(), value.into()));
        assert_eq!(found(reply).unwrap(), expected);
    }

    #[test]
    fn replies_without_entries_are_complete_and_errors_are_errors() {
        for reply in ["*-1\r\n", ":17\r\n", "+OK\r\n", "$-1\r\n", "$3\r\n1-0\r\n"] {
            assert_eq!(found(reply.as_bytes()).unwrap(), []);
        }
        assert!(found(b"-NOGROUP no such group\r\n").unwrap_err().to_string().contains("NOGROUP"));
    }
}
