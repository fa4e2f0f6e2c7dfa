//! The first line of an element: its type and the number in it, from bytes that may come one by one.
//!
//! What must stay true: lengths that no server sends are refused here, before anything is done with them, and a type
//! marker is all that an error shows of the bytes.

use std::fmt;

/// The longest string that a server sends.
const MAX_BULK: i64 = 512 << 20;
/// More elements than this in one array are no reply but noise.
const MAX_ELEMENTS: i64 = 1 << 32;

/// These bytes are no reply to a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

/// The first line of an element. Types whose line is text (`+ - , ( #`) have no number; their text is yet to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) kind: u8,
    /// A length, or -1 for nil.
    pub(super) number: i64,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        match self.kind {
            b'$' | b'=' => write!(f, "text({number})"),
            b'*' | b'~' => write!(f, "array({number})"),
            b'%' => write!(f, "map({number})"),
            b'>' => write!(f, "push({number})"),
            b':' => f.write_str("int"),
            b'_' => f.write_str("nil"),
            b'-' | b'!' => f.write_str("error"),
            _ => f.write_str("a simple type"),
        }
    }
}

/// A first line as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct PartialHead {
    kind: Option<u8>,
    negative: bool,
    digits: u32,
    number: i64,
    carriage_return: bool,
}

impl PartialHead {
    /// Whether part of a first line has arrived.
    pub(super) fn is_begun(&self) -> bool {
        self.kind.is_some()
    }

    /// Goes on at `position` of `data`, which moves along; `None` where the line has not arrived completely.
    pub(super) fn read(&mut self, data: &[u8], position: &mut usize) -> Result<Option<Head>, Malformed> {
        for &byte in &data[*position..] {
            *position += 1;
            let Some(kind) = self.kind else {
                match byte {
                    b'+' | b'-' | b',' | b'(' | b'#' => return Ok(Some(Head { kind: byte, number: 0 })),
                    b'$' | b'*' | b'%' | b':' | b'_' | b'>' | b'~' | b'=' | b'!' | b'|' => self.kind = Some(byte),
                    _ => return Err(Malformed("a byte that begins no element".to_owned())),
                }
                continue;
            };
            match byte {
                b'\n' if self.carriage_return => {
                    let number = if self.negative { -self.number } else { self.number };
                    *self = Self::default();
                    return checked(Head { kind, number });
                }
                _ if self.carriage_return || (kind == b'_' && byte != b'\r') => return Err(no_number()),
                b'\r' if self.digits > 0 || kind == b'_' => self.carriage_return = true,
                b'-' if self.digits == 0 && !self.negative => self.negative = true,
                b'0'..=b'9' if self.digits < 20 => {
                    self.digits += 1;
                    self.number = self.number.saturating_mul(10).saturating_add(i64::from(byte - b'0'));
                }
                _ => return Err(no_number()),
            }
        }
        Ok(None)
    }
}

fn no_number() -> Malformed {
    Malformed("a length that is no number".to_owned())
}

/// Refuses lengths that no server sends.
fn checked(head: Head) -> Result<Option<Head>, Malformed> {
    let most = match head.kind {
        b'$' | b'=' | b'!' => MAX_BULK,
        b':' | b'_' => return Ok(Some(head)),
        _ => MAX_ELEMENTS,
    };
    if (-1..=most).contains(&head.number) {
        return Ok(Some(head));
    }
    Err(Malformed(format!("a length of {} is out of range", head.number)))
}
