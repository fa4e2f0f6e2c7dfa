//! Groups that trimming may leave out: only those that are dead by all that was ever seen of them, and are so still.

use std::time::Duration;

use stream_core::{NamePattern, TrimPolicy};
use stream_maint::{TrimReport, Trimmed, Trimmer};
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
