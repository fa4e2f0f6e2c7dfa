//! [`Request`]: a command as a value, encoded before any connection is there.

use std::fmt;

use stream_core::{EntryId, StreamKey};

/// One command with its arguments, ready for any connection. Made by the types of the command modules.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    command: &'static str,
    key: Option<StreamKey>,
    /// All arguments one after the other, the command's words first.
    data: Vec<u8>,
    /// Where each argument ends in `data`.
    ends: Vec<usize>,
}

impl Request {
    /// Starts the command `command`; several words (`XGROUP CREATE`) become several arguments.
    pub fn new(command: &'static str) -> Self {
        let mut request = Self { command, key: None, data: Vec::new(), ends: Vec::new() };
        for word in command.split(' ') {
            request = request.arg(word);
        }
        request
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.push(argument);
        self
    }

    /// Adds a key, which also routes the command in a cluster and names the stream in errors.
    #[must_use]
    pub fn key(mut self, key: &StreamKey) -> Self {
        self.push(key);
        self.key.get_or_insert_with(|| key.clone());
        self
    }

    /// Adds a number as text.
    #[must_use]
    pub fn int(mut self, number: impl itoa::Integer) -> Self {
        self.push(itoa::Buffer::new().format(number));
        self
    }

    /// Adds an entry id as text.
    #[must_use]
    pub fn id(mut self, id: EntryId) -> Self {
        id.write_to(&mut self.data);
        self.ends.push(self.data.len());
        self
    }

    /// Adds an argument in place.
    pub fn push(&mut self, argument: impl AsRef<[u8]>) {
        self.data.extend_from_slice(argument.as_ref());
        self.ends.push(self.data.len());
    }

    /// Makes room for so many arguments of about so many bytes each.
    pub(crate) fn reserve(&mut self, arguments: usize, bytes: usize) {
        self.ends.reserve(arguments);
        self.data.reserve(arguments.saturating_mul(bytes));
    }

    /// The command's words, for errors and metrics.
    pub fn command(&self) -> &'static str {
        self.command
    }

    /// The first key among the arguments.
    pub fn stream(&self) -> Option<&StreamKey> {
        self.key.as_ref()
    }

    /// All arguments, the command's words first.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let argument = &self.data[start..end];
            start = end;
            argument
        })
    }

    /// Bytes of all arguments together.
    pub(crate) fn size(&self) -> usize {
        self.data.len()
    }

    /// Appends the command as it goes over the wire: a RESP array of bulk strings.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.data.len() + 16 * self.ends.len() + 16);
        begin(self.ends.len(), out);
        for argument in self.args() {
            string(argument, out);
        }
    }
}

/// Appends the beginning of a command of so many arguments as it goes over the wire.
pub(crate) fn begin(arguments: usize, out: &mut Vec<u8>) {
    head(b'*', arguments, out);
}

/// Appends an argument as it goes over the wire.
#[inline]
pub(crate) fn string(argument: &[u8], out: &mut Vec<u8>) {
    head(b'$', argument.len(), out);
    out.extend_from_slice(argument);
    out.extend_from_slice(b"\r\n");
}

fn head(kind: u8, number: usize, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

impl fmt::Debug for Request {
    /// Names the command and its size only: arguments may hold payloads or secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("command", &self.command)
            .field("key", &self.key)
            .field("args", &self.ends.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_encodes_to_an_array_of_bulk_strings() {
        let key = StreamKey::new("s").unwrap();
        let request = Request::new("XGROUP CREATE").key(&key).arg("").id(EntryId::new(10, 0)).int(7);
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "*6\r\n$6\r\nXGROUP\r\n$6\r\nCREATE\r\n$1\r\ns\r\n$0\r\n\r\n$4\r\n10-0\r\n$1\r\n7\r\n"
        );
        assert_eq!(request.stream(), Some(&key));
    }
}
