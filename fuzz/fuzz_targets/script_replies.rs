//! Replies of the library's scripts: whatever a server says, each step is carried out as asked or refused.
#![no_main]

use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stream_core::{ConsumerName, EntryId, GroupName, StreamKey};
use stream_redis::{Connection, Error, Fenced, Owner, Request, ServerError, Taken, Value};

/// What the server answers, one after the other; then nothing but errors.
#[derive(Debug)]
struct Replies(Vec<std::result::Result<Value, ServerError>>);

const ERRORS: &[&str] = &[
    "NOSCRIPT No matching script. Please use EVAL.",
    "NOGROUP No such key 's' or consumer group 'g'",
    "NOPERM User u has no permissions to run the 'evalsha' command",
    "ERR unknown command 'EVALSHA', with args beginning with: ",
    "@user_script: 30: -OOM command not allowed: x",
    "CROSSSLOT Keys in request don't hash to the same slot",
];

impl<'a> Arbitrary<'a> for Replies {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let reply = |input: &mut Unstructured<'a>| {
            Ok(if input.ratio(1, 4)? { Err(ServerError::parse(input.choose(ERRORS)?)) } else { Ok(value(input, 0)?) })
        };
        Ok(Self((0..input.int_in_range(1..=8)?).map(|_| reply(input)).collect::<Result<_>>()?))
    }
}

fn value(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(match input.int_in_range(0..=if depth < 4 { 7 } else { 4 })? {
        0 => Value::Nil,
        1 => Value::Int(input.int_in_range(-2..=3)?),
        2 => Value::bulk(input.arbitrary::<&[u8]>()?),
        3 => Value::bulk(input.choose(&["1-0", "2-0", "3-0", "9-0", "x", "0-0"])?),
        4 => Value::Int(input.arbitrary()?),
        _ => Value::Array((0..input.int_in_range(0..=6)?).map(|_| value(input, depth + 1)).collect::<Result<_>>()?),
    })
}

struct Server(std::sync::Mutex<std::collections::VecDeque<std::result::Result<Value, ServerError>>>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait::async_trait]
impl Connection for Server {
    async fn send(
        &self,
        requests: &[Request],
    ) -> std::result::Result<Vec<std::result::Result<Value, ServerError>>, Error> {
        let mut replies = self.0.lock().expect("nobody panics with the lock");
        let gone = || Err(ServerError::parse("ERR gone"));
        Ok(requests.iter().map(|_| replies.pop_front().unwrap_or_else(gone)).collect())
    }
}

fuzz_target!(|input: (u8, Replies)| {
    let (step, replies) = input;
    let owner = Owner {
        key: StreamKey::new("s").expect("the name is not empty"),
        group: GroupName::new("g").expect("the name is not empty"),
        consumer: ConsumerName::new("c").expect("the name is not empty"),
    };
    let ids: Vec<EntryId> = (1..4).map(|ms| EntryId::new(ms, 0)).collect();
    let counted: Vec<(EntryId, u64)> = ids.iter().map(|id| (*id, 2)).collect();
    let lease = Duration::from_secs(30);
    let server = Server(std::sync::Mutex::new(replies.0.into()));
    let fenced = Fenced::new();
    let letters = StreamKey::new("s:dead").expect("the name is not empty");
    let fields = [(Bytes::from_static(b"f"), Bytes::from_static(b"v"))];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    runtime.block_on(async {
        match step % 8 {
            0 => drop(fenced.renew(&server, &owner, &ids, lease).await),
            1 => drop(fenced.acknowledge(&server, &owner, &ids, lease).await),
            2 => drop(fenced.acknowledge_and_delete(&server, &owner, &ids, lease).await),
            3 => drop(fenced.hand_back(&server, &owner, &counted).await),
            4 | 5 => {
                let taken = fenced.take(&server, &owner, &counted, step % 8 == 4, lease).await;
                if let Ok(taken) = taken {
                    assert_eq!(taken.len(), counted.len(), "one answer for each entry: {taken:?}");
                    for ((id, _), taken) in counted.iter().zip(&taken) {
                        if let Taken::Entry(entry) = taken {
                            assert_eq!(entry.id(), *id, "the entry that was asked for");
                        }
                    }
                }
            }
            6 => drop(fenced.dead_letter(&server, &owner, ids[0], &letters, Some(100), &fields).await),
            _ => drop((
                fenced.remove_consumer(&server, &owner).await,
                fenced.destroy_group(&server, &owner.key, &owner.group, ids[0]).await,
            )),
        }
    });
});
