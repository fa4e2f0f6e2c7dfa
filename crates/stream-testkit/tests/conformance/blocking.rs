//! What ends a read that waits, on real servers and in the model.

use std::time::Duration;

use stream_redis::{Error, ServerError, Value};
use stream_testkit::{MemoryServer, ServerBinary, eventually, matrix};
use tokio::task::JoinSet;

use super::compare::{normalise, show};
use super::{Pair, request};

/// What happens while a client waits in `XREADGROUP` and another in `XREAD`.
const CHANGES: [&[&str]; 10] = [
    &["XADD KEY 5-0 f v"],
    &["DEL KEY"],
    &["SET KEY text"],
    &["XGROUP DESTROY KEY g"],
    &["XGROUP DESTROY KEY h"],
    &["DEL KEY", "XADD KEY 5-0 f v"],
    &["XADD KEY MAXLEN 0 5-0 f v"],
    &["XGROUP SETID KEY g 0", "XADD KEY 5-0 f v"],
    &["XREADGROUP GROUP g b STREAMS KEY >"],
    &["XTRIM KEY MAXLEN 0"],
];

/// On a busy machine a read may have waited its time out before the change reached the server; a difference that is one
/// comes back each time.
const ATTEMPTS: u32 = 3;

type Reply = Result<Value, ServerError>;

fn args(text: &str, key: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|arg| arg.replace("KEY", key).into_bytes()).collect()
}

#[tokio::test]
async fn waiting_reads_end_as_on_real_servers() {
    // All at the same time: most of it is waiting.
    let mut servers: JoinSet<()> = matrix::all().into_iter().map(waiting_reads_end_as_on).collect();
    while let Some(ended) = servers.join_next().await {
        ended.unwrap();
    }
}

async fn waiting_reads_end_as_on(binary: ServerBinary) {
    let pair = Pair::start(&binary).await;
    let key = pair.real.fresh_key("s");
    for change in CHANGES {
        for read in ["XREADGROUP GROUP g a BLOCK 400 STREAMS KEY >", "XREAD BLOCK 400 STREAMS KEY $"] {
            let read = args(read, &key);
            let change: Vec<_> = change.iter().map(|command| args(command, &key)).collect();
            for attempt in 1..=ATTEMPTS {
                let expected = on_real(&pair, &key, &read, &change).await.expect("the real server answers");
                let actual = on_model(&pair, &key, &read, &change).await.expect("the model answers");
                let (expected, actual) = (normalise(&read, expected), normalise(&read, actual));
                if expected == actual {
                    break;
                }
                let change: Vec<String> = change.iter().map(|command| show(command)).collect();
                let what = format!("{}: {} while {change:?}", pair.real.name(), show(&read));
                assert!(attempt < ATTEMPTS, "{what}:\n real server {expected:?}\n model {actual:?}");
            }
        }
    }
}

fn setup(key: &str) -> Vec<stream_redis::Request> {
    let commands = ["DEL KEY", "XADD KEY 1-0 f v", "XGROUP CREATE KEY g $", "XGROUP CREATE KEY h $"];
    commands.iter().map(|command| request(&args(command, key))).collect()
}

async fn on_real(pair: &Pair, key: &str, read: &[Vec<u8>], change: &[Vec<Vec<u8>>]) -> Result<Reply, Error> {
    let (waiter, other) = (pair.connect_real().await, pair.connect_real().await);
    other.send(&setup(key)).await?;
    let before = blocked_clients(pair).await;
    let read = request(read);
    let waiting = tokio::spawn(async move { waiter.send(&[read]).await });
    eventually(Duration::from_secs(10), "the read waits", async || {
        (waiting.is_finished() || blocked_clients(pair).await > before).then_some(())
    })
    .await;
    for command in change {
        other.send(&[request(command)]).await?;
    }
    Ok(waiting.await.expect("the task ends")?.remove(0))
}

async fn on_model(pair: &Pair, key: &str, read: &[Vec<u8>], change: &[Vec<Vec<u8>>]) -> Result<Reply, Error> {
    let model = MemoryServer::with_profile(pair.profile);
    let (waiter, other) = (pair.connect_model(&model).await, pair.connect_model(&model).await);
    other.send(&setup(key)).await?;
    let read = request(read);
    let waiting = tokio::spawn(async move { waiter.send(&[read]).await });
    while model.blocked_readers() == 0 && !waiting.is_finished() {
        tokio::task::yield_now().await;
    }
    for command in change {
        other.send(&[request(command)]).await?;
    }
    Ok(waiting.await.expect("the task ends")?.remove(0))
}

async fn blocked_clients(pair: &Pair) -> u64 {
    let info = pair.real.cli(&["INFO", "clients"]).await.expect("INFO answers");
    let text = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.and_then(|number| number.trim().parse().ok()).expect("INFO tells the blocked clients")
}
