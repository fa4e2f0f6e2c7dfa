//! Examples that end by themselves are run, on the newest server of this machine.

use std::path::PathBuf;
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, matrix};
use tokio::process::Command;

/// Longer than any of them takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The program of an example, which cargo builds before the tests of its package run.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("this test has a path");
    let profile =
        tests.parent().and_then(|deps| deps.parent()).expect("tests lie in a folder below that of the profile");
    let program = profile.join("examples").join(name);
    assert!(program.exists(), "{} is not there: run `cargo test -p streamkeeper-examples`", program.display());
    program
}

#[tokio::test]
async fn five_services_see_every_event_and_stop() {
    let server = RealServer::start(&matrix::one(), &ServerOptions::new()).await.unwrap();
    let mut command = Command::new(program("five_services"));
    command.env("REDIS_URL", server.url()).env("EVENTS", "500").kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, command.output()).await.expect("it ends by itself").unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        "reactive-triggers: 500 acknowledged",
        "actions: 50 acknowledged",
        "event-persister: 500 acknowledged",
        "task-run-recorder: 500 acknowledged",
        "event-logger: 500 handled",
        "50 actions ordered and 50 started, 0 events out of order",
    ] {
        assert!(printed.contains(line), "no {line:?} in:\n{printed}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn five_services_stop_at_a_signal() {
    use rustix::process::{Pid, Signal, kill_process};
    let server = RealServer::start(&matrix::one(), &ServerOptions::new()).await.unwrap();
    let mut command = Command::new(program("five_services"));
    // So many that it is far from its end.
    command.env("REDIS_URL", server.url()).env("EVENTS", "10000000").kill_on_drop(true);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    stream_testkit::eventually(LIMIT, "events to be published", || async {
        let length = server.cli(&["XLEN", "five-services:events"]).await.unwrap().as_int().unwrap();
        (length > 0).then_some(())
    })
    .await;
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = tokio::time::timeout(LIMIT, child.wait()).await.expect("it stops").unwrap();
    assert!(status.success(), "{status}");
}
