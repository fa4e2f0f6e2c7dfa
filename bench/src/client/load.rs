//! Load: fills streams before a race, feeds them at a rate, and is the floor of publishing: `XADD` without waiting for
//! each reply.

use std::str::FromStr;
use std::time::{Duration, Instant};

use super::floor::count_replies;
use super::raw::{Socket, command};
use super::report::{Watch, now_ns};
use super::{Task, streams};
use crate::Failure;

/// Bytes that are written at once.
const WRITE: usize = 64 << 10;
/// Keys of entries that are to be handled in order.
const KEYS: u64 = 1_000;

/// What payloads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A time stamp and letters.
    Text,
    /// A JSON string, for racers that take nothing else.
    String,
    /// A JSON object with a few fields.
    Object,
    /// Text, with one of 1,000 keys in a field of its own.
    Keyed,
}

impl FromStr for Kind {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        match text {
            "text" => Ok(Self::Text),
            "string" => Ok(Self::String),
            "json" => Ok(Self::Object),
            "keyed" => Ok(Self::Keyed),
            other => Err(format!("no kind of payload is called {other}").into()),
        }
    }
}

/// Appends `EXPECT` entries, spread evenly over the streams.
pub(super) fn fill(task: &Task, kind: Kind) -> Result<(), Failure> {
    let streams = streams(task)?;
    let each = task.expect / streams.len() as u64;
    for stream in &streams {
        let mut socket = Socket::connect(task.port)?;
        append(&mut socket, task, stream, kind, each)?;
    }
    Ok(())
}

/// Publishes as fast as the server takes it.
pub(super) fn publish(task: &Task, watch: &Watch) -> Result<(), Failure> {
    let mut socket = Socket::connect(task.port)?;
    watch.begin();
    append(&mut socket, task, &task.stream, Kind::Text, task.expect)?;
    watch.report();
    Ok(())
}

fn append(socket: &mut Socket, task: &Task, stream: &str, kind: Kind, entries: u64) -> Result<(), Failure> {
    let replies = socket.again()?;
    let reader = std::thread::spawn(move || count_replies(replies, entries));
    let mut out = Vec::with_capacity(WRITE * 2);
    for number in 0..entries {
        entry(&mut out, task, stream, kind, number);
        if out.len() > WRITE || number + 1 == entries {
            socket.write(&out)?;
            out.clear();
        }
    }
    reader.join().map_err(|_| "the reading thread panicked")?
}

/// Appends at a rate: about every 0.2 ms what is due by then, with the time just before the write.
pub(super) fn feed(task: &Task, rate: f64, seconds: f64) -> Result<(), Failure> {
    let mut socket = Socket::connect(task.port)?;
    let replies = socket.again()?;
    let total = (rate * seconds) as u64;
    let reader = std::thread::spawn(move || count_replies(replies, total));
    let started = Instant::now();
    let mut sent = 0;
    let mut out = Vec::new();
    while sent < total {
        let due = ((started.elapsed().as_secs_f64() * rate) as u64 + 1).min(total);
        out.clear();
        while sent < due {
            entry(&mut out, task, &task.stream, Kind::Text, sent);
            sent += 1;
        }
        socket.write(&out)?;
        let next = Duration::from_secs_f64(sent as f64 / rate);
        std::thread::sleep(next.saturating_sub(started.elapsed()));
    }
    reader.join().map_err(|_| "the reading thread panicked")?
}

fn entry(out: &mut Vec<u8>, task: &Task, stream: &str, kind: Kind, number: u64) {
    let payload = payload(kind, number, task.size);
    let words = [b"XADD".as_slice(), stream.as_bytes(), b"*"];
    if kind == Kind::Keyed {
        let key = format!("customer-{}", number % KEYS);
        command(out, &[&words[..], &[b"key", key.as_bytes(), task.field.as_bytes(), &payload]].concat());
    } else {
        command(out, &[&words[..], &[task.field.as_bytes(), &payload]].concat());
    }
}

fn payload(kind: Kind, number: u64, size: usize) -> Vec<u8> {
    let stamp = now_ns();
    let (begin, end) = match kind {
        Kind::Text | Kind::Keyed => (format!("{stamp:019}"), ""),
        Kind::String => (format!("\"{stamp:019}"), "\""),
        Kind::Object => (
            format!("{{\"number\":{number},\"customer\":\"customer-{}\",\"cents\":4200,\"item\":\"", number % KEYS),
            "\"}",
        ),
    };
    let mut payload = begin.into_bytes();
    payload.resize(size.saturating_sub(end.len()).max(payload.len()), b'x');
    payload.extend_from_slice(end.as_bytes());
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_their_size_and_are_what_they_say() {
        for kind in [Kind::Text, Kind::String, Kind::Object, Kind::Keyed] {
            assert_eq!(payload(kind, 7, 200).len(), 200, "{kind:?}");
        }
        let object: serde_json::Value = serde_json::from_slice(&payload(Kind::Object, 1_007, 200)).unwrap();
        assert_eq!((&object["number"], &object["customer"]), (&1_007.into(), &"customer-7".into()));
        assert!(serde_json::from_slice::<String>(&payload(Kind::String, 1, 200)).is_ok());
    }
}
