//! One face for the in-memory server and the real ones, so that a test says what must hold on all of them.

use stream_core::{EntryId, GroupName, StreamKey};
use stream_redis::{Client, Value};
use stream_testkit::memory::Profile;
use stream_testkit::{MemoryServer, RealServer, ServerOptions, matrix};

/// A server to test on, empty at first.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) client: Client,
    kind: Kind,
}

enum Kind {
    Memory(MemoryServer),
    Real(Box<RealServer>),
}

impl Server {
    /// Carries out a command given as words and insists on success.
    pub(crate) async fn ok(&self, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').collect();
        self.args(&words).await
    }

    pub(crate) async fn args(&self, args: &[&str]) -> Value {
        match &self.kind {
            Kind::Memory(server) => {
                server.command(args).unwrap_or_else(|error| panic!("{}: {args:?}: {error}", self.name))
            }
            Kind::Real(server) => {
                server.cli(args).await.unwrap_or_else(|error| panic!("{}: {args:?}: {error}", self.name))
            }
        }
    }

    /// Adds the entries `1-0` to `number-0`.
    pub(crate) async fn fill(&self, stream: &str, number: u64) {
        for ms in 1..=number {
            self.ok(&format!("XADD {stream} {ms}-0 n {ms}")).await;
        }
    }

    /// A new group that has read `read` entries and acknowledged all but those in `open`.
    pub(crate) async fn group(&self, stream: &str, group: &str, read: u64, open: &[u64]) {
        self.ok(&format!("XGROUP CREATE {stream} {group} 0")).await;
        if read > 0 {
            self.ok(&format!("XREADGROUP GROUP {group} c COUNT {read} STREAMS {stream} >")).await;
            for ms in (1..=read).filter(|ms| !open.contains(ms)) {
                self.ok(&format!("XACK {stream} {group} {ms}-0")).await;
            }
        }
    }

    pub(crate) async fn len(&self, stream: &str) -> i64 {
        self.ok(&format!("XLEN {stream}")).await.as_int().unwrap()
    }
}

/// Runs `test` on the in-memory server in each of its profiles, and on each real server over both protocols.
pub(crate) async fn on_each(test: impl AsyncFn(&Server)) {
    for profile in [Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus] {
        let server = MemoryServer::with_profile(profile);
        let name = format!("memory {profile:?}");
        test(&Server { name, client: server.client(), kind: Kind::Memory(server) }).await;
    }
    for binary in matrix::all() {
        let options = ServerOptions::default();
        let server = RealServer::start(&binary, &options).await.unwrap_or_else(|error| panic!("{error}"));
        if server.is_external() {
            eprintln!("not run on the server of REDIS_URL: it may hold other people's keys");
            continue;
        }
        let kind = Kind::Real(Box::new(server));
        let mut server = Server { name: String::new(), client: MemoryServer::new().client(), kind };
        for protocol in ["resp3", "resp2"] {
            let Kind::Real(real) = &server.kind else { unreachable!() };
            server.client = Client::open(&format!("{}?protocol={protocol}", real.url())).unwrap();
            server.name = format!("{} over {protocol}", real.name());
            server.ok("FLUSHALL").await;
            test(&server).await;
        }
    }
}

pub(crate) fn id(ms: u64) -> EntryId {
    EntryId::new(ms, 0)
}

pub(crate) fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

pub(crate) fn key(name: &str) -> StreamKey {
    StreamKey::new(name).unwrap()
}
