//! What goes wrong, on the in-memory server with paused time: lost entries, streams made anew, broken connections.

use std::time::Duration;

use stream_testkit::memory::{Fault, Profile};
use stream_testkit::{MemoryServer, work_for};
use streamkeeper::{Context, EntryId, OnGap, RunError, StartFrom};

use super::{Seen, ephemeral, run};
use crate::memory::{publish, until};

fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

fn fill(server: &MemoryServer, ids: std::ops::RangeInclusive<u64>) {
    for ms in ids {
        server.add_at("s", id(ms), [("n", "1")]).unwrap();
    }
}

const PROFILES: [Profile; 2] = [Profile::Redis62, Profile::Redis70];

#[tokio::test(start_paused = true)]
async fn b35_a_stream_made_anew_with_smaller_ids_is_noticed_within_a_block_period() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        fill(&server, 1..=100);
        let seen = Seen::default();
        let running = run(ephemeral(&server.client(), "s").start(StartFrom::Beginning), seen.handler());
        until("all of the old one", || seen.len() == 100).await;
        server.delete_key("s");
        fill(&server, 5..=7);
        let at = tokio::time::Instant::now();
        until("the new one", || seen.len() == 103).await;
        assert!(at.elapsed() <= Duration::from_millis(5_050), "{:?}", at.elapsed());
        assert_eq!(seen.ids()[100..], [id(5), id(6), id(7)]);
        let told = running.events.named("StreamReset");
        assert_eq!(told.len(), 1);
        assert!(told[0].text.contains("last: 100-0, now: Some(7-0), from: 0-0"), "{}", told[0].text);
        work_for(Duration::from_secs(30)).await;
        assert_eq!(running.events.count("StreamReset"), 1, "told once");
        let report = running.stop().await;
        assert_eq!((report.stats.resets, report.stats.gaps, report.positions[0].1), (1, 0, id(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_stream_is_told_once_and_its_successor_read_from_its_first_entry() {
    let server = MemoryServer::new();
    fill(&server, 1..=10);
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s"), seen.handler());
    until("ready", || running.is_ready()).await;
    server.flush_all();
    work_for(Duration::from_mins(1)).await;
    assert_eq!(running.events.count("StreamReset"), 1);
    let before = server.count("XINFO STREAM");
    work_for(Duration::from_mins(1)).await;
    assert_eq!(server.count("XINFO STREAM"), before, "there is nothing to look at");
    fill(&server, 2..=3);
    until("the new one", || seen.len() == 2).await;
    work_for(Duration::from_secs(30)).await;
    assert_eq!((seen.ids(), running.events.count("StreamReset")), (vec![id(2), id(3)], 1));
    assert_eq!(running.events.count("Reconnecting"), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_made_anew_with_greater_ids_is_not_read_twice() {
    let server = MemoryServer::new();
    publish(&server, "s", 100);
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s"), seen.handler());
    until("ready", || running.is_ready()).await;
    work_for(Duration::from_secs(1)).await;
    server.delete_key("s");
    let published = publish(&server, "s", 5);
    work_for(Duration::from_mins(1)).await;
    assert_eq!((seen.ids(), running.events.count("StreamReset")), (published, 1));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b39_a_reader_trimmed_past_its_cursor_goes_on_behind_the_gap_and_says_so() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        fill(&server, 1..=100);
        let seen = Seen::default();
        // Ten are held, in two reads, and each takes 10 s: the reader stands at 10-0 when the stream is cut.
        let builder = ephemeral(&server.client(), "s").start(StartFrom::Beginning).prefetch(9);
        let slow = seen.clone();
        let running = run(builder, move |cx: Context| {
            slow.note(&cx);
            work_for(Duration::from_secs(if cx.id() <= id(10) { 10 } else { 0 }))
        });
        until("the first", || seen.len() == 1).await;
        assert_eq!(running.stats.get().received, 10);
        server.command(["XTRIM", "s", "MINID", "50"]).unwrap();
        until("the last", || seen.ids().last() == Some(&id(100))).await;
        let expected: Vec<_> = (1..=10).chain(50..=100).map(id).collect();
        assert_eq!(seen.ids(), expected);
        let told = running.events.named("Gap");
        // By the count it is certain that nothing was missing in the first read; by ids, where the reader stands.
        let (after, missed) = if profile == Profile::Redis62 { (10, "None") } else { (5, "Some(39)") };
        assert_eq!(told.len(), 1, "{told:?}");
        let gap = format!("after: {after}-0, before: 50-0, missed: {missed}");
        assert!(told[0].text.contains(&gap), "{}", told[0].text);
        let report = running.stop().await;
        assert_eq!((report.stats.gaps, report.stats.resets), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_trimmed_while_disconnected_is_told_after_the_reconnect() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        fill(&server, 1..=10);
        let seen = Seen::default();
        let running = run(ephemeral(&server.client(), "s"), seen.handler());
        until("ready", || running.is_ready()).await;
        server.set_down(true);
        server.kill_connections();
        fill(&server, 11..=60);
        server.command(["XTRIM", "s", "MINID", "50"]).unwrap();
        server.set_down(false);
        until("the last", || seen.ids().last() == Some(&id(60))).await;
        let told = running.events.named("Gap");
        assert_eq!(told.len(), 1, "{told:?}");
        let missed = if profile == Profile::Redis62 { "None" } else { "Some(39)" };
        assert!(told[0].text.contains(&format!("after: 10-0, before: 50-0, missed: {missed}")), "{}", told[0].text);
        assert_eq!(seen.ids(), (50..=60).map(id).collect::<Vec<_>>());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_keeps_up_with_a_short_stream_is_told_of_no_gap() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        let seen = Seen::default();
        let running = run(ephemeral(&server.client(), "s"), seen.handler());
        until("ready", || running.is_ready()).await;
        for n in 0..300 {
            publish(&server, "s", 1);
            work_for(Duration::from_millis(n % 7 * 100)).await;
            server.command(["XTRIM", "s", "MAXLEN", "1"]).unwrap();
        }
        until("all", || seen.len() == 300).await;
        work_for(Duration::from_secs(20)).await;
        assert!(running.is_calm(), "{:?}", running.events.named("Gap"));
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_can_be_to_skip_to_the_end_or_to_fail() {
    let server = MemoryServer::new();
    fill(&server, 1..=100);
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s").on_gap(OnGap::End), seen.handler());
    let failing = run(ephemeral(&server.client(), "s").on_gap(OnGap::Fail), || async {});
    until("both to be ready", || running.is_ready() && failing.is_ready()).await;
    server.delete_key("s");
    fill(&server, 1..=50);
    until("the reset", || running.events.count("StreamReset") == 1).await;
    fill(&server, 51..=52);
    until("what came after it", || seen.len() == 2).await;
    assert_eq!(seen.ids(), [id(51), id(52)]);
    running.stop().await;
    let error = failing.task.await.unwrap().unwrap_err();
    assert!(matches!(&error, RunError::EntriesMissing { stream } if stream.as_bytes() == b"s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn killed_connections_cost_no_entry_and_bring_none_twice() {
    let server = MemoryServer::new();
    server.set_chunk(Some(3));
    let seen = Seen::default();
    let builder = ephemeral(&server.client(), "s").backoff(Duration::from_millis(100), Duration::from_secs(1));
    let running = run(builder, seen.handler());
    until("ready", || running.is_ready()).await;
    let mut published = Vec::new();
    for n in 0..100 {
        published.extend(publish(&server, "s", 7));
        match n % 5 {
            0 => server.kill_connections(),
            1 => server.fail_next("XREAD", Fault::CutAfterEntries(4)),
            2 => server.fail_next("XREAD", Fault::error("LOADING Redis is loading the dataset in memory")),
            3 => server.kill_readers(),
            _ => work_for(Duration::from_millis(500)).await,
        }
        published.extend(publish(&server, "s", 1));
    }
    until("all", || seen.len() >= 800).await;
    work_for(Duration::from_secs(20)).await;
    assert_eq!(seen.ids(), published);
    assert_eq!((running.events.count("Gap"), running.events.count("StreamReset")), (0, 0));
    assert!(running.stats.get().reconnects > 0);
    assert_eq!(running.events.count("Ready"), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_to_look_it_reads_on_and_says_so_once() {
    let server = MemoryServer::new();
    server.deny("XINFO");
    publish(&server, "s", 10);
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s"), seen.handler());
    until("ready", || running.is_ready()).await;
    let published = publish(&server, "s", 10);
    until("all", || seen.len() == 10).await;
    server.kill_connections();
    work_for(Duration::from_mins(1)).await;
    assert_eq!(seen.ids(), published);
    assert_eq!((running.events.count("Degraded"), server.count("XINFO STREAM")), (1, 1));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b52_one_bad_stream_does_not_stop_the_others() {
    let server = MemoryServer::new();
    server.set_string("bad");
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "bad").stream("s"), seen.handler());
    until("the good one to be ready", || running.is_ready()).await;
    let published = publish(&server, "s", 100);
    until("all", || seen.len() == 100).await;
    assert_eq!((seen.ids(), running.events.count("StreamFailed")), (published, 1));
    // Mended, it is read as well.
    server.delete_key("bad");
    until("the bad one to be ready", || running.events.count("Ready") == 2).await;
    publish(&server, "bad", 1);
    until("its entry", || seen.of("bad").len() == 1).await;
    running.stop().await;
    // Alone, a bad stream is the end.
    server.set_string("alone");
    let alone = run(ephemeral(&server.client(), "alone"), || async {});
    assert!(matches!(alone.task.await.unwrap(), Err(RunError::Stream { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_waited_for_and_a_stop_cuts_that_short() {
    let server = MemoryServer::new();
    server.set_down(true);
    let seen = Seen::default();
    let running = run(ephemeral(&server.client(), "s"), seen.handler());
    work_for(Duration::from_mins(10)).await;
    let tries = server.count("CONNECT");
    assert!((10..60).contains(&tries), "{tries} attempts in ten minutes");
    server.set_down(false);
    until("ready", || running.is_ready()).await;
    server.set_down(true);
    server.kill_connections();
    work_for(Duration::from_mins(1)).await;
    let at = tokio::time::Instant::now();
    running.stop().await;
    assert!(at.elapsed() < Duration::from_millis(100), "{:?}", at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn every_trouble_after_a_good_read_is_backed_off_from_as_the_first() {
    let server = MemoryServer::new();
    let seen = Seen::default();
    let base = Duration::from_secs(1);
    let running = run(ephemeral(&server.client(), "s").backoff(base, 60 * base), seen.handler());
    until("ready", || running.is_ready()).await;
    for n in 1..=12 {
        server.kill_connections();
        let published = tokio::time::Instant::now();
        publish(&server, "s", 1);
        until("the entry", || seen.len() == n).await;
        // The reading socket and the command connection each wait once or twice; without a reset it would be a minute.
        assert!(published.elapsed() <= 6 * base, "trouble {n} took {:?}", published.elapsed());
    }
    running.stop().await;
}
