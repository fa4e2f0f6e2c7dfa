//! The Docker engine of this machine: whether it answers, whose its containers are, and what runs that died have left in it.
//!
//! What must stay true: whatever a test makes in the engine says by a label which process made it. Values remove what is
//! theirs when they are dropped; what a process could not remove, because it was killed, the next one does, and it touches
//! nothing whose process lives, or lived on another machine or in another container with the same engine.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use testcontainers_modules::testcontainers::bollard::Docker;
use testcontainers_modules::testcontainers::bollard::query_parameters::{
    ListContainersOptionsBuilder, ListNetworksOptionsBuilder, RemoveContainerOptionsBuilder,
};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// An engine on this machine answers within milliseconds.
pub(crate) const ANSWER: Duration = Duration::from_secs(3);

/// The label that says whose a container or a network is.
const OWNER: &str = "streamkeeper.testkit.owner";

/// The engine, if one answers soon.
pub(crate) async fn engine() -> Result<Docker, String> {
    let engine = Docker::connect_with_local_defaults().map_err(|error| format!("no engine answers: {error}"))?;
    match timeout(ANSWER, engine.ping()).await {
        Ok(Ok(_)) => Ok(engine),
        Ok(Err(error)) => Err(format!("no engine answers: {error}")),
        Err(_) => Err(format!("no engine answers within {ANSWER:?}")),
    }
}

/// Runs a future to its end from a place that may or may not be inside of a runtime.
pub(crate) fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime of one thread needs no more than this process has").block_on(future)
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The label of what this process makes.
pub(crate) fn label() -> (String, String) {
    (OWNER.to_owned(), Owner::this().to_string())
}

/// Removes containers and networks of test processes that died without doing so, and says how many there were.
///
/// # Errors
/// Why the engine could not be asked.
pub fn remove_leftovers() -> Result<usize, String> {
    block_on(async { sweep(&engine().await?).await.map_err(|error| format!("the engine does not list: {error}")) })
}

/// The same before the first container of this process; that it fails is no reason not to start one.
pub(crate) async fn sweep_once(engine: &Docker) {
    static SWEPT: OnceCell<()> = OnceCell::const_new();
    SWEPT.get_or_init(|| async { drop(sweep(engine).await) }).await;
}

async fn sweep(engine: &Docker) -> Result<usize, testcontainers_modules::testcontainers::bollard::errors::Error> {
    let this = Owner::this();
    let is_left = |labels: &Option<HashMap<String, String>>| {
        let owner = labels.as_ref().and_then(|labels| Owner::parse(labels.get(OWNER)?));
        owner.is_some_and(|owner| owner.is_gone(&this))
    };
    let filter = HashMap::from([("label", vec![OWNER])]);
    let mut removed = 0;
    let listed = ListContainersOptionsBuilder::default().all(true).filters(&filter).build();
    for container in engine.list_containers(Some(listed)).await? {
        if let (true, Some(id)) = (is_left(&container.labels), container.id) {
            let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
            // Another process may be doing the same.
            removed += usize::from(engine.remove_container(&id, Some(options)).await.is_ok());
        }
    }
    let listed = ListNetworksOptionsBuilder::default().filters(&filter).build();
    for network in engine.list_networks(Some(listed)).await? {
        if let (true, Some(id)) = (is_left(&network.labels), network.id) {
            removed += usize::from(engine.remove_network(&id).await.is_ok());
        }
    }
    Ok(removed)
}

/// A process: its machine's name, since ids of processes mean nothing elsewhere, its id, and when it was started, since
/// ids are used again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    host: String,
    process: i32,
    /// In ticks after the machine's start; empty where that cannot be had.
    started: String,
}

impl Owner {
    fn this() -> Self {
        let process = std::process::id().cast_signed();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { host: host.trim().to_owned(), process, started: started(process).unwrap_or_default() }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, ':');
        let (started, process, host) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { host: host.to_owned(), process: process.parse().ok()?, started: started.to_owned() })
    }

    /// Whether it has ended, as far as a process like `this` can tell.
    fn is_gone(&self, this: &Self) -> bool {
        let alive =
            Pid::from_raw(self.process).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
        self.host == this.host && (!alive || started(self.process).is_some_and(|started| started != self.started))
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.host, self.process, self.started)
    }
}

fn started(process: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name is in parentheses and may hold anything; the time is the 20th word behind it.
    Some(stat.rsplit_once(") ")?.1.split_whitespace().nth(19)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_only_when_it_has_ended_on_this_machine() {
        let this = Owner::this();
        assert_eq!(Owner::parse(&this.to_string()).as_ref(), Some(&this));
        assert!(!this.is_gone(&this));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().cast_signed();
        let ended = Owner { process, ..this.clone() };
        child.wait().unwrap();
        assert!(ended.is_gone(&this));
        assert!(!Owner { host: "elsewhere".to_owned(), ..ended }.is_gone(&this), "ids mean nothing elsewhere");
        if !this.started.is_empty() {
            assert!(Owner { started: "1".to_owned(), ..this.clone() }.is_gone(&this), "the id is another's now");
        }
        assert_eq!(Owner::parse("host:1"), None);
    }
}
