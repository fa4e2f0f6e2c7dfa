//! Faults: what is carried out, what the client sees, and when it is over.

use stream_redis::{ErrorKind, ServerError};

use super::super::Fault;
use super::*;

fn add() -> Request {
    request(&["XADD", "s", "*", "f", "v"])
}

#[tokio::test(start_paused = true)]
async fn a_cut_loses_the_reply_and_with_before_the_command_too() {
    for (fault, carried_out) in [(Fault::CutBefore, 0), (Fault::CutAfter, 1), (Fault::CutAfterEntries(0), 1)] {
        let server = MemoryServer::new();
        server.fail_next("xadd", fault.clone());
        let connection = connect(&server).await;
        let error = connection.send(&[add()]).await.unwrap_err();
        assert_eq!((error.kind(), server.len("s")), (ErrorKind::Io, carried_out), "{fault:?}");
        assert!(connection.send(&[add()]).await.is_err(), "the connection is of no more use");
        assert!(connect(&server).await.send(&[add()]).await.is_ok(), "the fault was for one command");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_comes_in_its_place_and_does_nothing() {
    let server = MemoryServer::new();
    server.fail_always("XADD", Fault::error("OOM command not allowed when used memory > 'maxmemory'."));
    let connection = connect(&server).await;
    for _ in 0..2 {
        let replies = connection.send(&[request(&["PING"]), add()]).await.unwrap();
        assert_eq!(replies[0], Ok(Value::bulk("PONG")));
        assert_eq!(replies[1].as_ref().unwrap_err().code, "OOM");
    }
    server.clear_faults();
    assert!(connection.call(&add()).await.is_ok());
    assert_eq!(server.count("XADD"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_command_ends_with_its_connection_or_with_the_timeout() {
    let server = MemoryServer::new();
    server.fail_next("PING", Fault::Hang);
    let connection = connect(&server).await;
    let ping = request(&["PING"]);
    let waited = tokio::time::timeout(Duration::from_hours(1), connection.send(std::slice::from_ref(&ping))).await;
    assert!(waited.is_err(), "no answer in an hour");
    let hanging = tokio::spawn({
        let connection = connection.clone();
        async move { connection.send(&[add()]).await }
    });
    tokio::task::yield_now().await;
    server.kill_connections();
    assert_eq!(hanging.await.unwrap().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(server.len("s"), 0);

    server.set_response_timeout(Some(Duration::from_secs(2)));
    server.fail_next("PING", Fault::Hang);
    let start = tokio::time::Instant::now();
    let error = connect(&server).await.send(&[ping]).await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::Timeout, 2));
}

#[tokio::test(start_paused = true)]
async fn delay_and_latency_are_time_on_the_wire() {
    let server = MemoryServer::new();
    server.set_latency(Duration::from_millis(20));
    server.fail_next("XADD", Fault::Delay(Duration::from_secs(5)));
    let connection = connect(&server).await;
    let start = tokio::time::Instant::now();
    let replies = connection.send(&[add(), request(&["PING"])]).await.unwrap();
    assert_eq!((replies.len(), start.elapsed().as_millis()), (2, 5020));
    connection.send(&[request(&["PING"])]).await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 5040);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_read_leaves_its_entries_pending() {
    for blocked in [false, true] {
        let server = with_group(Profile::default());
        server.fail_next("XREADGROUP", Fault::CutAfter);
        let mut reader = reader(&server).await;
        if blocked {
            let later = server.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                later.add("s", [("f", "v")]);
            });
        } else {
            server.add("s", [("f", "v")]);
        }
        let error = read(&mut reader, &group_read("a", 10, 1000)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(server.pending("s", "g").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_torn_reply_gives_its_first_entries() {
    let server = with_group(Profile::default());
    for _ in 0..5 {
        server.add("s", [("f", "v")]);
    }
    server.fail_next("XREADGROUP", Fault::CutAfterEntries(2));
    let mut reader = reader(&server).await;
    reader.submit(&group_read("a", 10, 1000));
    let mut batch = ReadBatch::default();
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Partial);
    assert_eq!(next(&mut reader, &mut batch).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!((batch.entries.len(), server.pending("s", "g").len()), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn killed_readers_fail_and_a_server_that_is_down_refuses() {
    let server = with_group(Profile::default());
    let mut reader = reader(&server).await;
    let task = tokio::spawn(async move { read(&mut reader, &group_read("a", 10, 3_600_000)).await });
    while server.blocked_readers() == 0 {
        tokio::task::yield_now().await;
    }
    server.set_down(true);
    server.kill_connections();
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::Io);
    let refused = server.client().connector().connect(&key()).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Io);
    server.set_down(false);
    assert!(server.client().connector().connect(&key()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reader_without_a_read_notices_the_end_of_its_connection() {
    let server = with_group(Profile::default());
    let mut reader = reader(&server).await;
    let (polled, observed) = (std::sync::Arc::new(tokio::sync::Notify::new()), server.clone());
    let first = polled.clone();
    let task = tokio::spawn(async move {
        let mut batch = ReadBatch::default();
        poll_fn(|cx| {
            let progress = reader.poll_next(cx, &mut batch);
            first.notify_one();
            progress
        })
        .await
    });
    polled.notified().await;
    observed.kill_readers();
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::Io);
}

#[tokio::test(start_paused = true)]
async fn an_error_to_a_read_ends_that_read_only() {
    let server = with_group(Profile::default());
    server.fail_next("XREADGROUP", Fault::error("LOADING Redis is loading the dataset in memory"));
    let id = server.add("s", [("f", "v")]);
    let mut reader = reader(&server).await;
    let error = read(&mut reader, &group_read("a", 10, 1000)).await.unwrap_err();
    assert_eq!((error.kind(), error.command()), (ErrorKind::Busy, Some("XREADGROUP")));
    assert_eq!(read(&mut reader, &group_read("a", 10, 1000)).await.unwrap(), [id]);
}

#[tokio::test(start_paused = true)]
async fn waiting_reads_can_be_unblocked_with_an_error() {
    let server = with_group(Profile::default());
    let mut reader = reader(&server).await;
    let task = tokio::spawn(async move { read(&mut reader, &group_read("a", 10, 3_600_000)).await });
    while server.blocked_readers() == 0 {
        tokio::task::yield_now().await;
    }
    server.unblock_readers(&ServerError::parse("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
    assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::Unblocked);
}

#[tokio::test(start_paused = true)]
async fn denied_commands_get_the_text_of_their_generation() {
    let texts = [
        "NOPERM this user has no permissions to run the 'xgroup' command or its subcommand",
        "NOPERM this user has no permissions to run the 'xgroup|create' command",
        "NOPERM User default has no permissions to run the 'xgroup|create' command",
        "NOPERM User default has no permissions to run the 'xgroup|create' command",
    ];
    for (profile, text) in ALL.into_iter().zip(texts) {
        let server = MemoryServer::with_profile(profile);
        server.deny("XGROUP");
        let create = request(&["XGROUP CREATE", "s", "g", "0", "MKSTREAM"]);
        let error = connect(&server).await.call(&create).await.unwrap_err();
        assert_eq!(error.server().unwrap().to_string(), text);
        assert_eq!(server.groups("s"), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn observers_see_commands_before_they_are_carried_out() {
    let server = MemoryServer::new();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (observed, inside) = (seen.clone(), server.clone());
    server.on_command(move |args| {
        let words: Vec<String> = args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        observed.lock().unwrap().push((words.join(" "), inside.len("s")));
    });
    connect(&server).await.send(&[add()]).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [("XADD s * f v".to_owned(), 0)]);
    assert_eq!(server.len("s"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_not_answered_times_out_after_its_block() {
    let server = with_group(Profile::default());
    server.set_response_timeout(Some(Duration::from_secs(2)));
    server.fail_next("XREADGROUP", Fault::Hang);
    let mut reader = reader(&server).await;
    let start = tokio::time::Instant::now();
    let error = read(&mut reader, &group_read("a", 10, 1000)).await.unwrap_err();
    assert_eq!((error.kind(), error.command()), (ErrorKind::Timeout, Some("XREADGROUP")));
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(server.open_connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn opening_a_connection_can_fail_too() {
    let server = MemoryServer::new();
    server.fail_next("CONNECT", Fault::error("WRONGPASS invalid username-password pair or user is disabled."));
    server.fail_next("CONNECT", Fault::CutBefore);
    let open =
        async || server.client().connector().open_reader(&key(), "reader").await.map(|_| ()).map_err(|e| e.kind());
    assert_eq!(open().await, Err(ErrorKind::Authentication));
    assert_eq!(open().await, Err(ErrorKind::Io));
    assert_eq!((open().await, server.count("CONNECT")), (Ok(()), 3));
}

#[tokio::test(start_paused = true)]
async fn a_denied_command_is_denied_inside_scripts_too() {
    let server = with_group(Profile::default());
    server.add_at("s", EntryId::new(1, 0), [("f", "v")]).unwrap();
    server.command(["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"]).unwrap();
    server.deny("XCLAIM");
    let script = stream_redis::command::Script::renew().source();
    let renew = request(&["EVAL", script, "1", "s", "g", "a", "1-0"]);
    let text = "ERR ACL failure in script: User default has no permissions to run the 'xclaim' command";
    let replies = connect(&server).await.send(&[renew]).await.unwrap();
    assert_eq!(replies[0].as_ref().unwrap_err().to_string(), text);
    assert_eq!(server.count("EVAL RENEW"), 1);
}

#[tokio::test(start_paused = true)]
async fn who_chooses_faults_is_asked_for_every_command_that_has_none() {
    let server = MemoryServer::new();
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let names = asked.clone();
    server.choose_faults(move |name| {
        names.lock().unwrap().push(name.to_owned());
        (name == "PING").then_some(Fault::CutBefore)
    });
    server.fail_next("XADD", Fault::error("ERR no"));
    let connection = connect(&server).await;
    let replies = connection.send(&[add(), add()]).await.unwrap();
    assert_eq!((replies[0].is_err(), replies[1].is_ok()), (true, true));
    assert!(connection.send(&[request(&["PING"])]).await.is_err());
    server.clear_faults();
    assert!(connect(&server).await.send(&[request(&["PING"])]).await.is_ok());
    assert_eq!(*asked.lock().unwrap(), ["CONNECT", "XADD", "PING"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_started_again_knows_what_it_had_written_and_no_connection() {
    let server = with_group(Profile::default());
    server.add("s", [("f", "1")]);
    let written = server.snapshot();
    let mut reader = reader(&server).await;
    assert_eq!(read(&mut reader, &group_read("a", 10, 1000)).await.unwrap().len(), 1);
    server.add("s", [("f", "2")]);
    assert_eq!(read(&mut reader, &group_read("a", 10, 1000)).await.unwrap().len(), 1);
    let waits = tokio::spawn(async move { read(&mut reader, &group_read("a", 10, 60_000)).await });
    tokio::task::yield_now().await;
    server.restart_from(written);
    assert!(waits.await.unwrap().is_err());
    assert_eq!((server.len("s"), server.pending("s", "g").len(), server.open_connections()), (1, 0, 0));
    assert_eq!(server.group_last_delivered("s", "g"), Some(EntryId::ZERO));
}
