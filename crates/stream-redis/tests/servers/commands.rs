//! Every command on every real server, over both protocols: the decoders accept what the servers send.

use std::time::Duration;

use bytes::Bytes;
use stream_core::{ConsumerName, Entry, EntryId, GroupName};
use stream_redis::command::{
    Exists, KeyType, Ping, Precision, Time, Trim, TrimTo, XAck, XAdd, XAutoClaim, XClaim, XDel, XGroupCreate,
    XGroupCreateConsumer, XGroupDelConsumer, XGroupDestroy, XGroupSetId, XInfoConsumers, XInfoGroups, XInfoStream,
    XLen, XPending, XPendingSummary, XRange, XTrim, run,
};
use stream_redis::{Connection, ErrorKind};
use stream_testkit::{RealServer, ServerOptions, ServerVersion};

use crate::every_server::{connect, key, ok, on_every_server};

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

/// Runs the test over RESP2 and over RESP3.
async fn both_protocols(test: impl AsyncFn(&RealServer, &dyn Connection)) {
    on_every_server(ServerOptions::new(), async |server| {
        for protocol in ["resp2", "resp3"] {
            ok(&server, "FLUSHALL").await;
            let wire = connect(&format!("{}?protocol={protocol}", server.url())).await;
            test(&server, &*wire).await;
        }
    })
    .await;
}

fn create() -> XGroupCreate {
    XGroupCreate { key: key(), group: group(), start: "0".to_owned(), make_stream: true, entries_read: None }
}

/// A stream of `1-0` to `last-0` that a group has delivered to `a`.
async fn deliver(server: &RealServer, wire: &dyn Connection, last: u64) {
    run(wire, &create()).await.unwrap();
    for ms in 1..=last {
        let fields = vec![(Bytes::from("f"), Bytes::from("v")), (Bytes::from("f"), Bytes::new())];
        let add = XAdd { id: Some(id(ms)), ..XAdd::new(key(), fields) };
        assert_eq!(run(wire, &add).await.unwrap(), Some(id(ms)));
    }
    ok(server, "XREADGROUP GROUP g a STREAMS s >").await;
}

fn entry(ms: u64) -> Entry {
    Entry::new(id(ms), [("f", "v"), ("f", "")]).unwrap()
}

fn pending() -> XPending {
    XPending {
        key: key(),
        group: group(),
        min_idle: None,
        from: EntryId::ZERO,
        after: false,
        to: EntryId::MAX,
        count: 10,
        consumer: None,
    }
}

fn auto_claim(just_id: bool) -> XAutoClaim {
    XAutoClaim {
        key: key(),
        group: group(),
        consumer: consumer("b"),
        min_idle: Duration::ZERO,
        start: EntryId::ZERO,
        count: 2,
        just_id,
    }
}

/// Redis 6.2 knows neither the lag nor deleted ids.
fn is_old(server: &RealServer) -> bool {
    server.version() < ServerVersion::new(7, 0, 0)
}

#[tokio::test]
async fn the_server_and_its_keys() {
    both_protocols(async |server, wire| {
        run(wire, &Ping).await.unwrap();
        assert!(run(wire, &Time).await.unwrap() > Duration::from_secs(1_700_000_000));
        assert!(!run(wire, &Exists { key: key() }).await.unwrap());
        assert_eq!(run(wire, &KeyType { key: key() }).await.unwrap(), None);
        deliver(server, wire, 1).await;
        assert!(run(wire, &Exists { key: key() }).await.unwrap());
        assert_eq!(run(wire, &KeyType { key: key() }).await.unwrap().as_deref(), Some("stream"));
    })
    .await;
}

#[tokio::test]
async fn entries_are_added_listed_deleted_and_trimmed() {
    both_protocols(async |server, wire| {
        let fields = vec![(Bytes::from("f"), Bytes::from("v"))];
        let none = XAdd { no_make: true, ..XAdd::new(key(), fields.clone()) };
        assert_eq!(run(wire, &none).await.unwrap(), None);
        deliver(server, wire, 5).await;
        let range = XRange { key: key(), from: id(2), to: id(4), count: 2 };
        assert_eq!(run(wire, &range).await.unwrap(), [entry(2), entry(3)]);
        assert_eq!(run(wire, &XRange { count: 0, ..range.clone() }).await.unwrap(), []);
        assert_eq!(run(wire, &XDel { key: key(), ids: vec![id(2), id(9)] }).await.unwrap(), 1);
        let trim = |to, precision| XTrim { key: key(), trim: Trim { to, precision } };
        assert_eq!(run(wire, &trim(TrimTo::MinId(id(3)), Precision::Exact)).await.unwrap(), 1);
        assert_eq!(run(wire, &trim(TrimTo::MinId(id(5)), Precision::Approximate { limit: Some(5) })).await.unwrap(), 0);
        assert_eq!(run(wire, &trim(TrimTo::MaxLen(2), Precision::Exact)).await.unwrap(), 1);
        assert_eq!(run(wire, &XLen { key: key() }).await.unwrap(), 2);
        let bounded = XAdd { trim: Some(Trim::about(1000)), ..XAdd::new(key(), fields) };
        assert!(run(wire, &bounded).await.unwrap() > Some(id(5)));
    })
    .await;
}

#[tokio::test]
async fn groups_and_consumers_come_and_go() {
    both_protocols(async |server, wire| {
        deliver(server, wire, 3).await;
        assert_eq!(run(wire, &create()).await.unwrap_err().kind(), ErrorKind::GroupExists);
        let set = XGroupSetId { key: key(), group: group(), last_delivered: id(2), entries_read: None };
        run(wire, &set).await.unwrap();
        let counted = run(wire, &XGroupSetId { entries_read: Some(2), ..set }).await;
        assert_eq!(counted.is_ok(), !is_old(server));
        let (key, group, consumer) = (key(), group(), consumer("b"));
        let make = XGroupCreateConsumer { key: key.clone(), group: group.clone(), consumer: consumer.clone() };
        assert!(run(wire, &make).await.unwrap());
        assert!(!run(wire, &make).await.unwrap());
        let remove = XGroupDelConsumer { key: key.clone(), group: group.clone(), consumer };
        assert_eq!(run(wire, &remove).await.unwrap(), 0);
        let destroy = XGroupDestroy { key, group };
        assert!(run(wire, &destroy).await.unwrap());
        assert!(!run(wire, &destroy).await.unwrap());
        assert_eq!(run(wire, &make).await.unwrap_err().kind(), ErrorKind::Missing);
    })
    .await;
}

#[tokio::test]
async fn pending_entries_are_listed_claimed_and_acknowledged() {
    both_protocols(async |server, wire| {
        deliver(server, wire, 4).await;
        let rows = run(wire, &pending()).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [id(1), id(2), id(3), id(4)]);
        assert!(
            rows.iter().all(|row| row.consumer == Some(consumer("a")) && row.deliveries == 1 && row.idle.is_some())
        );
        let page = XPending { from: id(1), after: true, count: 2, consumer: Some(consumer("a")), ..pending() };
        assert_eq!(run(wire, &page).await.unwrap().iter().map(|row| row.id).collect::<Vec<_>>(), [id(2), id(3)]);
        let idle = XPending { min_idle: Some(Duration::from_hours(1)), ..pending() };
        assert_eq!(run(wire, &idle).await.unwrap(), []);

        // Two live ones, then (after 3-0 was deleted) the rest with what each version says of a deleted one.
        let got = run(wire, &auto_claim(false)).await.unwrap();
        assert_eq!((got.next, got.entries, got.ids), (id(3), vec![entry(1), entry(2)], vec![id(1), id(2)]));
        run(wire, &XDel { key: key(), ids: vec![id(3)] }).await.unwrap();
        let rest = XAutoClaim { start: id(3), count: 10, ..auto_claim(false) };
        let got = run(wire, &rest).await.unwrap();
        assert_eq!((got.next, got.ids), (EntryId::ZERO, vec![id(4)]));
        let told = if is_old(server) { (vec![], 1) } else { (vec![id(3)], 0) };
        assert_eq!((got.deleted, got.holes), told);
        let got = run(wire, &XAutoClaim { count: 10, ..auto_claim(true) }).await.unwrap();
        let left = if is_old(server) { vec![id(1), id(2), id(3), id(4)] } else { vec![id(1), id(2), id(4)] };
        assert_eq!((got.entries, got.ids), (vec![], left));

        run(wire, &XDel { key: key(), ids: vec![id(4)] }).await.unwrap();
        let claim =
            XClaim { retry_count: Some(7), ..XClaim::new(key(), group(), consumer("c"), vec![id(1), id(4), id(9)]) };
        let got = run(wire, &claim).await.unwrap();
        assert_eq!((got.entries, got.holes), (vec![entry(1)], usize::from(is_old(server))));
        let summary = run(wire, &XPendingSummary { key: key(), group: group() }).await.unwrap();
        let (total, holders) = if is_old(server) { (4, [2, 2]) } else { (2, [1, 1]) };
        assert_eq!(summary.total, total);
        assert_eq!(summary.consumers, [(consumer("b"), holders[0]), (consumer("c"), holders[1])]);
        let ack = XAck { key: key(), group: group(), ids: vec![id(1), id(2), id(3), id(4), id(9)] };
        assert_eq!(run(wire, &ack).await.unwrap(), total);
        let summary = run(wire, &XPendingSummary { key: key(), group: group() }).await.unwrap();
        assert_eq!((summary.total, summary.first, summary.last, summary.consumers), (0, None, None, vec![]));
        ok(server, "DEL s").await;
        assert_eq!(run(wire, &ack).await.unwrap(), 0);
        assert_eq!(run(wire, &pending()).await.unwrap_err().kind(), ErrorKind::Missing);
    })
    .await;
}

#[tokio::test]
async fn streams_groups_and_consumers_are_described() {
    both_protocols(async |server, wire| {
        let (stream, groups) = (XInfoStream { key: key() }, XInfoGroups { key: key() });
        assert_eq!(run(wire, &stream).await.unwrap_err().kind(), ErrorKind::Missing);
        assert_eq!(run(wire, &groups).await.unwrap_err().kind(), ErrorKind::Missing);
        deliver(server, wire, 3).await;
        run(wire, &XDel { key: key(), ids: vec![id(1)] }).await.unwrap();
        let known = |number| (!is_old(server)).then_some(number);
        let got = run(wire, &stream).await.unwrap();
        assert_eq!((got.length, got.last_generated_id, got.first_entry, got.groups), (2, id(3), Some(id(2)), 1));
        assert_eq!((got.entries_added, got.max_deleted), (known(3), (!is_old(server)).then_some(id(1))));

        let got = run(wire, &groups).await.unwrap().pop().unwrap();
        assert_eq!((got.name, got.consumers, got.pending, got.last_delivered), (group(), 1, 3, id(3)));
        assert_eq!((got.entries_read, got.lag), (known(3), known(0)));

        run(wire, &XGroupCreateConsumer { key: key(), group: group(), consumer: consumer("b") }).await.unwrap();
        let got = run(wire, &XInfoConsumers { key: key(), group: group() }).await.unwrap();
        let names: Vec<_> = got.iter().map(|info| (info.name.to_string(), info.pending)).collect();
        assert_eq!(names, [("a".to_owned(), 3), ("b".to_owned(), 0)]);
        // Since Redis 7.2 the time since the last delivery is told apart; `b` never had one.
        let tells = server.version() >= ServerVersion::new(7, 2, 0);
        assert_eq!((got[0].inactive.is_some(), got[1].inactive), (tells, None));

        run(wire, &XTrim { key: key(), trim: Trim { to: TrimTo::MaxLen(0), precision: Precision::Exact } })
            .await
            .unwrap();
        assert_eq!(run(wire, &stream).await.unwrap().first_entry, None);
    })
    .await;
}
