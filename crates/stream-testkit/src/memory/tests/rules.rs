//! Rules of single commands that hang on time, and the ids of the server's clock.

use super::*;

#[tokio::test(start_paused = true)]
async fn ids_and_idle_times_come_from_the_paused_clock() {
    let server = with_group(Profile::default());
    assert_eq!(server.add("s", [("f", "v")]), EntryId::new(1_700_000_000_000, 0));
    assert_eq!(server.add("s", [("f", "v")]), EntryId::new(1_700_000_000_000, 1));
    server.command(["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]).unwrap();
    tokio::time::advance(Duration::from_millis(1500)).await;
    assert_eq!(server.add("s", [("f", "v")]), EntryId::new(1_700_000_001_500, 0));
    let pending = server.pending("s", "g");
    assert_eq!(pending[0], (EntryId::new(1_700_000_000_000, 0), "a".to_owned(), Duration::from_millis(1500), 1));
    let time = server.command(["TIME"]).unwrap();
    assert_eq!(texts(&time), ["1700000001", "500000"]);
}

#[tokio::test(start_paused = true)]
async fn the_delivery_counter_follows_the_kind_of_delivery() {
    let server = with_group(Profile::default());
    let id = server.add("s", [("f", "v")]).to_string();
    let deliveries = || server.pending("s", "g")[0].3;
    server.command(["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]).unwrap();
    assert_eq!(deliveries(), 1);
    server.command(["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", "0"]).unwrap();
    assert_eq!(deliveries(), 2);
    server.command(["XCLAIM", "s", "g", "b", "0", &id]).unwrap();
    assert_eq!(deliveries(), 3);
    server.command(["XCLAIM", "s", "g", "b", "0", &id, "JUSTID"]).unwrap();
    assert_eq!(deliveries(), 3);
    server.command(["XAUTOCLAIM", "s", "g", "a", "0", "0"]).unwrap();
    assert_eq!(deliveries(), 4);
    server.command(["XCLAIM", "s", "g", "b", "0", &id, "RETRYCOUNT", "9", "JUSTID"]).unwrap();
    assert_eq!(deliveries(), 9);
}

#[tokio::test(start_paused = true)]
async fn claims_respect_the_idle_time() {
    let server = with_group(Profile::default());
    let id = server.add("s", [("f", "v")]).to_string();
    server.command(["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]).unwrap();
    let claim = || server.command(["XAUTOCLAIM", "s", "g", "b", "1000", "0", "JUSTID"]).unwrap();
    tokio::time::advance(Duration::from_millis(999)).await;
    claim();
    assert_eq!(server.pending("s", "g")[0].1, "a");
    tokio::time::advance(Duration::from_millis(1)).await;
    claim();
    assert_eq!(server.pending("s", "g")[0].1, "b");
    server.command(["XCLAIM", "s", "g", "b", "0", &id, "IDLE", "5000", "JUSTID"]).unwrap();
    assert_eq!(server.pending("s", "g")[0].2, Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn strings_can_be_a_lease_with_a_time_to_live() {
    let server = MemoryServer::new();
    let take = || server.command(["SET", "lease", "me", "NX", "PX", "1000"]).unwrap();
    assert_eq!((take(), take()), (Value::bulk("OK"), Value::Nil));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(take(), Value::bulk("OK"));
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_claims_nothing_still_moves_its_cursor() {
    let server = with_group(Profile::default());
    for _ in 0..25 {
        server.add("s", [("f", "v")]);
    }
    server.command(["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]).unwrap();
    let Value::Array(reply) = server.command(["XAUTOCLAIM", "s", "g", "b", "1000", "0", "COUNT", "2"]).unwrap() else {
        panic!("an array");
    };
    assert_eq!(reply[0], Value::bulk("1700000000000-20"), "ten entries are looked at for each that may be claimed");
    assert_eq!(reply[1], Value::Array(Vec::new()));
}
