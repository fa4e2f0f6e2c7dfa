//! Groups that trimming may leave out: only those that are dead by all that was ever seen of them, and are so still.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stream_core::{GroupPolicy, NamePattern, TrimPolicy};
use stream_maint::{GroupCleaner, TrimReport, Trimmed, Trimmer};
use stream_testkit::MemoryServer;

const MINUTE: Duration = Duration::from_mins(1);

/// A trimmer that leaves `slow` out after ten minutes.
fn trimmer(server: &MemoryServer) -> Trimmer {
    let stale = TrimPolicy::new().exclude_stale(NamePattern::new("slow").unwrap(), 10 * MINUTE);
    Trimmer::builder(&server.client()).stream("s").policy(stale).build().unwrap()
}

/// A stream of `entries` that all but `slow` have finished.
fn server(entries: u64) -> MemoryServer {
    let server = MemoryServer::new();
    for n in 1..=entries {
        server.command(["XADD", "s", &format!("{n}-0"), "n", "1"]).unwrap();
    }
    run(&server, "XGROUP CREATE s done $");
    run(&server, "XGROUP CREATE s slow 0");
    run(&server, "XREADGROUP GROUP slow c COUNT 1 STREAMS s >");
    server
}

fn run(server: &MemoryServer, words: &str) {
    server.command(words.split(' ')).unwrap();
}

async fn report(trimmer: &mut Trimmer) -> TrimReport {
    match trimmer.run().await.unwrap() {
        Trimmed::Stream(report) => report,
        other => panic!("{other:?}"),
    }
}

/// A replica, or what a server finds on its disk, shows consumers that ask in vain as idle since they were last given something.
#[tokio::test(start_paused = true)]
async fn a_live_group_is_not_stale_because_its_server_forgot_who_asked() {
    let server = server(9);
    let written = server.snapshot();
    let mut trimmer = trimmer(&server);
    for _ in 0..30 {
        run(&server, "XREADGROUP GROUP slow c COUNT 1 STREAMS s 9-0");
        assert_eq!(report(&mut trimmer).await.removed, 0);
        tokio::time::advance(MINUTE).await;
    }
    server.restart_from(written);
    trimmer.run().await.unwrap_err();
    for _ in 1..10 {
        let held = report(&mut trimmer).await;
        assert_eq!((held.removed, held.excluded), (0, Vec::new()));
        tokio::time::advance(MINUTE).await;
    }
    assert_eq!(report(&mut trimmer).await.removed, 8, "it has not come back");
}

/// Its clock was set, or another took over whose clock is ahead: no time has passed.
#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_is_set_forward_makes_no_group_old() {
    let server = server(9);
    run(&server, "XGROUP CREATE s tmp $");
    let mut trimmer = trimmer(&server);
    let policy = GroupPolicy::new(NamePattern::new("tmp").unwrap(), 10 * MINUTE).unwrap();
    let mut cleaner = GroupCleaner::new(&server.client(), "s", policy).unwrap();
    for _ in 0..10 {
        let held = report(&mut trimmer).await;
        assert_eq!((held.removed, held.excluded), (0, Vec::new()));
        assert_eq!(cleaner.run().await.unwrap().removed, []);
        tokio::time::advance(MINUTE).await;
        server.set_clock_forward(24 * 60 * MINUTE);
    }
    assert_eq!(report(&mut trimmer).await.removed, 8);
    assert_eq!(cleaner.run().await.unwrap().removed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_clock_is_set_forward_ends_no_grace() {
    let server = server(9);
    server.destroy_group("s", "slow");
    run(&server, "XGROUP CREATE s gone 0");
    let mut trimmer = trimmer(&server);
    assert_eq!(report(&mut trimmer).await.removed, 0);
    server.destroy_group("s", "gone");
    for _ in 0..10 {
        assert_eq!(report(&mut trimmer).await.removed, 0);
        tokio::time::advance(MINUTE).await;
        server.set_clock_forward(24 * 60 * MINUTE);
    }
    assert_eq!(report(&mut trimmer).await.removed, 8);
}

/// Does `act` when the `number`th command with this name arrives, before it is carried out.
fn on_nth(
    server: &MemoryServer,
    name: &'static str,
    number: usize,
    act: impl Fn(&MemoryServer) + Send + Sync + 'static,
) {
    let (mirror, seen) = (server.clone(), AtomicUsize::new(0));
    server.on_command(move |args| {
        if args[0] == name.as_bytes() && seen.fetch_add(1, Ordering::Relaxed) + 1 == number {
            act(&mirror);
        }
    });
}

/// Whole blocks go first, then the rest; a group that shows a sign of life before a step needs what is left.
#[tokio::test(start_paused = true)]
async fn a_stale_group_that_wakes_while_its_stream_is_trimmed_keeps_what_is_left() {
    let signs = [
        "XREADGROUP GROUP slow c COUNT 1 STREAMS s >",
        "XREADGROUP GROUP slow c COUNT 1 STREAMS s 9-0",
        "XCLAIM s slow c 0 1-0 JUSTID",
        "XGROUP CREATECONSUMER s slow new",
        "XACK s slow 1-0",
        "XGROUP SETID s slow 2-0",
    ];
    for sign in signs {
        // Before the second look, which is the fifth `XINFO`; at the first cut; and at the second, which takes nothing.
        for (command, number, left) in [("XINFO", 5, 250), ("XTRIM", 1, 50), ("XTRIM", 2, 50)] {
            let server = server(250);
            let mut trimmer = trimmer(&server);
            assert_eq!(report(&mut trimmer).await.removed, 0);
            tokio::time::advance(10 * MINUTE).await;
            on_nth(&server, command, number, move |server| run(server, sign));
            let cut = report(&mut trimmer).await;
            let case = format!("{sign} at {command} {number}");
            assert_eq!((server.len("s"), cut.removed), (left, 250 - left as u64), "{case}");
            let lost = cut.excluded.iter().filter(|group| group.lost_from.is_some()).count();
            assert_eq!(lost, usize::from(cut.removed > 0), "{case}");
            assert_eq!(report(&mut trimmer).await.excluded, [], "{case}: it is alive");
        }
    }
}

/// Its place is no lower than it was, but what it was given meanwhile is.
#[tokio::test(start_paused = true)]
async fn a_group_that_was_set_back_and_has_read_past_its_place_loses_nothing() {
    for (command, number, left) in [("XINFO", 3, 250), ("XTRIM", 1, 50), ("XTRIM", 2, 50)] {
        let server = server(250);
        run(&server, "XGROUP SETID s slow 250-0");
        run(&server, "XACK s slow 1-0");
        on_nth(&server, command, number, |server| {
            run(server, "XGROUP SETID s slow 0");
            run(server, "XREADGROUP GROUP slow c COUNT 250 STREAMS s >");
        });
        let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
        let cut = report(&mut trimmer).await;
        assert_eq!((server.len("s"), cut.removed), (left, 250 - left as u64), "at {command} {number}");
    }
}
