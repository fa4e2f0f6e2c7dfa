//! The publisher: pipelined XADDs that know, across a server that dies in mid-work, which orders are on the stream.
//!
//! It is the only publisher of the stream and numbers its orders, so after a lost connection the last entry of the stream
//! tells where to go on: no order is published twice or left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stream_redis::Value;
use streamkeeper::EntryId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::plan::{Kind, Plan};
use super::worker::{ACT_FIELD, NUMBER_FIELD, STREAM};
use crate::Failure;
use crate::asked::{Asked, entry_of};

/// Orders on the way at a time.
const BATCH: u64 = 500;
/// A server that does not answer for so long is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the publisher and those who watch it tell each other.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The last order whose publication the server has confirmed.
    confirmed: AtomicU64,
    /// The last order that may be published for now.
    allowed: AtomicU64,
}

impl Published {
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::Relaxed)
    }

    pub(crate) fn allow(&self, until: u64) {
        self.allowed.store(until, Ordering::Relaxed);
    }
}

/// Publishes all orders of the plan, as far as is allowed at a time.
///
/// # Errors
/// The server refuses an order, or has lost one that it had confirmed. A server that is away is waited for: whoever
/// started it has to see to it.
pub(crate) async fn publish(asked: Asked, plan: Arc<Plan>, state: Arc<Published>) -> Result<(), Failure> {
    let mut next = 1;
    while next <= plan.len() {
        match last_on_stream(&asked).await {
            Some(last) if last + 1 < next => {
                let lost = format!("the server has lost order {} after it had confirmed it", last + 1);
                return Err(lost.into());
            }
            Some(last) => {
                next = last + 1;
                state.confirmed.store(last, Ordering::Relaxed);
                match connection(asked.address(), &plan, &state, &mut next).await {
                    Ok(()) | Err(Interrupted::Broken) => {}
                    Err(Interrupted::Refused(why)) => return Err(format!("the server refuses an order: {why}").into()),
                }
            }
            None => sleep(Duration::from_millis(20)).await,
        }
    }
    Ok(())
}

/// The number of the last order on the stream, 0 if there is none; `None` while the server is away.
async fn last_on_stream(asked: &Asked) -> Option<u64> {
    let Value::Array(entries) = asked.command(&["XREVRANGE", STREAM, "+", "-", "COUNT", "1"]).await.ok()? else {
        return None;
    };
    let Some(entry) = entries.first() else { return Some(0) };
    entry_of(entry).ok()?.get(NUMBER_FIELD).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
}

enum Interrupted {
    /// What of the last batch arrived is not known.
    Broken,
    Refused(String),
}

impl From<std::io::Error> for Interrupted {
    fn from(_: std::io::Error) -> Self {
        Self::Broken
    }
}

impl From<tokio::time::error::Elapsed> for Interrupted {
    fn from(_: tokio::time::error::Elapsed) -> Self {
        Self::Broken
    }
}

/// Publishes over one connection until all is published or it breaks. `next` is what follows the last confirmed order.
async fn connection(address: &str, plan: &Plan, state: &Published, next: &mut u64) -> Result<(), Interrupted> {
    let stream = timeout(PATIENCE, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut out = Vec::new();
    let mut line = String::new();
    while *next <= plan.len() {
        let until = state.allowed.load(Ordering::Relaxed).min(plan.len()).min(*next + BATCH - 1);
        if until < *next {
            sleep(Duration::from_millis(5)).await;
            continue;
        }
        out.clear();
        (*next..=until).for_each(|order| encode(&mut out, plan, order));
        timeout(PATIENCE, stream.write_all(&out)).await??;
        while *next <= until {
            // A reply is a length, as in `$15`, and an id.
            let id = match reply_line(&mut stream, &mut line).await? {
                text if text.starts_with('$') => reply_line(&mut stream, &mut line).await?,
                other => return Err(Interrupted::Refused(other.trim_start_matches('-').to_owned())),
            };
            if EntryId::parse(id.as_bytes()).is_err() {
                return Err(Interrupted::Refused(format!("it answers {id}")));
            }
            state.confirmed.store(*next, Ordering::Relaxed);
            *next += 1;
        }
    }
    Ok(())
}

async fn reply_line<'a>(stream: &mut BufReader<TcpStream>, line: &'a mut String) -> Result<&'a str, Interrupted> {
    line.clear();
    timeout(PATIENCE, stream.read_line(line)).await??;
    // Cut off, it is no reply.
    line.strip_suffix("\r\n").ok_or(Interrupted::Broken)
}

fn encode(out: &mut Vec<u8>, plan: &Plan, order: u64) {
    let number = order.to_string();
    let payload = plan.payload(order);
    let act = plan.kind(order).and_then(Kind::act);
    let mut words: Vec<&[u8]> =
        vec![b"XADD", STREAM.as_bytes(), b"*", b"data", &payload, NUMBER_FIELD.as_bytes(), number.as_bytes()];
    if let Some(act) = act {
        words.extend([ACT_FIELD.as_bytes(), act.as_bytes()]);
    }
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_one_command() {
        let mut out = Vec::new();
        encode(&mut out, &Plan::generated(100), 36);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("*9\r\n$4\r\nXADD\r\n$11\r\ndemo:orders\r\n$1\r\n*\r\n$4\r\ndata\r\n$"), "{text}");
        assert!(text.ends_with("$6\r\nnumber\r\n$2\r\n36\r\n$3\r\nact\r\n$5\r\nabort\r\n"), "{text}");
    }
}
