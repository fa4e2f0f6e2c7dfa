//! The floor: raw clients that read, look at each payload and acknowledge in batches, and do nothing else. What the
//! server takes for that is what no client can save.

use std::net::TcpStream;
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::Task;
use super::raw::{Socket, argument, begin, command};
use super::report::Watch;
use crate::Failure;

/// How long a read waits for entries that are still to come, in milliseconds.
const BLOCK: &[u8] = b"1000";

/// Drains a group: `XREADGROUP` with two reads in flight on one connection, `XACK` of each batch on another.
pub(super) fn drain(task: &Task, count: usize, watch: &Watch) -> Result<(), Failure> {
    let mut reads = Socket::connect(task.port)?;
    let read = read_command(task, count, "floor");
    let (acks, acker) = acknowledger(task)?;
    // What is still to come must not be asked for twice: the second read would wait while entries arrive.
    for _ in 0..if task.live { 1 } else { 2 } {
        reads.write(&read)?;
    }
    while watch.seen() < task.expect {
        let mut ids = Vec::with_capacity(count * 26);
        let entries = reads.reply(|id, payload| {
            ids.extend_from_slice(id);
            watch.see(payload);
        })?;
        if watch.seen() < task.expect {
            reads.write(&read)?;
        }
        if entries > 0 {
            let mut ack = Vec::with_capacity(ids.len() + 64);
            begin(&mut ack, 3 + entries);
            for word in ["XACK", &task.stream, &task.group] {
                argument(&mut ack, word.as_bytes());
            }
            ack.extend_from_slice(&ids);
            acks.send(ack)?;
        }
    }
    drop(acks);
    acker.join().map_err(|_| "the acknowledging thread panicked")??;
    watch.report();
    Ok(())
}

type Acker = JoinHandle<Result<(), Failure>>;

fn acknowledger(task: &Task) -> Result<(mpsc::Sender<Vec<u8>>, Acker), Failure> {
    let mut socket = Socket::connect(task.port)?;
    let (send, receive) = mpsc::channel::<Vec<u8>>();
    let acker = std::thread::spawn(move || {
        for ack in receive {
            socket.write(&ack)?;
            socket.reply(|_, _| {})?;
        }
        Ok(())
    });
    Ok((send, acker))
}

/// Follows a stream from its beginning with `XREAD`, without a group.
pub(super) fn tail(task: &Task, watch: &Watch) -> Result<(), Failure> {
    let mut socket = Socket::connect(task.port)?;
    // The id as the bulk string in which it comes goes back as an argument.
    let mut after = b"$1\r\n0\r\n".to_vec();
    while watch.seen() < task.expect {
        let mut read = Vec::with_capacity(128);
        begin(&mut read, 8);
        for word in [b"XREAD".as_slice(), b"COUNT", b"1000", b"BLOCK", BLOCK, b"STREAMS", task.stream.as_bytes()] {
            argument(&mut read, word);
        }
        read.extend_from_slice(&after);
        socket.write(&read)?;
        socket.reply(|id, payload| {
            after.clear();
            after.extend_from_slice(id);
            watch.see(payload);
        })?;
    }
    watch.report();
    Ok(())
}

/// Reads without acknowledging, as somebody who holds all of it does.
pub(super) fn take(task: &Task) -> Result<(), Failure> {
    let mut socket = Socket::connect(task.port)?;
    let read = read_command(task, 1_000, "holder");
    let mut taken = 0;
    while taken < task.expect {
        socket.write(&read)?;
        match socket.reply(|_, _| {})? {
            0 => return Err(format!("only {taken} of {} entries are there", task.expect).into()),
            more => taken += more as u64,
        }
    }
    println!("{{\"n\":{taken}}}");
    Ok(())
}

fn read_command(task: &Task, count: usize, consumer: &str) -> Vec<u8> {
    let count = count.to_string();
    let mut words: Vec<&[u8]> =
        vec![b"XREADGROUP", b"GROUP", task.group.as_bytes(), consumer.as_bytes(), b"COUNT", count.as_bytes()];
    if task.live {
        words.extend_from_slice(&[b"BLOCK", BLOCK]);
    }
    words.extend_from_slice(&[b"STREAMS", task.stream.as_bytes(), b">"]);
    let mut out = Vec::new();
    command(&mut out, &words);
    out
}

/// Reads replies that are an id each, until there were so many.
pub(super) fn count_replies(mut from: TcpStream, replies: u64) -> Result<(), Failure> {
    use std::io::Read;
    let mut buffer = vec![0; 1 << 16];
    let mut begins_line = true;
    let mut lines = 0;
    // An id comes as its length and itself, a line each.
    while lines < replies * 2 {
        let more = from.read(&mut buffer)?;
        if more == 0 {
            return Err("the server closed the connection".into());
        }
        lines += count_lines(&buffer[..more], &mut begins_line)?;
    }
    Ok(())
}

/// The number of line ends. A line that begins with a hyphen is an error of the server; a hyphen elsewhere belongs to an
/// id, also where the bytes happen to arrive cut before it.
fn count_lines(bytes: &[u8], begins_line: &mut bool) -> Result<u64, Failure> {
    let mut lines = 0;
    let mut start = Some(0).filter(|_| *begins_line);
    for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
        if let Some(start) = start
            && bytes.get(start) == Some(&b'-')
        {
            return Err(String::from_utf8_lossy(&bytes[start..end]).trim().to_owned().into());
        }
        lines += u64::from(end < bytes.len());
        start = Some(end + 1);
    }
    *begins_line = bytes.last() == Some(&b'\n');
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `bytes` when they arrive in two parts, cut anywhere.
    fn cut_anywhere(bytes: &[u8]) -> Vec<Result<u64, String>> {
        let cut = |at: usize| {
            let mut begins_line = true;
            let (one, other) = bytes.split_at(at);
            let one = count_lines(one, &mut begins_line)?;
            Ok::<_, Failure>(one + count_lines(other, &mut begins_line)?)
        };
        (0..=bytes.len()).map(|at| cut(at).map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn a_hyphen_within_an_id_is_no_error_wherever_it_is_cut() {
        assert!(cut_anywhere(b"$4\r\n17-0\r\n$5\r\n17-10\r\n").iter().all(|lines| *lines == Ok(4)));
    }

    #[test]
    fn an_error_among_replies_is_found_wherever_it_is_cut() {
        for lines in cut_anywhere(b"$4\r\n17-0\r\n-OOM no memory\r\n$5\r\n17-10\r\n") {
            assert!(lines.unwrap_err().starts_with('-'));
        }
    }
}
