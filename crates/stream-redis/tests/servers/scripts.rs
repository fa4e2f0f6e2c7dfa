//! The fenced steps on real servers: what each script and its fallback by plain commands does to pending lists, and under
//! which code errors arrive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use stream_core::{ConsumerName, Entry, EntryId, GroupName, StreamKey};
use stream_redis::command::{HGetAll, PendingEntry, SCard, SScan, Script, XAutoClaim, XLen, XPending, XRange, run};
use stream_redis::{Connection, ErrorKind, Fenced, Owner, Renewed, Taken, Value};
use stream_testkit::{RealServer, ServerOptions, eventually};

use crate::every_server::{connect, key, ok, on_every_server};

const LEASE: Duration = Duration::from_secs(30);

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

fn owner(consumer: &str) -> Owner {
    Owner { key: key(), group: GroupName::new("g").unwrap(), consumer: ConsumerName::new(consumer).unwrap() }
}

/// Makes the stream anew, adds the entries `1-0` to `last-0` and reads them as `consumer`. Thousands of commands, so the
/// server runs them.
async fn deliver(server: &RealServer, last: u64, consumer: &str) {
    let source = "
        redis.call('DEL', KEYS[1])
        redis.call('XGROUP', 'CREATE', KEYS[1], 'g', '0', 'MKSTREAM')
        for ms = 1, ARGV[1] do redis.call('XADD', KEYS[1], ms .. '-0', 'f', 'v' .. ms) end
        return #redis.call('XREADGROUP', 'GROUP', 'g', ARGV[2], 'COUNT', ARGV[1], 'STREAMS', KEYS[1], '>')[1][2]";
    let delivered = server.cli(&["EVAL", source, "1", "s", &last.to_string(), consumer]).await.unwrap();
    assert_eq!(delivered, Value::Int(last as i64));
}

async fn pending(wire: &dyn Connection) -> Vec<PendingEntry> {
    let owner = owner("a");
    let all = XPending {
        key: owner.key,
        group: owner.group,
        min_idle: None,
        from: EntryId::ZERO,
        after: false,
        to: EntryId::MAX,
        count: 100_000,
        consumer: None,
    };
    run(wire, &all).await.unwrap()
}

/// Holder and delivery count of an entry, `None` where it is not pending.
async fn held(wire: &dyn Connection, ms: u64) -> Option<(String, u64)> {
    let row = pending(wire).await.into_iter().find(|row| row.id == id(ms))?;
    Some((row.consumer.unwrap().to_string(), row.deliveries))
}

fn by(consumer: &str, deliveries: u64) -> (String, u64) {
    (consumer.to_owned(), deliveries)
}

/// Makes entries idle for this long, counts unchanged.
async fn age(server: &RealServer, consumer: &str, ms: &[u64], idle: u64) {
    for ms in ms {
        ok(server, &format!("XCLAIM s g {consumer} 0 {ms}-0 IDLE {idle} JUSTID")).await;
    }
}

/// The connection of a user who may not run scripts, and a fenced that has noticed.
async fn plain(server: &RealServer) -> (Arc<dyn Connection>, Fenced) {
    ok(server, "ACL SETUSER plain on nopass ~* +@all -eval -evalsha").await;
    let (wire, fenced) = (connect(&url_of(server, "plain")).await, Fenced::new());
    assert!(!fenced.remove_consumer(&*wire, &owner("nobody")).await.unwrap());
    (wire, fenced)
}

fn url_of(server: &RealServer, user: &str) -> String {
    format!("redis://{user}:x@{}/", server.address())
}

/// With scripts, over both protocols.
async fn with_scripts(test: impl AsyncFn(&RealServer, &dyn Connection, &Fenced)) {
    on_every_server(ServerOptions::new(), async |server| scripted(&server, &test).await).await;
}

/// Both ways to work: with scripts, and with plain commands.
async fn both_ways(test: impl AsyncFn(&RealServer, &dyn Connection, &Fenced)) {
    on_every_server(ServerOptions::new(), async |server| {
        scripted(&server, &test).await;
        let (wire, fenced) = plain(&server).await;
        test(&server, &*wire, &fenced).await;
    })
    .await;
}

async fn scripted(server: &RealServer, test: impl AsyncFn(&RealServer, &dyn Connection, &Fenced)) {
    for protocol in ["resp2", "resp3"] {
        let wire = connect(&format!("{}?protocol={protocol}", server.url())).await;
        test(server, &*wire, &Fenced::new()).await;
    }
}

/// Without scripts, what is gone counts as lost.
fn not_ours(renewed: Renewed) -> Vec<EntryId> {
    let mut ids = [renewed.lost, renewed.gone].concat();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn renewing_touches_what_is_owned_and_names_the_rest() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 6, "a").await;
        age(server, "b", &[2], 5_000).await;
        age(server, "a", &[1, 3, 5, 6], 5_000).await;
        ok(server, "XACK s g 4").await;
        let renewed = fenced.renew(wire, &owner("a"), &[id(1), id(2), id(3), id(4), id(9)], LEASE).await.unwrap();
        assert_eq!(renewed.deleted, []);
        assert_eq!(not_ours(renewed), [id(2), id(4), id(9)]);
        for row in pending(wire).await {
            let renewed = row.idle.unwrap() < Duration::from_secs(5);
            assert_eq!(renewed, [id(1), id(3)].contains(&row.id), "{row:?}");
            assert_eq!(row.deliveries, 1);
        }
        assert_eq!(held(wire, 2).await, Some(by("b", 1)));
    })
    .await;
}

#[tokio::test]
async fn other_pending_entries_of_the_same_consumer_hide_nothing() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 1500, "a").await;
        let wanted = [id(1), id(2), id(700), id(1499), id(1500)];
        assert_eq!(fenced.renew(wire, &owner("a"), &wanted, LEASE).await.unwrap().lost, []);
        assert_eq!(fenced.acknowledge(wire, &owner("a"), &wanted, LEASE).await.unwrap(), []);
        assert_eq!(fenced.renew(wire, &owner("a"), &wanted, LEASE).await.unwrap().lost, wanted);
        assert_eq!(pending(wire).await.len(), 1495);
    })
    .await;
}

/// Since 7.0 the server drops an entry that is claimed and deleted from the pending list, and says nothing of it.
#[tokio::test]
async fn what_is_deleted_while_it_is_owned_is_named_as_that() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 6, "a").await;
        age(server, "b", &[2], 0).await;
        ok(server, "XDEL s 2-0 3-0 4-0 5-0").await;
        ok(server, "XACK s g 4-0").await;
        let renewed = fenced.renew(wire, &owner("a"), &[id(1), id(2), id(3), id(4)], LEASE).await.unwrap();
        let back = fenced.hand_back(wire, &owner("a"), &[(id(5), 0), (id(6), 0)]).await.unwrap();
        let (lost, gone) = if fenced.is_plain() { (vec![id(2), id(4)], vec![]) } else { (vec![id(2)], vec![id(4)]) };
        assert_eq!((renewed.lost, renewed.gone), (lost, gone));
        if server.name() == "redis-6.2" {
            assert_eq!((renewed.deleted, back.number, back.deleted), (vec![], 2, vec![]));
            assert_eq!(held(wire, 3).await, Some(by("a", 1)));
        } else {
            assert_eq!((renewed.deleted, back.number, back.deleted), (vec![id(3)], 1, vec![id(5)]));
            assert_eq!(held(wire, 3).await, None);
        }
    })
    .await;
}

#[tokio::test]
async fn thousands_of_ids_are_more_than_lua_passes_on_at_once() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 9000, "a").await;
        let ids: Vec<_> = (1..=9001).map(id).collect();
        assert_eq!(not_ours(fenced.renew(wire, &owner("a"), &ids, LEASE).await.unwrap()), [id(9001)]);
        assert_eq!(fenced.acknowledge(wire, &owner("a"), &ids, LEASE).await.unwrap(), [id(9001)]);
        assert_eq!(pending(wire).await, []);
    })
    .await;
}

#[tokio::test]
async fn what_is_handed_back_is_claimed_at_once_with_its_count() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 3, "a").await;
        age(server, "b", &[2], 0).await;
        assert_eq!(fenced.hand_back(wire, &owner("a"), &[(id(1), 0), (id(2), 9), (id(3), 4)]).await.unwrap().number, 2);
        assert_eq!(held(wire, 1).await, Some(by("a", 0)));
        assert_eq!(held(wire, 2).await, Some(by("b", 1)));
        let owner = owner("c");
        let claim = XAutoClaim {
            key: owner.key,
            group: owner.group,
            consumer: owner.consumer,
            min_idle: Duration::from_mins(30),
            start: EntryId::ZERO,
            count: 10,
            just_id: true,
        };
        assert_eq!(run(wire, &claim).await.unwrap().ids, [id(1), id(3)]);
        assert_eq!((held(wire, 1).await, held(wire, 3).await), (Some(by("c", 0)), Some(by("c", 4))));
    })
    .await;
}

#[tokio::test]
async fn taking_counts_exactly_and_tells_lost_and_deleted_apart() {
    both_ways(async |server, wire, fenced| {
        for bodies in [true, false] {
            deliver(server, 5, "a").await;
            age(server, "b", &[2], 0).await;
            ok(server, "XACK s g 3").await;
            ok(server, "XDEL s 4").await;
            let entries = [(id(5), 7), (id(1), 2), (id(2), 2), (id(3), 2), (id(4), 2)];
            let taken = fenced.take(wire, &owner("a"), &entries, bodies, LEASE).await.unwrap();
            let owned = |ms| {
                let entry = Entry::new(id(ms), [("f", format!("v{ms}"))]).unwrap();
                if bodies { Taken::Entry(entry) } else { Taken::Counted }
            };
            assert_eq!(taken, [owned(5), owned(1), Taken::Lost, Taken::Lost, Taken::Deleted]);
            assert_eq!((held(wire, 1).await, held(wire, 5).await), (Some(by("a", 2)), Some(by("a", 7))));
            assert_eq!((held(wire, 2).await, held(wire, 3).await, held(wire, 4).await), (Some(by("b", 1)), None, None));
        }
    })
    .await;
}

#[tokio::test]
async fn acknowledging_leaves_alone_what_another_owns() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 4, "a").await;
        age(server, "b", &[2], 0).await;
        let lost = fenced.acknowledge(wire, &owner("a"), &[id(3), id(2), id(1), id(8)], LEASE).await.unwrap();
        assert_eq!(lost, [id(2), id(8)]);
        let left: Vec<_> = pending(wire).await.into_iter().map(|row| row.id).collect();
        assert_eq!(left, [id(2), id(4)]);
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_is_written_before_the_entry_is_acknowledged() {
    both_ways(async |server, wire, fenced| {
        ok(server, "DEL dead").await;
        deliver(server, 3, "a").await;
        age(server, "b", &[2], 0).await;
        let target = StreamKey::new("dead").unwrap();
        let pair = |name: &'static str, value: &'static [u8]| (Bytes::from(name), Bytes::from(value));
        let fields = [pair("z", b"1"), pair("a", b"\xff\r\n"), pair("z", b""), pair("", b"2")];
        let letter = fenced.dead_letter(wire, &owner("a"), id(1), &target, None, &fields).await.unwrap().unwrap();
        let range = XRange { key: target.clone(), from: EntryId::ZERO, to: EntryId::MAX, count: 10 };
        assert_eq!(run(wire, &range).await.unwrap(), [Entry::new(letter, fields.clone()).unwrap()]);
        assert_eq!(held(wire, 1).await, None);

        assert_eq!(fenced.dead_letter(wire, &owner("a"), id(2), &target, None, &fields).await.unwrap(), None);
        assert_eq!(run(wire, &XLen { key: target.clone() }).await.unwrap(), 1);
        assert_eq!(held(wire, 2).await, Some(by("b", 1)));

        ok(server, "SET word x").await;
        let word = StreamKey::new("word").unwrap();
        let error = fenced.dead_letter(wire, &owner("a"), id(3), &word, None, &fields).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert_eq!(held(wire, 3).await, Some(by("a", 1)));
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_in_a_hash_is_named_in_the_set_and_written_before_the_acknowledgement() {
    both_ways(async |server, wire, fenced| {
        ok(server, "DEL dlq").await;
        deliver(server, 3, "a").await;
        age(server, "b", &[2], 0).await;
        let letter = |ms| stream_core::DeadLetter {
            entry: Entry::new(id(ms), [("data", &b"\xff"[..]), ("data", b"twice")]).unwrap(),
            stream: owner("a").key,
            group: owner("a").group,
            consumer: owner("a").consumer,
            attempts: 4,
            reason: stream_core::DeadReason::OwnerDied,
            dead_at_ms: 7,
            redriven: 0,
        };
        let (set, first) = (StreamKey::new("dlq").unwrap(), letter(1));
        assert!(fenced.dead_letter_hash(wire, &owner("a"), &set, &first).await.unwrap());
        assert_eq!(held(wire, 1).await, None);
        let scan = SScan { key: set.clone(), cursor: Bytes::from("0"), count: 10 };
        let (_, names) = run(wire, &scan).await.unwrap();
        assert_eq!((names.len(), names[0].len()), (1, "dlq:".len() + 32));
        let fields = run(wire, &HGetAll { key: StreamKey::new(&names[0]).unwrap() }).await.unwrap();
        let fields = fields.iter().map(|(name, value)| (&name[..], &value[..]));
        assert_eq!(stream_core::LetterContent::from_hash(fields), Ok(first.clone().into()));

        assert!(!fenced.dead_letter_hash(wire, &owner("a"), &set, &letter(2)).await.unwrap());
        assert_eq!(run(wire, &SCard { key: set.clone() }).await.unwrap(), 1);
        assert_eq!(held(wire, 2).await, Some(by("b", 1)));

        ok(server, "SET word x").await;
        let word = StreamKey::new("word").unwrap();
        let error = fenced.dead_letter_hash(wire, &owner("a"), &word, &letter(3)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert_eq!(held(wire, 3).await, Some(by("a", 1)));
    })
    .await;
}

#[tokio::test]
async fn dead_letters_are_bounded_on_request_and_may_have_many_fields() {
    both_ways(async |server, wire, fenced| {
        ok(server, "DEL dead many").await;
        deliver(server, 502, "a").await;
        let (target, many) = (StreamKey::new("dead").unwrap(), StreamKey::new("many").unwrap());
        let field = [(Bytes::from("f"), Bytes::from("v"))];
        for ms in 1..=500 {
            fenced.dead_letter(wire, &owner("a"), id(ms), &target, Some(100), &field).await.unwrap().unwrap();
        }
        // `~` removes whole nodes of 100 entries.
        let length = run(wire, &XLen { key: target }).await.unwrap();
        assert!((100..=200).contains(&length), "{length}");
        for (ms, count) in [(501, 3500), (502, 9000)] {
            let fields = vec![field[0].clone(); count];
            fenced.dead_letter(wire, &owner("a"), id(ms), &many, None, &fields).await.unwrap().unwrap();
        }
        assert_eq!(pending(wire).await, []);
    })
    .await;
}

#[tokio::test]
async fn a_full_server_refuses_dead_letters_and_loses_nothing() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 2, "a").await;
        // The first call brings the script, so that both ways of sending one are tried on a full server.
        let target = StreamKey::new("dead").unwrap();
        let field = [(Bytes::from("f"), Bytes::from("v"))];
        fenced.dead_letter(wire, &owner("a"), id(1), &target, None, &field).await.unwrap().unwrap();
        for flush in [false, true] {
            if flush {
                ok(server, "SCRIPT FLUSH").await;
            }
            ok(server, "CONFIG SET maxmemory 1").await;
            let error = fenced.dead_letter(wire, &owner("a"), id(2), &target, None, &field).await.unwrap_err();
            assert_eq!((error.code(), error.kind()), (Some("OOM"), ErrorKind::Busy), "{error}");
            // What frees memory goes on.
            assert_eq!(fenced.renew(wire, &owner("a"), &[id(2)], LEASE).await.unwrap().lost, []);
            ok(server, "CONFIG SET maxmemory 0").await;
            assert_eq!(held(wire, 2).await, Some(by("a", 1)));
        }
        ok(server, "CONFIG SET maxmemory 1").await;
        assert_eq!(fenced.acknowledge(wire, &owner("a"), &[id(2)], LEASE).await.unwrap(), []);
        ok(server, "CONFIG SET maxmemory 0").await;
    })
    .await;
}

#[tokio::test]
async fn a_consumer_is_removed_only_when_it_holds_nothing() {
    with_scripts(async |server, wire, fenced| {
        deliver(server, 1, "a").await;
        ok(server, "XGROUP CREATECONSUMER s g b").await;
        assert!(!fenced.remove_consumer(wire, &owner("a")).await.unwrap());
        assert!(!fenced.remove_idle_consumer(wire, &owner("a"), Duration::ZERO).await.unwrap());
        assert!(!fenced.remove_idle_consumer(wire, &owner("b"), Duration::from_hours(1)).await.unwrap());
        assert!(fenced.remove_consumer(wire, &owner("b")).await.unwrap());
        assert!(!fenced.remove_consumer(wire, &owner("b")).await.unwrap());
        assert_eq!(held(wire, 1).await, Some(by("a", 1)));
        ok(server, "XACK s g 1").await;
        assert!(fenced.remove_idle_consumer(wire, &owner("a"), Duration::ZERO).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_group_is_destroyed_only_when_it_is_as_it_was_seen_and_nobody_uses_it() {
    with_scripts(async |server, wire, fenced| {
        let owner = owner("a");
        let destroy = |last| fenced.destroy_group(wire, &owner.key, &owner.group, id(last));
        deliver(server, 2, "a").await;
        assert!(!destroy(2).await.unwrap());
        ok(server, "XACK s g 1 2").await;
        assert!(!destroy(2).await.unwrap());
        ok(server, "XGROUP DELCONSUMER s g a").await;
        assert!(!destroy(1).await.unwrap());
        assert!(destroy(2).await.unwrap());
        assert!(!destroy(2).await.unwrap());
        ok(server, "DEL s").await;
        assert_eq!(destroy(2).await.unwrap_err().kind(), ErrorKind::Missing);
    })
    .await;
}

/// Runs every step and returns its error.
async fn errors(wire: &dyn Connection, fenced: &Fenced) -> Vec<stream_redis::Error> {
    let owner = owner("a");
    let (one, field) = ([id(1)], [(Bytes::from("f"), Bytes::from("v"))]);
    let target = StreamKey::new("dead").unwrap();
    vec![
        fenced.renew(wire, &owner, &one, LEASE).await.unwrap_err(),
        fenced.hand_back(wire, &owner, &[(id(1), 1)]).await.unwrap_err(),
        fenced.take(wire, &owner, &[(id(1), 1)], true, LEASE).await.unwrap_err(),
        fenced.take(wire, &owner, &[(id(1), 1)], false, LEASE).await.unwrap_err(),
        fenced.acknowledge(wire, &owner, &one, LEASE).await.unwrap_err(),
        fenced.dead_letter(wire, &owner, id(1), &target, None, &field).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn a_missing_stream_or_group_and_a_wrong_type_keep_their_codes() {
    both_ways(async |server, wire, fenced| {
        ok(server, "DEL s dead").await;
        for error in errors(wire, fenced).await {
            assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
        }
        ok(server, "XADD s 1-0 f v").await;
        for error in errors(wire, fenced).await {
            assert_eq!(error.kind(), ErrorKind::Missing, "{error}");
        }
        ok(server, "SET s x").await;
        for error in errors(wire, fenced).await {
            assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        }
        assert_eq!(ok(server, "EXISTS dead").await, Value::Int(0));
    })
    .await;
}

#[tokio::test]
async fn removing_a_consumer_of_nothing_is_a_missing_group() {
    with_scripts(async |server, wire, fenced| {
        ok(server, "DEL s").await;
        assert_eq!(fenced.remove_consumer(wire, &owner("a")).await.unwrap_err().kind(), ErrorKind::Missing);
        ok(server, "XADD s 1-0 f v").await;
        assert_eq!(fenced.remove_consumer(wire, &owner("a")).await.unwrap_err().kind(), ErrorKind::Missing);
    })
    .await;
}

#[tokio::test]
async fn a_replica_refuses_every_step_under_its_own_code() {
    both_ways(async |server, wire, fenced| {
        deliver(server, 1, "a").await;
        ok(server, "REPLICAOF 127.0.0.1 1").await;
        for error in errors(wire, fenced).await {
            assert_eq!((error.code(), error.kind()), (Some("READONLY"), ErrorKind::Moved), "{error}");
        }
        ok(server, "REPLICAOF NO ONE").await;
    })
    .await;
}

#[tokio::test]
async fn a_missing_permission_inside_a_script_is_told() {
    on_every_server(ServerOptions::new(), async |server| {
        deliver(&server, 1, "a").await;
        ok(&server, "ACL SETUSER half on nopass ~* +@all -xclaim -xack").await;
        let wire = connect(&url_of(&server, "half")).await;
        let error = Fenced::new().renew(&*wire, &owner("a"), &[id(1)], LEASE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoPermission, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_dead_letter_in_another_slot_is_written_in_two_steps() {
    on_every_server(ServerOptions::new().args(["--cluster-enabled", "yes"]), async |server| {
        let slots: Vec<String> = (0..16384).map(|slot| slot.to_string()).collect();
        ok(&server, &format!("CLUSTER ADDSLOTS {}", slots.join(" "))).await;
        // The node says that the cluster is up at its next heartbeat.
        eventually(Duration::from_secs(30), "the cluster to be up", || server.cli(&["EXISTS", "s"]).map(Result::ok))
            .await;
        deliver(&server, 2, "a").await;
        let (wire, fenced) = (connect(&server.url()).await, Fenced::new());
        let field = [(Bytes::from("f"), Bytes::from("v"))];
        for (ms, target) in [(1, "dead"), (2, "{s}:dead")] {
            let target = StreamKey::new(target).unwrap();
            fenced.dead_letter(&*wire, &owner("a"), id(ms), &target, None, &field).await.unwrap().unwrap();
            assert_eq!(run(&*wire, &XLen { key: target }).await.unwrap(), 1);
            assert_eq!(held(&*wire, ms).await, None);
        }
    })
    .await;
}

#[tokio::test]
async fn the_servers_digest_of_each_script_is_ours() {
    on_every_server(ServerOptions::new(), async |server| {
        for script in Script::all() {
            let sha = server.cli(&["SCRIPT", "LOAD", script.source()]).await.unwrap();
            assert_eq!(sha.as_bytes(), Some(script.sha().as_bytes()), "{}", script.name());
        }
    })
    .await;
}
