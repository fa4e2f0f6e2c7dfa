//! Requests of the reading socket: `XREADGROUP` and `XREAD` of one stream.

use stream_core::EntryId;

use crate::command::milliseconds;
use crate::request::{begin, string};
use crate::{ReadFrom, ReadRequest};

/// The command of a read, for errors.
pub(super) fn command(read: &ReadRequest) -> &'static str {
    match read.from {
        ReadFrom::Group { .. } => "XREADGROUP",
        ReadFrom::After(_) => "XREAD",
    }
}

/// Appends the read as it goes over the wire.
pub(super) fn encode(read: &ReadRequest, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    let (mut arguments, no_ack) = match &read.from {
        ReadFrom::Group { no_ack, .. } => (9 + usize::from(*no_ack), *no_ack),
        ReadFrom::After(_) => (6, false),
    };
    arguments += if read.block.is_some() { 2 } else { 0 };
    begin(arguments, out);
    string(command(read).as_bytes(), out);
    if let ReadFrom::Group { group, consumer, .. } = &read.from {
        string(b"GROUP", out);
        string(group.as_bytes(), out);
        string(consumer.as_bytes(), out);
    }
    string(b"COUNT", out);
    // Zero would ask for everything there is.
    string(number.format(read.count.max(1)).as_bytes(), out);
    if let Some(block) = read.block {
        string(b"BLOCK", out);
        // Zero would wait for ever.
        string(number.format(milliseconds(block).max(1)).as_bytes(), out);
    }
    if no_ack {
        string(b"NOACK", out);
    }
    string(b"STREAMS", out);
    string(read.key.as_bytes(), out);
    match read.from {
        ReadFrom::Group { .. } => string(b">", out),
        ReadFrom::After(id) => string_id(id, out),
    }
}

fn string_id(id: EntryId, out: &mut Vec<u8>) {
    let mut text = Vec::with_capacity(41);
    id.write_to(&mut text);
    string(&text, out);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::command::tests::{consumer, group, id, key};

    fn check(from: ReadFrom, count: usize, block: Option<Duration>, expected: &str) {
        let mut out = Vec::new();
        encode(&ReadRequest { key: key("s"), from, count, block }, &mut out);
        let text = String::from_utf8(out).unwrap();
        let mut lines = text.split_terminator("\r\n");
        let arguments = lines.next().unwrap();
        let words: Vec<_> = lines.enumerate().filter(|(index, _)| index % 2 == 1).map(|(_, word)| word).collect();
        assert_eq!(words.join(" "), expected);
        assert_eq!(arguments, format!("*{}", words.len()));
    }

    #[test]
    fn reads_encode() {
        let from = |no_ack| ReadFrom::Group { group: group("g"), consumer: consumer("c"), no_ack };
        let second = Some(Duration::from_secs(1));
        check(from(false), 10, second, "XREADGROUP GROUP g c COUNT 10 BLOCK 1000 STREAMS s >");
        check(from(true), 10, None, "XREADGROUP GROUP g c COUNT 10 NOACK STREAMS s >");
        check(from(true), 1, second, "XREADGROUP GROUP g c COUNT 1 BLOCK 1000 NOACK STREAMS s >");
        check(ReadFrom::After(id(5, 1)), 3, second, "XREAD COUNT 3 BLOCK 1000 STREAMS s 5-1");
        check(ReadFrom::After(id(5, 1)), 3, None, "XREAD COUNT 3 STREAMS s 5-1");
    }

    #[test]
    fn numbers_that_mean_no_limit_are_never_sent() {
        let short = Some(Duration::from_nanos(1));
        check(ReadFrom::After(id(0, 0)), 0, short, "XREAD COUNT 1 BLOCK 1 STREAMS s 0-0");
        check(ReadFrom::After(id(0, 0)), 0, Some(Duration::ZERO), "XREAD COUNT 1 BLOCK 1 STREAMS s 0-0");
    }

    #[test]
    fn the_exact_bytes() {
        let mut out = Vec::new();
        let read = ReadRequest { key: key("key"), from: ReadFrom::After(id(12, 0)), count: 7, block: None };
        encode(&read, &mut out);
        let expected = "*6\r\n$5\r\nXREAD\r\n$5\r\nCOUNT\r\n$1\r\n7\r\n$7\r\nSTREAMS\r\n$3\r\nkey\r\n$4\r\n12-0\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
