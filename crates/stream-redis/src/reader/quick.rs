//! The common case of the decoder: entries of two elements that are there as a whole.
//!
//! What must stay true: whatever is accepted here is what the states of the decoder would have made of it; anything
//! unusual, cut or wrong is left to them.

use std::ops::Range;

use bytes::Bytes;
use stream_core::{Entry, EntryId, FieldSpan};

use super::decoder::MAX_ID;

/// Room for so many entries, or fields of them, is kept for the next reply.
const KEPT: usize = 1 << 12;
/// A type, at most 9 digits and the line end: the first line of anything that is ordinary fits.
const WINDOW: usize = 12;

/// An entry that is there as a whole.
#[derive(Debug)]
struct Whole {
    id: EntryId,
    /// Where its fields are.
    body: Range<usize>,
    /// Where their places end in the list of them.
    spans: usize,
}

/// Entries that are there as a whole, one behind the other, with the places of their fields. They are taken apart at once
/// and cut out at once, which costs less for each than to do both in turns.
#[derive(Debug, Default)]
pub(super) struct Run {
    entries: Vec<Whole>,
    spans: Vec<FieldSpan>,
}

impl Run {
    /// Takes apart what is there as a whole from `at` on, `most` entries at most, in place of what was there before. Returns
    /// where each ends that is the first or the last; `None` where there is none.
    #[inline(never)]
    pub(super) fn find(&mut self, data: &[u8], mut at: usize, most: usize) -> Option<(usize, usize)> {
        self.entries.clear();
        self.spans.clear();
        let mut first = None;
        while self.entries.len() < most {
            let Some((entry, end)) = entry(data, at, &mut self.spans) else { break };
            at = end;
            first.get_or_insert(end);
            self.entries.push(entry);
        }
        first.map(|first| (first, at))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The id of the last of them.
    pub(super) fn last(&self) -> EntryId {
        self.entries.last().map_or(EntryId::ZERO, |entry| entry.id)
    }

    /// Cuts those in this range out of `memory`, which begins where `data` did.
    pub(super) fn cut(&self, range: Range<usize>, memory: &Bytes, entries: &mut Vec<Entry>) {
        let mut from = range.start.checked_sub(1).map_or(0, |before| self.entries[before].spans);
        entries.extend(self.entries[range].iter().map(|entry| {
            let spans = &self.spans[std::mem::replace(&mut from, entry.spans)..entry.spans];
            Entry::from_parts(entry.id, memory.slice(entry.body.clone()), spans)
        }));
    }

    /// Gives up memory that only an unusual reply needs.
    pub(super) fn clear(&mut self) {
        if self.entries.capacity() > KEPT || self.spans.capacity() > KEPT {
            *self = Self::default();
        }
    }
}

/// The entry at `at` and where the next one begins. The places of its fields are added to `spans`, also where it is none in
/// the end.
#[inline]
fn entry(data: &[u8], at: usize, spans: &mut Vec<FieldSpan>) -> Option<(Whole, usize)> {
    let (2, at) = length(data, at, b'*')? else { return None };
    let (id, at) = text(data, at)?;
    let id = entry_id(&data[id.clone()]).or_else(|| unusual_id(&data[id]))?;
    let (elements, start) = length(data, at, b'*')?;
    if elements % 2 != 0 {
        return None;
    }
    let (mut end, mut next) = (start, start);
    // What is there as a whole may still be too large for an offset.
    let offset = |place: usize| u32::try_from(place - start).ok();
    for _ in 0..elements / 2 {
        let (name, value);
        (name, next) = text(data, next)?;
        (value, next) = text(data, next)?;
        end = value.end;
        spans.push(FieldSpan {
            name_start: offset(name.start)?,
            name_end: offset(name.end)?,
            value_start: offset(value.start)?,
            value_end: offset(value.end)?,
        });
    }
    Some((Whole { id, body: start..end, spans: spans.len() }, next))
}

/// An ordinary first line at `at`: its number, and where it ends.
#[inline]
fn length(data: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let rest = data.get(at..)?;
    let padded;
    let window = if let Some(window) = rest.first_chunk::<WINDOW>() {
        window
    } else {
        padded = last_window(rest);
        &padded
    };
    if window[0] != kind {
        return None;
    }
    let mut number = 0;
    for digits in 0..WINDOW - 3 {
        let byte = window[digits + 1];
        if byte.is_ascii_digit() {
            number = number * 10 + usize::from(byte - b'0');
        } else if digits > 0 && byte == b'\r' && window[digits + 2] == b'\n' {
            return Some((number, at + digits + 3));
        } else {
            return None;
        }
    }
    None
}

/// The window at the end of what has arrived, with bytes behind it that are part of no first line.
#[cold]
fn last_window(rest: &[u8]) -> [u8; WINDOW] {
    let mut window = [0; WINDOW];
    window[..rest.len()].copy_from_slice(rest);
    window
}

/// An ordinary string at `at` that is there as a whole: its place, and where it ends.
#[inline]
fn text(data: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    let (length, begin) = length(data, at, b'$')?;
    let end = begin + length;
    (data.get(end..end + 2)? == b"\r\n").then_some((begin..end, end + 2))
}

/// An ordinary id: milliseconds of 8 to 18 digits, a hyphen, and a number of at most 18 digits.
#[inline]
fn entry_id(text: &[u8]) -> Option<EntryId> {
    let (first, mut rest) = text.split_first_chunk::<8>()?;
    let mut numbers = [eight_digits(*first)?, 0];
    for (number, most) in numbers.iter_mut().zip([10, 18]) {
        let mut digits = 0;
        while let Some((byte @ b'0'..=b'9', more)) = rest.split_first()
            && digits < most
        {
            *number = *number * 10 + u64::from(byte - b'0');
            digits += 1;
            rest = more;
        }
        if most == 10 {
            rest = rest.strip_prefix(b"-")?;
        }
    }
    // A number that is empty or too long is left to the full parser, as everything unusual is.
    (rest.is_empty() && text.last() != Some(&b'-')).then(|| EntryId::new(numbers[0], numbers[1]))
}

/// Any other id, such as a publisher chooses itself.
#[cold]
fn unusual_id(text: &[u8]) -> Option<EntryId> {
    EntryId::parse(text).ok().filter(|_| text.len() <= MAX_ID)
}

/// Eight decimal digits at once: pairs, then fours, then all, each by one multiplication.
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    let chunk = u64::from_le_bytes(text);
    let digits = chunk.wrapping_sub(0x3030_3030_3030_3030);
    // A byte below '0' borrows into its highest bit, one above '9' carries into it.
    if (digits | chunk.wrapping_add(0x4646_4646_4646_4646)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_quick_parser_of_ids_agrees_with_the_full_one(
            text in prop_oneof![
                "[0-9]{0,22}-?[0-9]{0,20}",
                "[0-9]{8,13}-[0-9]{1,3}",
                "[/-:0-9]{6,12}-[/-:0-9]{1,3}",
                any::<(u64, u64)>().prop_map(|(ms, seq)| EntryId::new(ms, seq).to_string()),
            ]
        ) {
            if let Some(id) = entry_id(text.as_bytes()) {
                prop_assert_eq!(EntryId::parse(text.as_bytes()), Ok(id));
            }
        }

        #[test]
        fn ids_of_our_time_are_parsed_quickly(ms in 10_000_000_u64..1 << 50, seq in 0_u64..1 << 50) {
            let id = EntryId::new(ms, seq);
            prop_assert_eq!(entry_id(id.to_string().as_bytes()), Some(id));
        }
    }
}
