//! The common case of the decoder: an entry of two elements that is there as a whole.
//!
//! What must stay true: whatever is accepted here is what the states of the decoder would have made of it; anything
//! unusual, cut or wrong is left to them.

use std::ops::Range;

use stream_core::{EntryId, FieldSpan};

/// A type, at most 9 digits and the line end: the first line of anything that is ordinary fits.
const WINDOW: usize = 12;

/// An entry that is there as a whole.
pub(super) struct Whole {
    pub(super) id: EntryId,
    /// Where its fields are.
    pub(super) body: Range<usize>,
    /// Where the next one begins.
    pub(super) end: usize,
}

/// The entry at `at`, with the places of its fields in `spans`.
#[inline]
pub(super) fn entry(data: &[u8], at: usize, spans: &mut Vec<FieldSpan>) -> Option<Whole> {
    let (2, at) = length(data, at, b'*')? else { return None };
    let (id, at) = text(data, at)?;
    let id = entry_id(&data[id])?;
    let (elements, start) = length(data, at, b'*')?;
    if elements % 2 != 0 {
        return None;
    }
    spans.clear();
    let mut whole = Whole { id, body: start..start, end: start };
    for _ in 0..elements / 2 {
        let (name, next) = text(data, whole.end)?;
        let (value, next) = text(data, next)?;
        // What is there as a whole may still be too large for an offset.
        let offset = |place: usize| u32::try_from(place - start).ok();
        spans.push(FieldSpan {
            name_start: offset(name.start)?,
            name_end: offset(name.end)?,
            value_start: offset(value.start)?,
            value_end: offset(value.end)?,
        });
        whole.body.end = value.end;
        whole.end = next;
    }
    Some(whole)
}

/// The text of the last id of so many entries that begin at `at`, and where they end, if they are there as a whole. Only
/// lengths are looked at, so that it costs a fraction of what taking them apart does.
pub(super) fn last(data: &[u8], mut at: usize, entries: u64) -> Option<(&[u8], usize)> {
    let mut id = at..at;
    for _ in 0..entries {
        let (2, next) = length(data, at, b'*')? else { return None };
        let (text_of_id, next) = text(data, next)?;
        let (elements, next) = length(data, next, b'*')?;
        (id, at) = (text_of_id, next);
        for _ in 0..elements {
            at = text(data, at)?.1;
        }
    }
    Some((&data[id], at))
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
