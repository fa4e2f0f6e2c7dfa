//! Tests of the model. What each command answers is held against real servers by the conformance test; here is what
//! that cannot see: time, readers that wait, faults.

mod faults;
mod reading;
mod rules;
mod transcripts;

use std::future::poll_fn;
use std::time::Duration;

use stream_core::{ConsumerName, EntryId, GroupName, StreamKey};
use stream_redis::{Connection, Error, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Request, Value};

use super::{MemoryServer, Profile};

const ALL: [Profile; 4] = [Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus];

fn key() -> StreamKey {
    StreamKey::new("s").unwrap()
}

fn group_read(consumer: &str, count: usize, block: u64) -> ReadRequest {
    ReadRequest {
        key: key(),
        from: ReadFrom::Group {
            group: GroupName::new("g").unwrap(),
            consumer: ConsumerName::new(consumer).unwrap(),
            no_ack: false,
        },
        count,
        block: Some(Duration::from_millis(block)),
    }
}

fn request(args: &[&'static str]) -> Request {
    args[1..].iter().fold(Request::new(args[0]), Request::arg)
}

async fn connect(server: &MemoryServer) -> std::sync::Arc<dyn Connection> {
    server.client().connector().connect(&key()).await.unwrap()
}

async fn reader(server: &MemoryServer) -> Box<dyn Reader> {
    server.client().connector().open_reader(&key(), "reader").await.unwrap()
}

async fn next(reader: &mut Box<dyn Reader>, batch: &mut ReadBatch) -> Result<ReadProgress, Error> {
    poll_fn(|cx| reader.poll_next(cx, batch)).await
}

async fn read(reader: &mut Box<dyn Reader>, read: &ReadRequest) -> Result<Vec<EntryId>, Error> {
    reader.submit(read);
    let mut batch = ReadBatch::default();
    while next(reader, &mut batch).await? == ReadProgress::Partial {}
    Ok(batch.entries.iter().map(stream_core::Entry::id).collect())
}

fn with_group(profile: Profile) -> MemoryServer {
    let server = MemoryServer::with_profile(profile);
    server.command(["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]).unwrap();
    server
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => {
            values.iter().map(|value| String::from_utf8_lossy(value.as_bytes().unwrap_or(b"?")).into_owned()).collect()
        }
        _ => Vec::new(),
    }
}
