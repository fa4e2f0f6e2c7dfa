//! What is read before and beside the streams: the greeting, what sentinels answer and tell, and the slots of a cluster.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use stream_redis::fuzzing::{cluster, resp, sentinel};
use stream_redis::{ServerError, Value};

#[derive(Debug)]
enum Input {
    Resp(Vec<u8>),
    Sentinels(Vec<Vec<Value>>),
    Slots(Value, Vec<(u16, u8)>),
    Error(Vec<u8>),
    Key(Vec<u8>),
}

const MASTER: &str = "main";
const WORDS: &[&str] = &[
    "main",
    "message",
    "subscribe",
    "+switch-master",
    "main 10.0.0.1 6379 10.0.0.2 6380",
    "config-epoch",
    "10.0.0.1",
    "6379",
    "7",
    "",
];
const PIECES: &[&str] = &[
    "*1\r\n",
    "*2\r\n",
    "%1\r\n",
    "$-1\r\n",
    "$3\r\nabc\r\n",
    "+OK\r\n",
    "-ERR no\r\n",
    ":1\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "=7\r\ntxt:abc\r\n",
    "!5\r\nERR x\r\n",
    "(123\r\n",
    ">1\r\n",
    "~0\r\n",
    "|1\r\n",
    "*9223372036854775807\r\n",
    "*-1\r\n",
    "$5\r\nab",
];

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match input.int_in_range(0..=5)? {
            0 => Self::Resp(input.arbitrary()?),
            1 => {
                let mut bytes = Vec::new();
                for _ in 0..input.int_in_range(0..=20)? {
                    match input.ratio(4, 5)? {
                        true => bytes.extend(input.choose(PIECES)?.as_bytes()),
                        false => bytes.extend(input.arbitrary::<[u8; 3]>()?),
                    }
                }
                Self::Resp(bytes)
            }
            2 => {
                let replies = |input: &mut Unstructured<'a>| {
                    (0..input.int_in_range(0..=3)?).map(|_| value(input, 0)).collect::<Result<Vec<_>>>()
                };
                Self::Sentinels((0..input.int_in_range(0..=4)?).map(|_| replies(input)).collect::<Result<_>>()?)
            }
            3 => Self::Slots(rows(input)?, input.arbitrary()?),
            4 => {
                let code = *input.choose(&["MOVED", "ASK", "TRYAGAIN"])?;
                let text = format!(
                    "{code} {} {}",
                    input.arbitrary::<u16>()?,
                    input.choose(&["h:7000", ":7001", "[::1]:1", "h"])?
                );
                Self::Error(if input.ratio(3, 4)? { text.into_bytes() } else { input.arbitrary()? })
            }
            _ => Self::Key(input.arbitrary()?),
        })
    }
}

fn value(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(match input.int_in_range(0..=if depth < 3 { 7 } else { 4 })? {
        0 => Value::Nil,
        1 => Value::Int(input.arbitrary()?),
        2 | 3 => Value::bulk(input.choose(WORDS)?),
        4 => Value::bulk(input.arbitrary::<&[u8]>()?),
        5 => Value::Error(ServerError::parse("NOPERM no")),
        _ => Value::Array((0..input.int_in_range(0..=5)?).map(|_| value(input, depth + 1)).collect::<Result<_>>()?),
    })
}

/// Mostly rows as a node would tell them, in any order and overlapping or not.
fn rows(input: &mut Unstructured<'_>) -> Result<Value> {
    let mut rows = Vec::new();
    let mut next = 0_i64;
    for _ in 0..input.int_in_range(0..=6)? {
        if input.ratio(1, 10)? {
            rows.push(value(input, 0)?);
            continue;
        }
        let least = if input.ratio(1, 10)? { -9 } else { 0 };
        let first = next + input.int_in_range(least..=4_000)?;
        let last = first + input.int_in_range(least..=4_000)?;
        next = last + 1;
        let host = *input.choose(&["a", "b", "c", ""])?;
        let owner = Value::Array(vec![Value::bulk(host), Value::Int(7_000), Value::bulk("id")]);
        rows.push(Value::Array(vec![Value::Int(first), Value::Int(last), owner]));
    }
    Ok(Value::Array(rows))
}

fuzz_target!(|input: Input| {
    match input {
        Input::Resp(bytes) => greeting(&bytes),
        Input::Sentinels(replies) => sentinels(&replies),
        Input::Slots(reply, moves) => slots(&reply, &moves),
        Input::Error(line) => {
            let error = ServerError::parse(&String::from_utf8_lossy(&line));
            if let Some((slot, (host, _))) = cluster::redirection(&error, "asked") {
                assert!(!host.is_empty() && slot.is_none_or(|slot| slot < 16_384));
            }
        }
        Input::Key(key) => {
            let slot = cluster::slot_of(&key);
            assert!(slot < 16_384);
            // Whatever has the whole of a key as its tag is in the slot of that key, if the key can be a tag.
            if !key.is_empty() && !key.contains(&b'{') && !key.contains(&b'}') {
                assert_eq!(cluster::slot_of(&[b"{", &key[..], b"}:dead"].concat()), slot);
            }
        }
    }
});

/// A value that is there as a whole is read the same whatever follows, and not before its last byte has come.
fn greeting(bytes: &[u8]) {
    let Ok(Some((value, used))) = resp(bytes) else { return };
    assert!(used <= bytes.len() && size(&value) <= used, "{} of {used} bytes", size(&value));
    assert_eq!(resp(&bytes[..used]), Ok(Some((value, used))));
    for end in 0..used.min(200) {
        assert_eq!(resp(&bytes[..end]), Ok(None), "{end} of {used}");
    }
}

/// Bytes of texts, and one for everything else.
fn size(value: &Value) -> usize {
    match value {
        Value::Bulk(bytes) => bytes.len(),
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(pairs) => 1 + pairs.iter().map(|(name, value)| size(name) + size(value)).sum::<usize>(),
        _ => 1,
    }
}

/// Each server is named once, with all that were named by a sentinel; an answer that names one is enough.
fn sentinels(replies: &[Vec<Value>]) {
    match sentinel::candidates(MASTER, replies) {
        Ok(named) => {
            assert!(!named.is_empty() && named.len() <= replies.len());
            let mut once = named.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), named.len(), "{named:?}");
        }
        Err(error) => assert!(!replies.is_empty() || error.to_string().contains(MASTER), "{error}"),
    }
    for said in replies.iter().flatten() {
        if let Ok(Some((host, _))) = sentinel::switched(said, MASTER) {
            let Value::Array(parts) = said else { panic!("only an array tells of a switch: {said:?}") };
            let message = String::from_utf8_lossy(parts[2].as_bytes().expect("the message")).into_owned();
            assert!(message.starts_with("main ") && message.contains(&format!(" {host} ")), "{message}");
        }
    }
}

/// The map answers as the rows say, and a slot that has moved is where it went, which changes no other.
fn slots(reply: &Value, moves: &[(u16, u8)]) {
    let Ok(mut map) = cluster::Slots::read(reply, "asked") else { return };
    let Value::Array(rows) = reply else { panic!("a map is an array") };
    let mut owners = BTreeMap::new();
    for row in rows {
        let Value::Array(row) = row else { panic!("a row is an array") };
        let (first, last) = (row[0].as_int().expect("a slot"), row[1].as_int().expect("a slot"));
        let Value::Array(owner) = &row[2] else { panic!("an owner is an array") };
        let host = owner[0].as_bytes().and_then(|host| std::str::from_utf8(host).ok()).filter(|host| !host.is_empty());
        for slot in first..=last {
            let port = owner[1].as_int().expect("a port") as u16;
            assert!(
                owners.insert(slot as u16, (host.unwrap_or("asked").to_owned(), port)).is_none(),
                "slot {slot} twice"
            );
        }
    }
    for (slot, node) in moves {
        let slot = slot % 16_384;
        map.moved(slot, &node.to_string(), 1);
        owners.insert(slot, (node.to_string(), 1));
    }
    for slot in (0..16_384).step_by(97).chain(moves.iter().map(|(slot, _)| slot % 16_384)) {
        for slot in [slot, slot.saturating_sub(1), (slot + 1) % 16_384] {
            assert_eq!(map.owner(slot), owners.get(&slot).cloned(), "slot {slot}");
        }
    }
    for node in map.nodes() {
        assert!(owners.values().any(|owner| *owner == node), "{node:?} owns nothing");
    }
}
