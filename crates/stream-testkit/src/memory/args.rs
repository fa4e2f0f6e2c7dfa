//! Reading arguments the way a server reads them.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::ServerError;

use super::reply::{error, invalid_id, not_an_integer, syntax};

/// Walks over the arguments of one command.
pub(super) struct Args<'a> {
    rest: &'a [Bytes],
}

impl<'a> Args<'a> {
    /// Over the arguments from `from` on.
    pub(super) fn after(args: &'a [Bytes], from: usize) -> Self {
        Self { rest: args.get(from..).unwrap_or_default() }
    }

    pub(super) fn rest(&self) -> &'a [Bytes] {
        self.rest
    }

    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn next(&mut self) -> Option<&'a Bytes> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next argument, or a syntax error.
    pub(super) fn expect(&mut self) -> Result<&'a Bytes, ServerError> {
        self.next().ok_or_else(syntax)
    }

    /// Whether the next argument is the word `word`; takes it then. Options need `operands` more arguments after them,
    /// without which the server does not take the word for the option.
    pub(super) fn option(&mut self, word: &str, operands: usize) -> bool {
        let found = self.rest.len() > operands && self.rest[0].eq_ignore_ascii_case(word.as_bytes());
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    pub(super) fn int(&mut self) -> Result<i64, ServerError> {
        int(self.expect()?).ok_or_else(not_an_integer)
    }

    pub(super) fn int_or(&mut self, message: &str) -> Result<i64, ServerError> {
        int(self.expect()?).ok_or_else(|| error(message))
    }

    /// An id that must be a concrete one.
    pub(super) fn id(&mut self) -> Result<EntryId, ServerError> {
        strict_id(self.expect()?, 0)
    }
}

/// A number as the server reads it: no sign but a minus, no leading zeros, no blanks.
pub(super) fn int(arg: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(arg).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A concrete id; `missing_seq` stands in where only milliseconds are given.
pub(super) fn strict_id(arg: &[u8], missing_seq: u64) -> Result<EntryId, ServerError> {
    let id = EntryId::parse(arg).map_err(|_| invalid_id())?;
    if arg.contains(&b'-') { Ok(id) } else { Ok(EntryId::new(id.ms(), missing_seq)) }
}

/// An id, or `-` or `+` for the ends.
pub(super) fn loose_id(arg: &[u8], missing_seq: u64) -> Result<EntryId, ServerError> {
    match arg {
        b"-" => Ok(EntryId::ZERO),
        b"+" => Ok(EntryId::MAX),
        arg => strict_id(arg, missing_seq),
    }
}

/// The start of a range, inclusive; `(id` excludes the id.
pub(super) fn range_start(arg: &[u8]) -> Result<EntryId, ServerError> {
    match arg {
        [b'(', rest @ ..] if !rest.is_empty() => {
            strict_id(rest, 0)?.successor().ok_or_else(|| error("ERR invalid start ID for the interval"))
        }
        arg => loose_id(arg, 0),
    }
}

/// The end of a range, inclusive; `(id` excludes the id.
pub(super) fn range_end(arg: &[u8]) -> Result<EntryId, ServerError> {
    match arg {
        [b'(', rest @ ..] if !rest.is_empty() => {
            strict_id(rest, u64::MAX)?.predecessor().ok_or_else(|| error("ERR invalid end ID for the interval"))
        }
        arg => loose_id(arg, u64::MAX),
    }
}
