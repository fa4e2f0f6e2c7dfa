//! Holds the in-memory model against real servers: the same commands to both, the same replies from both.
//!
//! Sequences are random but always the same ones; `PROPTEST_CASES` makes them more (each case has up to 60 commands).
#![cfg(feature = "servers")]

mod blocking;
mod collections;
mod compare;
mod operation;
mod trimming;

use std::sync::Arc;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use stream_core::StreamKey;
use stream_redis::command::Script;
use stream_redis::{Client, Connection, Request};
use stream_testkit::memory::Profile;
use stream_testkit::{Flavor, MemoryServer, RealServer, ServerOptions, ServerVersion, matrix};

use compare::normalise;
use operation::{Bounds, Names, compile, operations};

/// Sequences per server unless told otherwise; about 9000 commands.
const CASES: u32 = 470;

/// All commands that are sent; a request wants a name that lives for ever.
const COMMANDS: [&str; 34] = [
    "DEL",
    "EVAL",
    "EVALSHA",
    "EXISTS",
    "GET",
    "HGET",
    "HGETALL",
    "HSET",
    "NOSUCHCOMMAND",
    "PING",
    "SADD",
    "SCARD",
    "SCRIPT",
    "SET",
    "SISMEMBER",
    "SREM",
    "SSCAN",
    "TIME",
    "TYPE",
    "XACK",
    "XADD",
    "XAUTOCLAIM",
    "XCLAIM",
    "XDEL",
    "XGROUP",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREADGROUP",
    "XREVRANGE",
    "XSETID",
    "XTRIM",
];

/// A real server and the model that should behave like it.
struct Pair {
    real: RealServer,
    profile: Profile,
}

impl Pair {
    async fn start(binary: &stream_testkit::ServerBinary) -> Self {
        let real = RealServer::start(binary, &ServerOptions::new()).await.expect("the server starts");
        let version = real.version();
        let profile = match version {
            version if version < ServerVersion::new(7, 0, 0) => Profile::Redis62,
            version if version < ServerVersion::new(7, 2, 0) => Profile::Redis70,
            _ if real.flavor() == Flavor::Redis && version >= ServerVersion::new(8, 0, 0) => Profile::Redis80Plus,
            _ => Profile::Redis72Plus,
        };
        Self { real, profile }
    }

    async fn connect_real(&self) -> Arc<dyn Connection> {
        let client = Client::open(&self.real.url()).expect("the server's URL is valid");
        client.connector().connect(&any_key()).await.expect("the server accepts connections")
    }

    async fn connect_model(&self, model: &MemoryServer) -> Arc<dyn Connection> {
        model.client().connector().connect(&any_key()).await.expect("the model accepts connections")
    }
}

fn any_key() -> StreamKey {
    StreamKey::new("any").expect("the name is not empty")
}

fn request(args: &[Vec<u8>]) -> Request {
    let name = COMMANDS.into_iter().find(|name| name.as_bytes() == args[0]).expect("the command is in the list");
    args[1..].iter().fold(Request::new(name), Request::arg)
}

#[test]
fn the_model_answers_as_real_servers_do() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    for binary in matrix::all() {
        let pair = runtime.block_on(Pair::start(&binary));
        let fresh = |name| pair.real.fresh_key(name);
        let (dead, set, letter, marker) = (fresh("dead"), fresh("dlq"), fresh("dlq:1"), fresh("marker"));
        let names = Names { keys: ["s", "t"].map(fresh), dead, set, letter, marker };
        let bounds = bounds(&pair.real);
        let config =
            Config { cases: Config::default().cases.max(CASES), failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut commands = 0;
        let counter = std::cell::Cell::new(0);
        let result = TestRunner::new_with_rng(config, rng).run(&operations(bounds), |operations| {
            let script = compile(&operations, &names);
            counter.set(counter.get() + script.len());
            runtime.block_on(check(&pair, &names, &script))
        });
        commands += counter.get();
        println!("{} ({:?}): {commands} commands compared", pair.real.name(), pair.profile);
        if let Err(error) = result {
            panic!("{}: {error}", pair.real.name());
        }
        assert!(commands >= 20_000, "{}: only {commands} commands compared", pair.real.name());
    }
}

fn bounds(server: &RealServer) -> Bounds {
    let (flavor, version) = (server.flavor(), server.version());
    Bounds {
        max_read: if flavor == Flavor::Redis && version >= ServerVersion::new(8, 2, 0) { 0 } else { 8 },
        plus: flavor == Flavor::Redis || version >= ServerVersion::new(9, 0, 0),
    }
}

fn load_scripts() -> impl Iterator<Item = Request> {
    Script::all().iter().map(|script| Request::new("SCRIPT LOAD").arg(script.source()))
}

/// Sends the commands to both and compares what comes back.
async fn check(pair: &Pair, names: &Names, script: &[Vec<Vec<u8>>]) -> Result<(), TestCaseError> {
    let model = MemoryServer::with_profile(pair.profile);
    let requests: Vec<Request> = script.iter().map(|args| request(args)).collect();
    let real = pair.connect_real().await;
    let setup: Vec<Request> = names.all().map(|key| Request::new("DEL").arg(key)).chain(load_scripts()).collect();
    real.send(&setup).await.expect("keys can be deleted");
    let expected = real.send(&requests).await.expect("the real server answers");
    let connection = pair.connect_model(&model).await;
    connection.send(&setup).await.expect("the model answers");
    let actual = connection.send(&requests).await.expect("the model answers");
    for (index, (expected, actual)) in expected.into_iter().zip(actual).enumerate() {
        let args = &script[index];
        let (expected, actual) = (normalise(args, expected), normalise(args, actual));
        if expected != actual {
            let history: Vec<String> = script[..=index].iter().map(|args| compare::show(args)).collect();
            let history = history.join("\n  ");
            return Err(TestCaseError::fail(format!("\n  {history}\nreal:  {expected}\nmodel: {actual}")));
        }
    }
    Ok(())
}
