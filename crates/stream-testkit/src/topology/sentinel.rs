//! [`SentinelSetup`]: a master, a replica and three sentinels.

use std::time::Duration;

use stream_redis::Value;

use super::text;
use crate::{Network, RealServer, ServerBinary, ServerOptions, eventually};

/// What the sentinels call the master.
const MASTER: &str = "main";
/// The password of the sentinels, where the servers have one.
const WATCHWORD: &str = "watchword";
const LIMIT: Duration = Duration::from_secs(120);

/// A master, a replica, and three sentinels that watch them and hold the master to be down after three seconds; sooner,
/// and a busy machine looks like a dead master.
pub struct SentinelSetup {
    /// The master to begin with, and its replica.
    pub servers: [RealServer; 2],
    /// Three, of which two have to agree.
    pub sentinels: Vec<RealServer>,
    /// What the URL has before the sentinels and behind the master: passwords, if there are any.
    login: String,
    query: String,
}

impl std::fmt::Debug for SentinelSetup {
    /// Leaves out the passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { servers, sentinels, .. } = self;
        f.debug_struct("SentinelSetup").field("servers", servers).field("sentinels", sentinels).finish_non_exhaustive()
    }
}

impl SentinelSetup {
    /// Starts everything and waits until the sentinels know each other and the replica; containers in a network of their own.
    /// `options` are for the servers; with a password there, the sentinels have one of their own.
    ///
    /// # Panics
    /// When it cannot be started, or is not ready within two minutes.
    pub async fn start(binary: &ServerBinary, options: &ServerOptions) -> Self {
        let network = Network::of(binary).await.unwrap();
        let network = network.as_ref();
        let mut options = options.clone();
        if let Some(password) = options.password().map(str::to_owned) {
            options = options.args(["--masterauth", &password]);
        }
        let options = &options;
        let master = RealServer::start_in(binary, options, network).await.unwrap();
        let (host, port) = (master.host(), master.port().to_string());
        let replica = options.clone().args(["--replicaof", host, &port]);
        let replica = RealServer::start_in(binary, &replica, network).await.unwrap();
        let mut config = format!(
            "sentinel monitor {MASTER} {host} {port} 2\nsentinel down-after-milliseconds {MASTER} 3000\n\
             sentinel failover-timeout {MASTER} 10000\n"
        );
        let mut watching = ServerOptions::new();
        let mut query = String::new();
        if let Some(password) = options.password() {
            config = format!("{config}sentinel auth-pass {MASTER} {password}\nsentinel sentinel-pass {WATCHWORD}\n");
            watching = watching.requirepass(WATCHWORD);
            query = format!("?sentinel_pass={WATCHWORD}");
        }
        let login = options.password().map_or_else(String::new, |password| format!(":{password}@"));
        let options = watching.config(config).arg("--sentinel");
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(RealServer::start_in(binary, &options, network).await.unwrap());
        }
        let this = Self { servers: [master, replica], sentinels, login, query };
        this.until_watched().await;
        this
    }

    /// The URL for the library.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(RealServer::address).collect();
        format!("redis+sentinel://{}{}/{MASTER}{}", self.login, hosts.join(","), self.query)
    }

    /// Which of the servers the sentinels hold to be the master; the first that answers is believed.
    ///
    /// # Panics
    /// When none answers, or names a server that is not one of these.
    pub async fn master(&self) -> usize {
        for sentinel in &self.sentinels {
            if let Ok(Value::Array(parts)) = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]).await {
                let named = format!("{}:{}", text(&parts[0]), text(&parts[1]));
                let known = self.servers.iter().position(|server| server.address() == named);
                return known.unwrap_or_else(|| panic!("the sentinels name {named}"));
            }
        }
        panic!("no sentinel answers")
    }

    /// Waits until all sentinels see a master that is up, a replica that follows it, and each other.
    ///
    /// # Panics
    /// When that takes longer than two minutes.
    pub async fn until_watched(&self) {
        for sentinel in &self.sentinels {
            eventually(LIMIT, "a sentinel to know the others", || async {
                let master = sentinel.cli(&["SENTINEL", "MASTER", MASTER]).await.ok()?;
                let replicas = sentinel.cli(&["SENTINEL", "REPLICAS", MASTER]).await.ok()?;
                let Value::Array(replicas) = replicas else { return None };
                let follows = replicas.iter().any(|replica| {
                    field(replica, "master-link-status").as_deref() == Some("ok")
                        && field(replica, "flags").as_deref() == Some("slave")
                });
                let others = field(&master, "num-other-sentinels")?;
                (follows && others == "2" && field(&master, "flags")? == "master").then_some(())
            })
            .await;
        }
    }

    /// Lets the sentinels fail over though the master lives, and waits until they agree on the other one.
    ///
    /// # Panics
    /// When that takes longer than two minutes.
    pub async fn fail_over(&self) -> usize {
        let before = self.master().await;
        eventually(LIMIT, "a failover to begin", || async {
            self.sentinels[0].cli(&["SENTINEL", "FAILOVER", MASTER]).await.ok()
        })
        .await;
        self.until_other_than(before).await
    }

    /// Waits until the sentinels name another master than `before`.
    ///
    /// # Panics
    /// When that takes longer than two minutes.
    pub async fn until_other_than(&self, before: usize) -> usize {
        eventually(LIMIT, "another master", || async {
            let now = self.master().await;
            (now != before).then_some(now)
        })
        .await
    }
}

/// One field of a flat list of names and values.
fn field(list: &Value, name: &str) -> Option<String> {
    let Value::Array(items) = list else { return None };
    items.chunks_exact(2).find(|pair| pair[0].as_bytes() == Some(name.as_bytes())).map(|pair| text(&pair[1]))
}
