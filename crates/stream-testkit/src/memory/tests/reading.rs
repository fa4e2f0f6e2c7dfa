//! Readers: waiting, waking in order, timing out, and what a change of the key does to them, per generation.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::*;

/// A reader that waits in a task of its own; returns once it is blocked.
async fn blocked(server: &MemoryServer, request: ReadRequest) -> JoinHandle<Result<Vec<EntryId>, Error>> {
    let before = server.blocked_readers();
    let mut reader = reader(server).await;
    let task = tokio::spawn(async move { read(&mut reader, &request).await });
    while server.blocked_readers() == before {
        tokio::task::yield_now().await;
    }
    task
}

fn tail() -> ReadRequest {
    ReadRequest { from: ReadFrom::After(EntryId::ZERO), ..group_read("a", 10, 60_000) }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_read_is_woken_by_an_entry() {
    for profile in ALL {
        let server = with_group(profile);
        let task = blocked(&server, group_read("a", 10, 60_000)).await;
        let id = server.add("s", [("f", "v")]);
        assert_eq!(task.await.unwrap().unwrap(), [id]);
        assert_eq!(server.pending("s", "g").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_times_out_at_its_own_time_and_the_next_one_starts_then() {
    let server = with_group(Profile::default());
    let start = tokio::time::Instant::now();
    let mut reader = reader(&server).await;
    reader.submit(&group_read("a", 10, 1000));
    reader.submit(&group_read("a", 10, 1000));
    assert_eq!(reader.in_flight(), 2);
    let mut batch = ReadBatch::default();
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Complete { total: 0 });
    assert_eq!(start.elapsed().as_millis(), 1000);
    // Nobody polls while the second read times out too; what comes then is for nobody.
    tokio::time::advance(Duration::from_millis(1500)).await;
    server.add("s", [("f", "v")]);
    assert_eq!(server.pending("s", "g"), []);
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Complete { total: 0 });
    assert_eq!(reader.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_readers_are_served_in_the_order_they_came() {
    let server = with_group(Profile::default());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for name in ["c", "a", "b"] {
        let task = blocked(&server, group_read(name, 1, 60_000)).await;
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            task.await.unwrap().unwrap();
            order.lock().await.push(name);
        }));
    }
    for _ in 0..3 {
        server.add("s", [("f", "v")]);
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().await, ["c", "a", "b"]);
    let owners: Vec<_> = server.pending("s", "g").into_iter().map(|(_, consumer, ..)| consumer).collect();
    assert_eq!(owners, ["c", "a", "b"]);
}

type Change = fn(&MemoryServer);

#[tokio::test(start_paused = true)]
async fn what_ends_a_waiting_group_read_differs_by_generation() {
    let no_key = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    let unblocked = "UNBLOCKED the stream key no longer exists";
    let no_group = "NOGROUP the consumer group this client was blocked on no longer exists";
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let delete: Change = |server| assert!(server.delete_key("s"));
    let flush: Change = MemoryServer::flush_all;
    let replace: Change = |server| server.set_string("s");
    let destroy: Change = |server| assert!(server.destroy_group("s", "g"));
    let cases = [
        (delete, [None, Some(unblocked), Some(no_key), Some(no_key)]),
        (flush, [None, Some(unblocked), Some(no_key), Some(no_key)]),
        (replace, [None, Some(unblocked), Some(wrong_type), Some(wrong_type)]),
        (destroy, [Some(no_group), Some(no_group), Some(no_key), Some(no_key)]),
    ];
    for (change, expected) in cases {
        for (profile, expected) in ALL.into_iter().zip(expected) {
            let server = with_group(profile);
            let group = blocked(&server, group_read("a", 10, 60_000)).await;
            let tail = blocked(&server, tail()).await;
            change(&server);
            assert_eq!(server.blocked_readers(), 1 + usize::from(expected.is_none()), "{profile:?} {expected:?}");
            let error = group.await.unwrap().err().map(|error| error.server().unwrap().to_string());
            assert_eq!(error.as_deref(), expected, "{profile:?}");
            assert_eq!(tail.await.unwrap().unwrap(), [], "a read without a group waits on");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_stream_that_comes_back_without_its_group_ends_the_read_on_the_oldest_generation() {
    let server = with_group(Profile::Redis62);
    let task = blocked(&server, group_read("a", 10, 60_000)).await;
    server.delete_key("s");
    server.add("s", [("f", "v")]);
    assert_eq!(task.await.unwrap().unwrap_err().code(), Some("NOGROUP"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reader_leaves_nothing_behind() {
    let server = with_group(Profile::default());
    let task = blocked(&server, group_read("a", 10, 60_000)).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!((server.blocked_readers(), server.open_connections()), (0, 0));
    server.add("s", [("f", "v")]);
    assert_eq!(server.pending("s", "g"), []);
}

#[tokio::test(start_paused = true)]
async fn pieces_of_a_reply_come_one_by_one() {
    let server = with_group(Profile::default());
    for _ in 0..5 {
        server.add("s", [("f", "v")]);
    }
    server.set_chunk(Some(2));
    let mut reader = reader(&server).await;
    reader.submit(&group_read("a", 10, 1000));
    let mut batch = ReadBatch::default();
    let mut sizes = Vec::new();
    loop {
        let progress = next(&mut reader, &mut batch).await.unwrap();
        sizes.push(std::mem::take(&mut batch).entries.len());
        if progress == (ReadProgress::Complete { total: 5 }) {
            break;
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_blocking_command_holds_up_what_comes_after_it_on_its_connection() {
    let server = with_group(Profile::default());
    let connection = connect(&server).await;
    let start = tokio::time::Instant::now();
    let blocking = request(&["XREADGROUP", "GROUP", "g", "a", "BLOCK", "500", "STREAMS", "s", ">"]);
    let replies = connection.send(&[blocking, request(&["PING"])]).await.unwrap();
    assert_eq!(replies, [Ok(Value::Nil), Ok(Value::bulk("PONG"))]);
    assert_eq!(start.elapsed().as_millis(), 500);
}
