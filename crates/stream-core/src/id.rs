//! [`EntryId`]: the id of a stream entry, two unsigned 64-bit numbers.
//!
//! Ids are compared as numbers, never as text: as text, `100-10` is smaller than `100-2`, and a trim floor computed that
//! way deletes entries that nobody has read.

use std::fmt;
use std::str::FromStr;

/// The id of a stream entry: milliseconds and a sequence number, ordered by both as numbers.
///
/// ```
/// use stream_core::EntryId;
/// let id: EntryId = "1700000000000-7".parse()?;
/// assert!(id < EntryId::new(1_700_000_000_000, 10));
/// assert_eq!(id.to_string(), "1700000000000-7");
/// # Ok::<(), stream_core::ParseEntryIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId {
    ms: u64,
    seq: u64,
}

impl EntryId {
    /// `0-0`: before every entry. No entry can have this id.
    pub const ZERO: Self = Self::new(0, 0);
    /// The greatest id that exists, `18446744073709551615-18446744073709551615`.
    pub const MAX: Self = Self::new(u64::MAX, u64::MAX);

    /// An id from its two numbers.
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The first number; for ids given by the server its clock in milliseconds since 1970.
    pub const fn ms(self) -> u64 {
        self.ms
    }

    /// The second number, which tells entries of one millisecond apart.
    pub const fn seq(self) -> u64 {
        self.seq
    }

    /// The next greater id, or `None` for [`EntryId::MAX`].
    #[must_use]
    pub const fn successor(self) -> Option<Self> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(Self::new(self.ms, seq)),
            (None, Some(ms)) => Some(Self::new(ms, 0)),
            (None, None) => None,
        }
    }

    /// The next smaller id, or `None` for [`EntryId::ZERO`].
    #[must_use]
    pub const fn predecessor(self) -> Option<Self> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(Self::new(self.ms, seq)),
            (None, Some(ms)) => Some(Self::new(ms, u64::MAX)),
            (None, None) => None,
        }
    }

    /// Parses the text that a server sends, `ms-seq` or `ms` alone (then `seq` is 0).
    ///
    /// # Errors
    /// [`ParseEntryIdError`] when a part is missing, is not a decimal number or does not fit 64 bits.
    pub fn parse(text: &[u8]) -> Result<Self, ParseEntryIdError> {
        let (ms, rest) = digits(text)?;
        match rest {
            [] => Ok(Self::new(ms, 0)),
            [b'-', rest @ ..] => match digits(rest)? {
                (seq, []) => Ok(Self::new(ms, seq)),
                _ => Err(ParseEntryIdError(())),
            },
            _ => Err(ParseEntryIdError(())),
        }
    }

    /// Appends `ms-seq` to `out` without allocating an intermediate string.
    pub fn write_to(self, out: &mut Vec<u8>) {
        let mut buffer = itoa::Buffer::new();
        out.extend_from_slice(buffer.format(self.ms).as_bytes());
        out.push(b'-');
        out.extend_from_slice(buffer.format(self.seq).as_bytes());
    }
}

/// A text was not an entry id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an entry id: expected `ms-seq`, two decimal numbers of at most 64 bits")]
pub struct ParseEntryIdError(());

impl FromStr for EntryId {
    type Err = ParseEntryIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn digits(text: &[u8]) -> Result<(u64, &[u8]), ParseEntryIdError> {
    let mut value: u64 = 0;
    let mut used = 0;
    for &byte in text {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(byte - b'0')))
            .ok_or(ParseEntryIdError(()))?;
        used += 1;
    }
    if used == 0 {
        return Err(ParseEntryIdError(()));
    }
    Ok((value, &text[used..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_is_numeric_not_textual() {
        let small = EntryId::parse(b"100-2").unwrap();
        let great = EntryId::parse(b"100-10").unwrap();
        assert!(small < great);
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "-", "1-", "-1", "a", "1-a", "1-2-3", "18446744073709551616-0", "1 -2", "+1-2", "$", ">"] {
            assert!(text.parse::<EntryId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_ends_have_no_neighbour() {
        assert_eq!(EntryId::MAX.successor(), None);
        assert_eq!(EntryId::ZERO.predecessor(), None);
        assert_eq!(EntryId::new(4, u64::MAX).successor(), Some(EntryId::new(5, 0)));
        assert_eq!(EntryId::new(5, 0).predecessor(), Some(EntryId::new(4, u64::MAX)));
    }

    proptest! {
        #[test]
        fn text_and_neighbours_round_trip(ms: u64, seq: u64) {
            let id = EntryId::new(ms, seq);
            prop_assert_eq!(id.to_string().parse::<EntryId>(), Ok(id));
            let mut text = Vec::new();
            id.write_to(&mut text);
            prop_assert_eq!(EntryId::parse(&text), Ok(id));
            if let Some(next) = id.successor() {
                prop_assert!(next > id);
                prop_assert_eq!(next.predecessor(), Some(id));
            }
        }
    }
}
