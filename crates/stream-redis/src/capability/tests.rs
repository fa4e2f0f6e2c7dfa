//! Replies as measured; the probes themselves are tried on real servers.

use std::sync::Mutex;

use async_trait::async_trait;

use super::*;

/// Answers to each `send` in turn, with the words that were sent.
struct Script {
    answers: Mutex<Vec<Vec<Result<Value, ServerError>>>>,
    asked: Mutex<Vec<String>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Vec<Result<Value, ServerError>>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() }
    }
}

#[async_trait]
impl Connection for Script {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        self.asked.lock().unwrap().extend(requests.iter().map(|request| request.command().to_owned()));
        Ok(self.answers.lock().unwrap().remove(0))
    }
}

fn error(line: &str) -> Result<Value, ServerError> {
    Err(ServerError::parse(line))
}

fn key() -> StreamKey {
    StreamKey::new("s").unwrap()
}

async fn check(wanted: Capability, reply: Result<Value, ServerError>, there: bool) {
    let script = Script::new([vec![reply.clone()]]);
    let found = Capabilities::probe_for(&script, &key(), &[wanted]).await.unwrap();
    assert_eq!(found.has(wanted), there, "{wanted:?}: {reply:?}");
}

#[tokio::test]
async fn each_probe_is_read_as_measured() {
    use Capability::{AckDel, AckedTrim, AutoClaim, DeletedIds, Idempotent, Nack, ReadClaim, Scripts};
    let no_group = || error("NOGROUP No such key 's' or consumer group 'streamkeeper-probe'");
    let bad_id = || error("ERR Invalid stream ID specified as stream command argument");
    let bad_count = || error("ERR wrong number of arguments for 'xadd' command");
    let wrong_type = || error("WRONGTYPE Operation against a key holding the wrong kind of value");
    let unknown = || error("ERR unknown command 'X', with args beginning with: 's' ");
    let syntax = || error("ERR syntax error");
    let denied = || error("NOPERM User u has no permissions to run the 'x' command");
    for (wanted, yes, no) in [
        (AutoClaim, vec![no_group(), wrong_type()], vec![unknown(), denied()]),
        (DeletedIds, vec![bad_count()], vec![bad_id()]),
        (Scripts, vec![Ok(Value::Int(1))], vec![denied(), unknown()]),
        (AckDel, vec![Ok(Value::Array(vec![Value::Int(-1)])), wrong_type()], vec![unknown(), denied()]),
        (AckedTrim, vec![Ok(Value::Int(0)), wrong_type()], vec![syntax(), denied()]),
        (ReadClaim, vec![no_group(), wrong_type()], vec![syntax(), denied()]),
        (Idempotent, vec![bad_count()], vec![bad_id(), denied()]),
        (Nack, vec![no_group()], vec![unknown(), denied()]),
    ] {
        for reply in yes {
            check(wanted, reply, true).await;
        }
        for reply in no {
            check(wanted, reply, false).await;
        }
    }
}

#[tokio::test]
async fn a_server_in_no_state_to_be_asked_is_an_error_and_not_an_answer() {
    for (line, kind) in [
        ("LOADING Redis is loading the dataset in memory", ErrorKind::Busy),
        ("READONLY You can't write against a read only replica.", ErrorKind::Moved),
        ("MOVED 866 127.0.0.1:7001", ErrorKind::Moved),
    ] {
        let script = Script::new([vec![error(line)]]);
        let found = Capabilities::probe_for(&script, &key(), &[Capability::Idempotent]).await.unwrap_err();
        assert_eq!((found.kind(), found.command()), (kind, Some("XADD")), "{line}");
    }
}

#[tokio::test]
async fn what_a_probe_cannot_see_is_looked_up() {
    let wanted = [Capability::Idempotent, Capability::AckedTrim, Capability::DeletedIds];
    let hidden = || {
        let full = error("OOM command not allowed when used memory > 'maxmemory'.");
        vec![full.clone(), full, error("NOPERM User u has no permissions to run the 'xadd' command")]
    };
    let token = |token: &str| Value::Array(vec![Value::bulk("name"), Value::Array(vec![Value::bulk(token)])]);
    let pairs = [("xadd", token("IDMP")), ("xtrim", token("MAXLEN")), ("xautoclaim", token("COUNT"))];
    let map = Value::Map(pairs.iter().map(|(name, docs)| (Value::bulk(name), docs.clone())).collect());
    let flat = Value::Array(pairs.iter().flat_map(|(name, docs)| [Value::bulk(name), docs.clone()]).collect());
    for docs in [map, flat] {
        let script = Script::new([hidden(), vec![Ok(docs)]]);
        let found = Capabilities::probe_for(&script, &key(), &wanted).await.unwrap();
        assert_eq!(found, [Capability::Idempotent, Capability::DeletedIds].into_iter().collect());
        assert_eq!(*script.asked.lock().unwrap(), ["XADD", "XTRIM", "XADD", "COMMAND DOCS"]);
    }
    for silent in [error("NOPERM no"), error("ERR Unknown subcommand or wrong number of arguments for 'DOCS'.")] {
        let script = Script::new([hidden(), vec![silent]]);
        let found = Capabilities::probe_for(&script, &key(), &wanted).await.unwrap();
        assert_eq!(found, Capabilities::default());
    }
}

#[test]
fn debug_lists_what_is_there() {
    let some: Capabilities = [Capability::Scripts, Capability::AutoClaim].into_iter().collect();
    assert_eq!(format!("{some:?}"), "{AutoClaim, Scripts}");
}
