//! What [`Fenced`] sends and how it reads replies, against a connection that follows a script; the behaviour of real
//! servers is in `tests/scripts.rs`.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::ServerError;
use crate::command::tests::{consumer, group, id, key, list, text};

/// Answers requests in order and remembers them.
#[derive(Default)]
struct Scripted {
    replies: Mutex<VecDeque<Result<Value, ServerError>>>,
    seen: Mutex<Vec<String>>,
}

impl Scripted {
    fn new(replies: impl IntoIterator<Item = Result<Value, &'static str>>) -> Self {
        let replies = replies.into_iter().map(|reply| reply.map_err(ServerError::parse)).collect();
        Self { replies: Mutex::new(replies), seen: Mutex::default() }
    }

    /// What was sent, a line for each command; sources and digests of scripts are shown as their names.
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

#[async_trait]
impl Connection for Scripted {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let word = |arg: &[u8]| match Script::by_sha(arg).or_else(|| Script::by_source(arg)) {
            Some(script) => script.name().to_owned(),
            None => String::from_utf8_lossy(arg).into_owned(),
        };
        let mut replies = self.replies.lock().unwrap();
        for request in requests {
            self.seen.lock().unwrap().push(request.args().map(word).collect::<Vec<_>>().join(" "));
        }
        Ok(requests.iter().map(|_| replies.pop_front().expect("a reply for each request")).collect())
    }
}

fn owner() -> Owner {
    Owner { key: key("s"), group: group("g"), consumer: consumer("c") }
}

const LEASE: Duration = Duration::from_secs(30);
const NO_EVAL: &str = "NOPERM User u has no permissions to run the 'evalsha' command";

fn row(row_id: &str, idle: i64) -> Value {
    list([text(row_id), text("c"), Value::Int(idle), Value::Int(1)])
}

#[tokio::test]
async fn scripts_are_sent_by_digest_and_by_source_once_the_server_asks() {
    let server = Scripted::new([
        Err("NOSCRIPT No matching script."),
        Ok(list([list([text("2-0")]), list([]), list([])])),
        Ok(list([])),
    ]);
    let fenced = Fenced::new();
    let ids = [id(1, 0), id(2, 0)];
    assert_eq!(fenced.renew(&server, &owner(), &ids, LEASE).await.unwrap().lost, [id(2, 0)]);
    assert_eq!(fenced.acknowledge(&server, &owner(), &ids, LEASE).await.unwrap(), []);
    assert_eq!(
        server.seen(),
        ["EVALSHA renew 1 s g c 1-0 2-0", "EVAL renew 1 s g c 1-0 2-0", "EVALSHA acknowledge 1 s g c 1-0 2-0"]
    );
}

#[tokio::test]
async fn arguments_and_replies_of_each_script() {
    let entry = list([text("4-0"), list([text("f"), text("v")])]);
    let server = Scripted::new([
        Ok(list([Value::Int(1), text("2-0")])),
        Ok(list([Value::Int(0), Value::Int(1), Value::Int(-1), entry])),
        Ok(text("9-0")),
        Ok(Value::Nil),
        Ok(Value::Int(1)),
        Ok(Value::Int(0)),
    ]);
    let fenced = Fenced::new();
    let owner = owner();
    let back = fenced.hand_back(&server, &owner, &[(id(1, 0), 0), (id(2, 0), 3)]).await.unwrap();
    assert_eq!((back.number, back.deleted), (1, vec![id(2, 0)]));
    let entries = [(id(1, 0), 1), (id(2, 0), 2), (id(3, 0), 3), (id(4, 0), 4)];
    let taken = fenced.take(&server, &owner, &entries, true, LEASE).await.unwrap();
    let entry = Entry::new(id(4, 0), [("f", "v")]).unwrap();
    assert_eq!(taken, [Taken::Lost, Taken::Counted, Taken::Deleted, Taken::Entry(entry)]);
    let (target, fields) = (key("dead"), [(Bytes::from("n"), Bytes::from("v"))]);
    let letter = fenced.dead_letter(&server, &owner, id(1, 0), &target, Some(0), &fields).await.unwrap();
    assert_eq!(letter, Some(id(9, 0)));
    assert_eq!(fenced.dead_letter(&server, &owner, id(1, 0), &target, None, &fields).await.unwrap(), None);
    assert!(fenced.remove_consumer(&server, &owner).await.unwrap());
    assert!(!fenced.remove_consumer(&server, &owner).await.unwrap());
    assert_eq!(
        server.seen(),
        [
            "EVALSHA hand_back 1 s g c 90000000 1-0 0 2-0 3",
            "EVALSHA take 1 s g c 1 1-0 1 2-0 2 3-0 3 4-0 4",
            "EVALSHA dead_letter 2 s dead g c 1-0 1 n v",
            "EVALSHA dead_letter 2 s dead g c 1-0 0 n v",
            "EVALSHA remove_consumer 1 s g c",
            "EVALSHA remove_consumer 1 s g c",
        ]
    );
}

#[tokio::test]
async fn without_scripts_only_what_is_far_from_the_end_of_its_lease_is_kept() {
    // The lease is 30 s: 19.999 s are safe, 20 s are not.
    let rows = list([row("1-0", 19_999), row("2-0", 20_000), row("3-0", 0), row("5-0", 0)]);
    let server = Scripted::new([Err(NO_EVAL), Ok(rows), Ok(list([text("1-0")]))]);
    let fenced = Fenced::new();
    let ids = [id(1, 0), id(2, 0), id(4, 0), id(5, 0)];
    let renewed = fenced.renew(&server, &owner(), &ids, LEASE).await.unwrap();
    assert_eq!((renewed.lost, renewed.deleted), (vec![id(2, 0), id(4, 0)], vec![id(5, 0)]));
    assert_eq!(
        server.seen(),
        ["EVALSHA renew 1 s g c 1-0 2-0 4-0 5-0", "XPENDING s g 1-0 5-0 100 c", "XCLAIM s g c 0 1-0 5-0 JUSTID"]
    );
}

#[tokio::test]
async fn scripts_are_not_tried_again_once_they_were_refused() {
    for refusal in [NO_EVAL, "ERR unknown command `EVALSHA`, with args beginning with: "] {
        let server = Scripted::new([Err(refusal), Ok(list([])), Ok(list([row("1-0", 5)])), Ok(Value::Int(1))]);
        let fenced = Fenced::new();
        assert_eq!(fenced.acknowledge(&server, &owner(), &[id(1, 0)], LEASE).await.unwrap(), [id(1, 0)]);
        assert_eq!(fenced.acknowledge(&server, &owner(), &[id(1, 0)], LEASE).await.unwrap(), []);
        assert!(!fenced.remove_consumer(&server, &owner()).await.unwrap());
        assert_eq!(server.seen()[1..], ["XPENDING s g 1-0 1-0 100 c", "XPENDING s g 1-0 1-0 100 c", "XACK s g 1-0"]);
    }
}

#[tokio::test]
async fn a_refusal_inside_a_script_does_not_switch_scripts_off() {
    for inside in ["NOPERM No permissions to access a key", "OOM command not allowed", "ERR syntax error"] {
        let server = Scripted::new([Err(inside), Ok(list([list([]), list([]), list([])]))]);
        let fenced = Fenced::new();
        let error = fenced.renew(&server, &owner(), &[id(1, 0)], LEASE).await.unwrap_err();
        assert_eq!((error.command(), error.key()), (Some("EVALSHA renew"), Some(&key("s"))));
        fenced.renew(&server, &owner(), &[id(1, 0)], LEASE).await.unwrap();
        assert_eq!(server.seen().len(), 2);
    }
}

#[tokio::test]
async fn without_scripts_the_own_range_is_read_in_pages() {
    let rows = |range: std::ops::RangeInclusive<u32>| list(range.map(|n| row(&format!("{n}-0"), 0)));
    let server = Scripted::new([Err(NO_EVAL), Ok(rows(1..=100)), Ok(rows(101..=150)), Ok(Value::Int(2))]);
    let ids = [id(150, 0), id(1, 0)];
    assert_eq!(Fenced::new().acknowledge(&server, &owner(), &ids, LEASE).await.unwrap(), []);
    assert_eq!(
        server.seen()[1..],
        ["XPENDING s g 1-0 150-0 100 c", "XPENDING s g (100-0 150-0 100 c", "XACK s g 150-0 1-0"]
    );
}

#[tokio::test]
async fn without_scripts_taking_tells_lost_deleted_and_owned_apart() {
    let entry = |entry_id: &str| list([list([text(entry_id), list([text("f"), text("v")])])]);
    let owned = || Ok(list([row("1-0", 0), row("2-0", 0)]));
    let entries = [(id(1, 0), 5), (id(2, 0), 6), (id(3, 0), 7)];
    let replies = [Err(NO_EVAL), owned(), Ok(entry("1-0")), Ok(list([Value::Nil])), Ok(Value::Int(1))];
    let server = Scripted::new(replies);
    let taken = Fenced::new().take(&server, &owner(), &entries, true, LEASE).await.unwrap();
    let expected = Entry::new(id(1, 0), [("f", "v")]).unwrap();
    assert_eq!(taken, [Taken::Entry(expected), Taken::Deleted, Taken::Lost]);
    assert_eq!(
        server.seen()[2..],
        ["XCLAIM s g c 0 1-0 RETRYCOUNT 5", "XCLAIM s g c 0 2-0 RETRYCOUNT 6", "XACK s g 2-0"]
    );

    let replies = [Err(NO_EVAL), owned(), Ok(entry("1-0")), Ok(list([])), Ok(list([text("1-0")])), Ok(Value::Int(1))];
    let server = Scripted::new(replies);
    let taken = Fenced::new().take(&server, &owner(), &entries, false, LEASE).await.unwrap();
    assert_eq!(taken, [Taken::Counted, Taken::Deleted, Taken::Lost]);
    assert_eq!(
        server.seen()[2..],
        [
            "XRANGE s 1-0 1-0 COUNT 1",
            "XRANGE s 2-0 2-0 COUNT 1",
            "XCLAIM s g c 0 1-0 RETRYCOUNT 5 JUSTID",
            "XACK s g 2-0"
        ]
    );
}

#[tokio::test]
async fn dead_letters_in_another_slot_are_written_in_two_steps() {
    let cross = "CROSSSLOT Keys in request don't hash to the same slot";
    let server = Scripted::new([
        Err(cross),
        Ok(list([row("1-0", 25_000)])),
        Ok(text("9-0")),
        Ok(Value::Int(1)),
        Err(cross),
        Ok(list([])),
    ]);
    let (target, fields) = (key("dead"), [(Bytes::from("n"), Bytes::from("v"))]);
    let fenced = Fenced::new();
    let mut letters = Vec::new();
    for _ in 0..2 {
        letters.push(fenced.dead_letter(&server, &owner(), id(1, 0), &target, Some(7), &fields).await.unwrap());
    }
    assert_eq!(letters, [Some(id(9, 0)), None]);
    assert_eq!(
        server.seen(),
        [
            "EVALSHA dead_letter 2 s dead g c 1-0 7 n v",
            "XPENDING s g 1-0 1-0 100 c",
            "XADD dead MAXLEN ~ 7 * n v",
            "XACK s g 1-0",
            "EVALSHA dead_letter 2 s dead g c 1-0 7 n v",
            "XPENDING s g 1-0 1-0 100 c",
        ]
    );
}

#[tokio::test]
async fn without_scripts_a_dead_letter_that_cannot_be_written_leaves_the_entry_pending() {
    let server = Scripted::new([Err(NO_EVAL), Ok(list([row("1-0", 0)])), Err("OOM command not allowed")]);
    let error = Fenced::new().dead_letter(&server, &owner(), id(1, 0), &key("dead"), None, &[]).await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Busy, Some(&key("dead"))));
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn without_scripts_only_what_was_just_touched_is_handed_back() {
    let rows = list([row("1-0", 999), row("2-0", 1000)]);
    let server = Scripted::new([Err(NO_EVAL), Ok(rows), Ok(list([text("1-0")]))]);
    assert_eq!(Fenced::new().hand_back(&server, &owner(), &[(id(1, 0), 4), (id(2, 0), 5)]).await.unwrap().number, 1);
    assert_eq!(server.seen()[2..], ["XCLAIM s g c 0 1-0 IDLE 90000000 RETRYCOUNT 4 JUSTID"]);
}

#[tokio::test]
async fn a_key_that_may_not_be_touched_is_not_taken_for_scripts_that_may_not_be_run() {
    let refusal = "NOPERM User u has no permissions to access the 'eval:dead' key";
    let server = Scripted::new([Err(refusal), Err(refusal)]);
    let (fenced, owner) = (Fenced::new(), owner());
    for _ in 0..2 {
        let error = fenced.dead_letter(&server, &owner, id(1, 0), &key("eval:dead"), None, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoPermission);
    }
    assert!(server.seen().iter().all(|sent| sent.starts_with("EVALSHA")));
}

#[test]
fn calls_can_move_between_threads() {
    fn check_send<T: Send>(_: &T) {}
    let (server, fenced, owner) = (Scripted::default(), Fenced::new(), owner());
    check_send(&fenced.renew(&server, &owner, &[], LEASE));
    check_send(&fenced.take(&server, &owner, &[], true, LEASE));
    check_send(&fenced.dead_letter(&server, &owner, id(1, 0), &owner.key, None, &[]));
}

#[tokio::test]
async fn many_entries_are_handed_back_in_several_scripts() {
    let server = Scripted::new([Ok(list([Value::Int(50)])), Ok(list([Value::Int(9)]))]);
    let entries: Vec<_> = (1..=60).map(|ms| (id(ms, 0), 0)).collect();
    assert_eq!(Fenced::new().hand_back(&server, &owner(), &entries).await.unwrap().number, 59);
    assert!(server.seen()[1].starts_with("EVALSHA hand_back 1 s g c 90000000 51-0 0 52-0 0"));
}

#[tokio::test]
async fn nothing_to_do_sends_nothing() {
    let server = Scripted::default();
    let (fenced, owner) = (Fenced::new(), owner());
    assert_eq!(fenced.renew(&server, &owner, &[], LEASE).await.unwrap(), Renewed::default());
    assert_eq!(fenced.hand_back(&server, &owner, &[]).await.unwrap(), HandedBack::default());
    assert_eq!(fenced.take(&server, &owner, &[], true, LEASE).await.unwrap(), []);
    assert_eq!(fenced.acknowledge(&server, &owner, &[], LEASE).await.unwrap(), []);
}

#[tokio::test]
async fn a_reply_of_another_shape_names_the_script() {
    let server = Scripted::new([Ok(list([Value::Int(7)])), Ok(list([]))]);
    for _ in 0..2 {
        let error = Fenced::new().take(&server, &owner(), &[(id(1, 0), 1)], false, LEASE).await.unwrap_err();
        assert_eq!((error.kind(), error.command()), (ErrorKind::Protocol, Some("EVALSHA take")));
    }
}

#[tokio::test]
async fn another_entry_than_the_one_that_was_asked_for_is_refused() {
    let entry = |entry_id| list([text(entry_id), list([text("f"), text("v")])]);
    let server = Scripted::new([Ok(list([entry("1-0")])), Ok(list([entry("2-0")]))]);
    let (fenced, owner, wanted) = (Fenced::new(), owner(), [(id(1, 0), 1)]);
    let taken = fenced.take(&server, &owner, &wanted, true, LEASE).await.unwrap();
    assert!(matches!(taken.as_slice(), [Taken::Entry(entry)] if entry.id() == id(1, 0)));
    let error = fenced.take(&server, &owner, &wanted, true, LEASE).await.unwrap_err();
    assert_eq!((error.kind(), error.command()), (ErrorKind::Protocol, Some("EVALSHA take")));
    assert!(error.to_string().contains("2-0 where 1-0 was asked for"), "{error}");
}
