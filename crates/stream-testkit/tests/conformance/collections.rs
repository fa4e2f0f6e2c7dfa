//! Operations on a set of dead letters, the hashes they are in, and the markers of what was published once.
//!
//! Hashes and sets are few and small, so that operations meet each other's fields and members: such a set is scanned in
//! one call. What a call with a small `COUNT` gives depends on the server's hashing; that all calls together give every
//! member is a test of its own.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use stream_redis::{Connection, Request, Value};
use stream_testkit::{MemoryServer, matrix};

use super::Pair;
use super::operation::{some_id, split, words};

/// A set, and what the letters of it may be called.
const MEMBERS: [&str; 4] = ["LETTER", "dlq:2", "17", "a value that is a bit longer"];
const NAMES: [&str; 4] = ["data", "at", "17", ""];

fn keys() -> impl Strategy<Value = String> {
    prop_oneof![9 => select(vec!["DLQ", "LETTER", "MARKER"]), 1 => Just("KEY")].prop_map(str::to_owned)
}

fn members() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(select(MEMBERS.to_vec()).prop_map(str::to_owned), 1..4)
}

/// Commands about hashes and sets, each mostly about a key that holds what it wants.
pub(crate) fn collections() -> impl Strategy<Value = Vec<String>> {
    let set = || prop_oneof![5 => Just("DLQ".to_owned()), 1 => keys()];
    let hash = || prop_oneof![5 => Just("LETTER".to_owned()), 1 => keys()];
    let name = || select(NAMES.to_vec()).prop_map(str::to_owned);
    let pairs = prop::collection::vec((name(), name()), 1..4)
        .prop_map(|pairs| pairs.into_iter().flat_map(<[String; 2]>::from).collect::<Vec<_>>());
    let count = select(vec!["", "COUNT 100", "count 1000"]);
    prop_oneof![
        3 => (hash(), pairs).prop_map(|(key, pairs)| words("HSET", [vec![key], pairs])),
        2 => (hash(), name()).prop_map(|(key, name)| words("HGET", [vec![key, name]])),
        2 => hash().prop_map(|key| words("HGETALL", [vec![key]])),
        3 => (set(), members()).prop_map(|(key, members)| words("SADD", [vec![key], members])),
        2 => (set(), members()).prop_map(|(key, members)| words("SREM", [vec![key], members])),
        1 => set().prop_map(|key| words("SCARD", [vec![key]])),
        2 => (set(), select(MEMBERS.to_vec()))
            .prop_map(|(key, member)| words("SISMEMBER", [vec![key, member.to_owned()]])),
        2 => (set(), count).prop_map(|(key, count)| {
            words("SSCAN", [vec![key, "0".to_owned()], options_of(count)])
        }),
        1 => select(vec!["DEL", "TYPE", "EXISTS", "GET", "XLEN"])
            .prop_flat_map(|command| keys().prop_map(move |key| words(command, [vec![key]]))),
        1 => mistake(),
    ]
}

/// Publishing once and what else may be at the marker's key.
pub(crate) fn publishing() -> impl Strategy<Value = Vec<String>> {
    let asker = select(vec!["me", "you", "me again", ""]);
    let seconds = prop_oneof![9 => Just("60"), 1 => select(vec!["0", "-1", "x", ""])];
    // Ids of streams that are compared must not come from the clock.
    let place = prop_oneof![
        2 => Just(("DEAD", "*".to_owned())),
        4 => (select(vec!["KEY", "KEY", "KEY", "DLQ"]), some_id()),
    ];
    let fields = select(vec!["f v", "f v", "f", "f v n 17"]);
    let options = select(vec!["", "", "", "MAXLEN 2", "MAXLEN -1", "MINID 3-0"]);
    let how = select(vec!["EVALSHA HASH", "EVAL SOURCE"]);
    let call =
        (how, place, seconds, asker, options, fields).prop_map(|(how, (key, id), seconds, asker, options, fields)| {
            let who = vec![seconds.to_owned(), asker.to_owned()];
            words(&format!("{how}:publish_once 2 {key} MARKER"), [who, options_of(options), vec![id], split(fields)])
        });
    let held = select(vec!["1", "", "5-0 me", "5-0  me", " me", "5-0 ", "5-0 me again", "5\t0 me", "text"]);
    prop_oneof![
        8 => call,
        3 => held.prop_map(|held| ["SET", "MARKER", held].map(str::to_owned).to_vec()),
        2 => Just(split("DEL MARKER")),
        1 => Just(split("GET MARKER")),
    ]
}

fn options_of(text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { split(text) }
}

fn mistake() -> impl Strategy<Value = Vec<String>> {
    select(vec![
        "HSET LETTER",
        "HSET LETTER a",
        "HSET LETTER a 1 b",
        "HGET LETTER",
        "HGET LETTER a b",
        "HGETALL",
        "HGETALL LETTER a",
        "SADD DLQ",
        "SREM DLQ",
        "SCARD",
        "SCARD DLQ a",
        "SISMEMBER DLQ",
        "SISMEMBER DLQ a b",
        "SSCAN DLQ",
        "SSCAN DLQ x",
        "SSCAN LETTER x",
        "SSCAN none 0 NOPE",
        "SSCAN DLQ 0 NOPE",
        "SSCAN DLQ 0 COUNT",
        "SSCAN DLQ 0 COUNT 0",
        "SSCAN DLQ 0 COUNT x",
        "SET MARKER 1 EX",
        "SET MARKER 1 EX 0",
        "SET MARKER 1 EX x",
        "SET MARKER 1 EX 5 PX 5",
        "SET MARKER 1 NX NX",
    ])
    .prop_map(split)
}

/// Each member comes from some call, however few a call is asked for, and none that never was in the set.
#[tokio::test]
async fn a_scan_in_pieces_gives_every_member_on_real_servers_and_the_model() {
    for binary in matrix::all() {
        let pair = Pair::start(&binary).await;
        let key = pair.real.fresh_key("set");
        let real = pair.connect_real().await;
        let model = MemoryServer::with_profile(pair.profile);
        let model = pair.connect_model(&model).await;
        for members in [1, 7, 40, 700] {
            for count in ["1", "10", "1000"] {
                let expected: BTreeSet<String> = (0..members).map(|nth| format!("dlq:{nth}")).collect();
                for connection in [&real, &model] {
                    let add = expected.iter().fold(Request::new("SADD").arg(&key), Request::arg);
                    let replies = connection.send(&[Request::new("DEL").arg(&key), add]).await.expect("they answer");
                    assert_eq!(replies[1], Ok(Value::Int(members)), "{}", pair.real.name());
                    assert_eq!(scanned(&**connection, &key, count).await, expected, "{}", pair.real.name());
                }
            }
        }
    }
}

async fn scanned(connection: &dyn Connection, key: &str, count: &str) -> BTreeSet<String> {
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    loop {
        let request = Request::new("SSCAN").arg(key).arg(&cursor).arg("COUNT").arg(count);
        let Ok(Value::Array(reply)) = connection.call(&request).await else { panic!("a set can be scanned") };
        let [next, Value::Array(members)] = reply.as_slice() else { panic!("a cursor and members: {reply:?}") };
        let text = |value: &Value| String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned();
        found.extend(members.iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            return found;
        }
    }
}
