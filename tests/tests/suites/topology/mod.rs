//! Sentinel setups and clusters of real servers: consumers and publishers go on through failovers and slots that move.

mod cluster;
mod cut_off;
mod judged;
mod load;
mod sentinel;
mod sentinel_access;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use stream_testkit::{RealServer, ServerBinary, ServerOptions, matrix};
use streamkeeper::{Client, Consumer, Context, DurableBuilder, EntryId, Publisher};
use streamkeeper_tests::Journal;

/// How long a failover with everything after it may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The servers of the matrix of which several can be started: programs, and containers.
fn programs() -> Vec<ServerBinary> {
    let mut programs = matrix::all();
    programs.retain(|binary| {
        if binary.is_external() {
            eprintln!("not run on the server of REDIS_URL: a setup of several servers has to be started");
        }
        !binary.is_external()
    });
    programs
}

/// Runs `body` on each of them, all at the same time.
pub(crate) async fn on_programs<F: Future<Output = ()> + Send + 'static>(body: impl Fn(ServerBinary) -> F) {
    let runs: Vec<_> = programs().into_iter().map(|binary| tokio::spawn(body(binary))).collect();
    for run in runs {
        run.await.unwrap();
    }
}

/// The same where one program tells as much as all: on the newest, and in the long form on all.
async fn on_some_programs<F: Future<Output = ()> + Send + 'static>(body: impl Fn(ServerBinary) -> F) {
    let mut programs = programs();
    let first = if load::thorough() { 0 } else { programs.len().saturating_sub(1) };
    let runs: Vec<_> = programs.drain(first..).map(|binary| tokio::spawn(body(binary))).collect();
    for run in runs {
        run.await.unwrap();
    }
}

pub(crate) fn durable(client: &Client) -> DurableBuilder {
    Consumer::durable(client)
        .group("g")
        .block(Duration::from_secs(1))
        .lease(Duration::from_secs(3))
        .backoff(Duration::from_millis(50), Duration::from_millis(500))
}

/// A handler that notes its runs.
pub(crate) fn noting(journal: &Journal) -> impl Fn(Context) -> std::future::Ready<()> + Clone + Send + Sync + 'static {
    let journal = journal.clone();
    move |cx: Context| {
        journal.begin(&cx).end();
        std::future::ready(())
    }
}

/// Publishes entries and returns their ids once all are confirmed.
async fn publish(publisher: &Publisher, count: usize) -> BTreeSet<EntryId> {
    let sent = join_all((0..count).map(|n| publisher.publish([("data", n.to_string())]))).await;
    sent.into_iter().map(Result::unwrap).collect()
}

/// Waits until a replica of `server` has everything that was written so far.
pub(crate) async fn replicated(server: &RealServer) {
    let mut cli = server.connect().await.unwrap();
    cli.command(&["SET", "barrier", "1"]).await.ok();
    let replicas = cli.command(&["WAIT", "1", "9000"]).await.unwrap();
    assert!(replicas.as_int() >= Some(1), "no replica follows {}", server.address());
}

pub(crate) fn plain() -> ServerOptions {
    ServerOptions::new()
}
