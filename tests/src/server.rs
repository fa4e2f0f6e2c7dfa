//! Servers for the suites, and what they are asked directly.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use stream_redis::Value;
use stream_testkit::{RealServer, ServerOptions, SpawnError, eventually, matrix};
use streamkeeper::{Client, Entry, EntryId};
use tokio::task::JoinSet;

/// Runs `body` on every server of the matrix at the same time.
///
/// # Panics
/// When it panics on any of them; all are named.
pub async fn on_each<F, Fut>(body: F)
where
    F: Fn(RealServer) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    run(None, body).await;
}

/// The same on servers of the test's own, started with `options`: for tests that flush, kill or count commands. A server
/// that runs already (`REDIS_URL`) is left alone, and that is said.
///
/// # Panics
/// When `body` panics on any server; all are named.
pub async fn on_each_own<F, Fut>(options: ServerOptions, body: F)
where
    F: Fn(RealServer) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    run(Some(options), body).await;
}

async fn run<F, Fut>(options: Option<ServerOptions>, body: F)
where
    F: Fn(RealServer) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut names = Vec::new();
    for binary in matrix::all() {
        let server = match RealServer::start(&binary, &options.clone().unwrap_or_default()).await {
            Ok(server) => server,
            Err(SpawnError::External { wanted }) => {
                eprintln!("not run on the server of REDIS_URL: it would have to {wanted}");
                continue;
            }
            Err(error) => panic!("{}: {error}", binary.name()),
        };
        if options.is_some() && server.is_external() {
            eprintln!("not run on the server of REDIS_URL: it is not ours to disturb");
            continue;
        }
        let name = server.name().to_owned();
        names.push((tasks.spawn(body(server)).id(), name));
    }
    let mut failed = Vec::new();
    while let Some(joined) = tasks.join_next_with_id().await {
        if let Err(error) = joined {
            let name = names.iter().find(|(id, _)| *id == error.id()).map_or("?", |(_, name)| name);
            let text = error.try_into_panic().ok().map(|panic| match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("a panic without text").to_owned(),
            });
            failed.push(format!("{name}: {}", text.unwrap_or_else(|| "aborted".to_owned())));
        }
    }
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
}

/// What the suites ask a server. Everything panics when the server does not answer as it should.
pub trait Ask {
    /// A client of the library.
    fn client(&self) -> Client;
    /// One command, its arguments separated by spaces.
    fn ask(&self, command: &str) -> impl Future<Output = Value> + Send;
    /// Adds `count` entries with their number as the field `data`; returns their ids.
    fn publish(&self, key: &str, count: usize) -> impl Future<Output = Vec<EntryId>> + Send;
    /// Entries of a stream; 0 where there is none.
    fn len(&self, key: &str) -> impl Future<Output = i64> + Send;
    /// How many entries are pending in a group; -1 where there is no such group.
    fn pending(&self, key: &str, group: &str) -> impl Future<Output = i64> + Send;
    /// What is pending: id, consumer, deliveries.
    fn pending_entries(&self, key: &str, group: &str) -> impl Future<Output = Vec<(EntryId, String, i64)>> + Send;
    /// How many consumers of a group are listed.
    fn consumers(&self, key: &str, group: &str) -> impl Future<Output = usize> + Send;
    /// The entries of a stream: id, then names and values.
    fn entries(&self, key: &str) -> impl Future<Output = Vec<Entry>> + Send;
    /// Calls of each command since the server's start or the last `CONFIG RESETSTAT`.
    fn calls(&self) -> impl Future<Output = BTreeMap<String, u64>> + Send;
    /// Waits until something holds.
    fn until<Fut: Future<Output = bool> + Send>(
        &self,
        what: &str,
        probe: impl FnMut() -> Fut + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// How long the suites wait for what has to happen soon.
pub const SOON: Duration = Duration::from_secs(20);

impl Ask for RealServer {
    fn client(&self) -> Client {
        Client::open(&self.url()).unwrap()
    }

    async fn ask(&self, command: &str) -> Value {
        let words: Vec<&str> = command.split(' ').collect();
        self.cli(&words).await.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    async fn publish(&self, key: &str, count: usize) -> Vec<EntryId> {
        let mut cli = self.connect().await.unwrap();
        let mut ids = Vec::with_capacity(count);
        for n in 0..count {
            let number = n.to_string();
            let id = cli.command(&["XADD", key, "*", "data", &number]).await.unwrap();
            ids.push(EntryId::parse(id.as_bytes().unwrap()).unwrap());
        }
        ids
    }

    async fn len(&self, key: &str) -> i64 {
        self.cli(&["XLEN", key]).await.unwrap().as_int().unwrap()
    }

    async fn pending(&self, key: &str, group: &str) -> i64 {
        match self.cli(&["XPENDING", key, group]).await {
            Ok(Value::Array(items)) => items[0].as_int().unwrap(),
            Err(error) if error.reply().is_some_and(|reply| reply.code == "NOGROUP") => -1,
            other => panic!("XPENDING answered {other:?}"),
        }
    }

    async fn pending_entries(&self, key: &str, group: &str) -> Vec<(EntryId, String, i64)> {
        let rows = self.cli(&["XPENDING", key, group, "-", "+", "10000"]).await.unwrap();
        let Value::Array(rows) = rows else { panic!("XPENDING answered {rows:?}") };
        rows.iter()
            .map(|row| match row {
                Value::Array(row) => (
                    EntryId::parse(row[0].as_bytes().unwrap()).unwrap(),
                    String::from_utf8_lossy(row[1].as_bytes().unwrap()).into_owned(),
                    row[3].as_int().unwrap(),
                ),
                other => panic!("XPENDING answered {other:?}"),
            })
            .collect()
    }

    async fn consumers(&self, key: &str, group: &str) -> usize {
        match self.cli(&["XINFO", "CONSUMERS", key, group]).await.unwrap() {
            Value::Array(items) => items.len(),
            other => panic!("XINFO CONSUMERS answered {other:?}"),
        }
    }

    async fn entries(&self, key: &str) -> Vec<Entry> {
        let rows = self.cli(&["XRANGE", key, "-", "+"]).await.unwrap();
        let Value::Array(rows) = rows else { panic!("XRANGE answered {rows:?}") };
        rows.iter().map(entry).collect()
    }

    async fn calls(&self) -> BTreeMap<String, u64> {
        let info = self.cli(&["INFO", "commandstats"]).await.unwrap();
        let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
        let line = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        text.lines().filter_map(line).collect()
    }

    async fn until<Fut: Future<Output = bool> + Send>(&self, what: &str, mut probe: impl FnMut() -> Fut + Send) {
        eventually(SOON, format!("{what} on {}", self.name()), || {
            let probe = probe();
            async move { probe.await.then_some(()) }
        })
        .await;
    }
}

fn entry(row: &Value) -> Entry {
    let Value::Array(row) = row else { panic!("an entry is {row:?}") };
    let [id, Value::Array(fields)] = row.as_slice() else { panic!("an entry is {row:?}") };
    let (pairs, _) = fields.as_chunks::<2>();
    let pairs = pairs.iter().map(|[name, value]| (name.as_bytes().unwrap(), value.as_bytes().unwrap()));
    Entry::new(EntryId::parse(id.as_bytes().unwrap()).unwrap(), pairs).unwrap()
}
