//! How many bytes an entry takes in a node of a stream: it decides where nodes end, and with it what `~` can trim.

use bytes::Bytes;
use stream_core::EntryId;

use super::args::int;

/// A node without entries: header, the counters of one entry, the names of its first entry, terminators.
pub(super) fn node_bytes(names: &[Bytes]) -> usize {
    let names_bytes: usize = names.iter().map(|name| string(name)).sum();
    7 + counters(1, 0) + number(names.len() as i64) + names_bytes + number(0)
}

/// The two counters at the head of a node.
pub(super) fn counters(live: usize, deleted: usize) -> usize {
    number(live as i64) + number(deleted as i64)
}

/// One entry in the node that begins with `first`, whose field names are `names`.
pub(super) fn entry_bytes(first: EntryId, id: EntryId, fields: &[Bytes], names: &[Bytes]) -> usize {
    let same = fields.iter().step_by(2).eq(names);
    let pairs = (fields.len() / 2) as i64;
    let values: usize = fields.iter().skip(1).step_by(2).map(|value| string(value)).sum();
    let ids = number(id.ms().wrapping_sub(first.ms()) as i64) + number(id.seq().wrapping_sub(first.seq()) as i64);
    if same {
        number(2) + ids + values + number(pairs + 3)
    } else {
        let own_names: usize = fields.iter().step_by(2).map(|name| string(name)).sum();
        number(0) + ids + number(pairs) + own_names + values + number(2 * pairs + 4)
    }
}

fn string(bytes: &[u8]) -> usize {
    match (int(bytes), bytes.len()) {
        (Some(value), _) => number(value),
        (None, length @ ..64) => with_back_length(1 + length),
        (None, length @ ..4096) => with_back_length(2 + length),
        (None, length) => with_back_length(5 + length),
    }
}

fn number(value: i64) -> usize {
    with_back_length(match value {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=8_388_607 => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    })
}

fn with_back_length(bytes: usize) -> usize {
    bytes
        + match bytes {
            ..=127 => 1,
            128..16_383 => 2,
            16_383..2_097_151 => 3,
            2_097_151..268_435_455 => 4,
            _ => 5,
        }
}
