//! The servers of a soak, in each of the three topologies.

use std::path::Path;

use clap::ValueEnum;
use stream_testkit::{AppendFsync, RealCluster, RealServer, SentinelSetup, ServerBinary, ServerOptions};

use super::STREAM;
use crate::Failure;

/// How the servers stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topology {
    /// One server, behind a proxy for each worker.
    Standalone,
    /// A master, a replica and three sentinels.
    Sentinel,
    /// Three masters with a replica each.
    Cluster,
}

impl Topology {
    pub(crate) const ALL: [Self; 3] = [Self::Standalone, Self::Sentinel, Self::Cluster];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }
}

/// Running servers.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub(crate) enum Servers {
    Standalone(RealServer),
    Sentinel(SentinelSetup),
    Cluster(RealCluster),
}

impl Servers {
    /// Starts them, with an append-only file that is written before each reply: what a server has confirmed survives its
    /// death.
    pub(crate) async fn start(topology: Topology, binary: &ServerBinary) -> Result<Self, Failure> {
        let mut options = ServerOptions::new().aof(AppendFsync::Always);
        if binary.version().major >= 7 {
            options = options.args(["--enable-debug-command", "yes"]);
        }
        Ok(match topology {
            Topology::Standalone => Self::Standalone(RealServer::start(binary, &options).await?),
            Topology::Sentinel => Self::Sentinel(SentinelSetup::start(binary, &options).await),
            Topology::Cluster => Self::Cluster(RealCluster::start(binary, &options, 3, true).await),
        })
    }

    /// The URL for the library.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Standalone(server) => server.url(),
            Self::Sentinel(setup) => setup.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// Those that hold data.
    pub(crate) fn data(&self) -> &[RealServer] {
        match self {
            Self::Standalone(server) => std::slice::from_ref(server),
            Self::Sentinel(setup) => &setup.servers,
            Self::Cluster(cluster) => &cluster.nodes,
        }
    }

    pub(crate) fn data_mut(&mut self) -> &mut [RealServer] {
        match self {
            Self::Standalone(server) => std::slice::from_mut(server),
            Self::Sentinel(setup) => &mut setup.servers,
            Self::Cluster(cluster) => &mut cluster.nodes,
        }
    }

    /// Which of them serves the stream now.
    pub(crate) async fn master(&self) -> usize {
        match self {
            Self::Standalone(_) => 0,
            Self::Sentinel(setup) => setup.master().await,
            Self::Cluster(cluster) => cluster.owner(STREAM).await,
        }
    }

    /// Waits until another one than `before` serves the stream.
    pub(crate) async fn until_other_than(&self, before: usize) {
        match self {
            Self::Standalone(_) => {}
            Self::Sentinel(setup) => {
                setup.until_other_than(before).await;
            }
            Self::Cluster(cluster) => {
                stream_testkit::eventually(std::time::Duration::from_secs(60), "another owner", || async {
                    (cluster.owner(STREAM).await != before).then_some(())
                })
                .await;
            }
        }
    }

    /// Waits until all is as it was in the beginning: replicas in step, everybody in agreement.
    pub(crate) async fn until_whole(&self) {
        match self {
            Self::Standalone(_) => {}
            Self::Sentinel(setup) => setup.until_watched().await,
            Self::Cluster(cluster) => cluster.until_ok().await,
        }
    }

    pub(crate) fn version(&self) -> String {
        self.data().first().map(|server| format!("{} {}", server.name(), server.version())).unwrap_or_default()
    }

    /// Copies the logs of the servers to `folder`.
    pub(crate) fn keep_logs(&self, folder: &Path) {
        for server in self.data() {
            let path = folder.join(format!("server-{}.log", server.port()));
            if let Err(error) = std::fs::write(&path, server.log()) {
                eprintln!("cannot keep {}: {error}", path.display());
            }
        }
    }
}
