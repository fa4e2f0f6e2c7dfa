//! A test on every server of the matrix, all at once.
//!
//! What must stay true: each test has servers of its own, which it may empty and misconfigure, and a failure says on
//! which servers it happened.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use stream_core::StreamKey;
use stream_redis::{Client, Connection, Value};
use stream_testkit::{RealServer, ServerBinary, ServerOptions, matrix};

/// Runs `test` on a fresh server of each kind, started with `options`.
pub(crate) async fn on_every_server(options: ServerOptions, test: impl AsyncFn(RealServer)) {
    on_every_binary(async |binary| {
        let server = RealServer::start(&binary, &options).await.unwrap_or_else(|error| panic!("{error}"));
        test(server).await;
    })
    .await;
}

/// Runs `test` for each kind of server, to the end on all even when it fails on one.
pub(crate) async fn on_every_binary(test: impl AsyncFn(ServerBinary)) {
    let test = &test;
    let runs = matrix::all().into_iter().map(|binary| async move {
        assert!(!binary.is_external(), "these tests empty their servers: unset REDIS_URL to run them");
        let name = binary.name().to_owned();
        let outcome = AssertUnwindSafe(test(binary)).catch_unwind().await;
        outcome.err().map(|_| {
            eprintln!("that was on {name}");
            name
        })
    });
    let failed: Vec<String> = join_all(runs).await.into_iter().flatten().collect();
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}

/// Runs a command, given as words, on a connection of its own and insists on success.
pub(crate) async fn ok(server: &RealServer, words: &str) -> Value {
    let parts: Vec<&str> = words.split(' ').collect();
    server.cli(&parts).await.unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// The library's connection to the server at `url`.
pub(crate) async fn connect(url: &str) -> Arc<dyn Connection> {
    Client::open(url).unwrap().connector().connect(&key()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The stream that most tests are about.
pub(crate) fn key() -> StreamKey {
    StreamKey::new("s").unwrap()
}
