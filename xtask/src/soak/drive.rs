//! [`Drive`]: one soak on one topology, from the start of the servers to the verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stream_testkit::history::{Event, Reason, What};
use stream_testkit::{Proxy, RealServer, ServerBinary};
use streamkeeper::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::faults::{Disturber, Tally};
use super::log::Log;
use super::memory::Memory;
use super::publish::Publishers;
use super::servers::{Servers, Topology};
use super::table::Outcome;
use super::unrest::{Unrest, VETERAN, WORKERS};
use super::watch::Watcher;
use super::{NAMES, expectations};
use crate::Failure;
use crate::asked::{Asked, State};
use crate::fleet::Fleet;
use crate::fleet::journal::now;

/// Between two looks at the workers.
const LOOK: Duration = Duration::from_millis(20);
/// What was published has to be done with within this time after the last fault, or it will never be.
const DRAINED_WITHIN: Duration = Duration::from_secs(90);
/// A line on how far it is, now and then.
const TELL: Duration = Duration::from_secs(15);

/// One soak.
#[derive(Debug)]
pub(crate) struct Drive {
    pub(crate) topology: Topology,
    pub(crate) server: ServerBinary,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    pub(crate) rate: u64,
    pub(crate) keep: bool,
}

impl Drive {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // Not deleted by itself: a panic, too, leaves something to look at.
        let folder = tempfile::Builder::new().prefix("streamkeeper-soak-").tempdir()?.keep();
        println!("seed {}, {}, journals in {}", self.seed, self.topology.name(), folder.display());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let result = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            // What is dropped here ends the workers and the servers.
            tokio::select! {
                result = self.play(&folder) => result,
                _ = terminate.recv() => Err(Failure::from("stopped by SIGTERM; the workers and the servers were ended")),
                _ = interrupt.recv() => Err(Failure::from("stopped by Ctrl-C; the workers and the servers were ended")),
            }
        });
        let holds = result.as_ref().is_ok_and(Outcome::holds);
        if let Ok(outcome) = &result {
            print!("{outcome}");
        }
        if holds && !self.keep {
            std::fs::remove_dir_all(&folder)?;
            return Ok(());
        }
        println!("seed {}: the journals are kept in {}", self.seed, folder.display());
        match result {
            Ok(_) if holds => Ok(()),
            Ok(_) => Err(format!("the soak on {} with seed {} failed", self.topology.name(), self.seed).into()),
            Err(error) => Err(error),
        }
    }

    async fn play(&self, folder: &Path) -> Result<Outcome, Failure> {
        let mut servers = Servers::start(self.topology, &self.server).await?;
        let result = self.with(&mut servers, folder).await;
        if self.keep || !result.as_ref().is_ok_and(Outcome::holds) {
            servers.keep_logs(folder);
        }
        result
    }

    async fn with(&self, servers: &mut Servers, folder: &Path) -> Result<Outcome, Failure> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let (log, events) = Log::new();
        let tally = Tally::default();
        let client = Client::open(&servers.url())?;
        let replicated = self.topology != Topology::Standalone;
        let cured = folder.join("cured");
        std::fs::create_dir(&cured)?;
        let addresses: Vec<String> = servers.data().iter().map(RealServer::address).collect();
        let version = servers.version();

        let publishers = Publishers::new(client.clone(), self.seed, self.rate / 2, replicated, log.clone());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(std::sync::Arc::clone(&publishers).run());
        let second = std::sync::Arc::clone(&publishers);
        tasks.spawn(async move {
            if replicated {
                second.run().await;
            } else if let Err(error) = second.clone().run_library().await {
                second.log.write(What::Broken { why: format!("the publisher failed: {error}") });
            }
        });
        let (state, seen) = watch::channel(None);
        let watcher = Watcher::new(addresses.clone(), client, log.clone(), cured.clone(), replicated);
        let (end_watch, over) = watch::channel(false);
        let watcher = tokio::spawn(watcher.run(state, over));

        let mut scene = Scene {
            fleet: Fleet::new(folder),
            unrest: Unrest::new(random.fork(), log.clone(), tally.clone()),
            events,
            seen,
            url: servers.url(),
            proxied: (!replicated).then(|| addresses[0].clone()),
            cured,
            told: Instant::now(),
        };
        let scene = &mut scene;
        let result = async {
            let began = now();
            let end = Instant::now() + self.time;
            let longest_pause = if replicated { 600 } else { 6_000 };
            let disturber =
                Disturber { servers: &mut *servers, random, log: log.clone(), tally: tally.clone(), longest_pause };
            let mut disturber = Box::pin(disturber.run(end));
            let mut disturbed = None;
            // The workers go on while the servers are put in order after the last fault.
            while disturbed.is_none() {
                scene.tick(Instant::now() < end).await?;
                disturbed = tokio::time::timeout(LOOK, &mut disturber).await.ok();
            }
            disturbed.transpose()?;
            drop(disturber);
            publishers.stop();
            while let Some(ended) = tasks.join_next().await {
                ended?;
            }
            let published_until = now();
            scene.drain().await?;
            scene.stop().await?;
            end_watch.send_replace(true);
            watcher.await?.finish().await?;
            let place = servers.master().await;
            let found = Asked::new(addresses[place].clone(), NAMES).all().await?;
            scene.take_in();
            let fleet = &mut scene.fleet;
            note(fleet, &found);
            let verdict = fleet.history.check(&expectations());
            let memory = Memory::of(&fleet.history, began, published_until);
            let seconds = (published_until - began) as f64 / 1e6;
            Ok(Outcome {
                verdict,
                memory,
                tally: tally.all(),
                sent: publishers.numbered(),
                seconds,
                server: version,
                seed: self.seed,
                topology: self.topology.name(),
            })
        }
        .await;
        // Also where it came to no verdict.
        scene.take_in();
        std::fs::write(folder.join("history"), scene.fleet.history.to_string())?;
        result
    }
}

/// The letters and what is pending, as they are in the end.
fn note(fleet: &mut Fleet, found: &crate::asked::Found) {
    let at = now();
    for letter in &found.letters {
        let what = match Reason::of(&letter.reason) {
            Some(reason) => What::DeadLettered {
                entry: letter.entry.id(),
                number: letter.entry.get("number").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()),
                attempts: letter.attempts,
                reason,
                consumer: letter.consumer.to_string(),
            },
            None => What::Broken { why: format!("the letter of {} has an unknown reason", letter.entry.id()) },
        };
        fleet.add(Event { at, what });
    }
    for why in &found.bad_letters {
        fleet.add(Event { at, what: What::Broken { why: why.clone() } });
    }
    for entry in &found.pending {
        fleet.add(Event { at, what: What::Pending { entry: *entry } });
    }
}

/// The workers and all that is written down.
struct Scene {
    fleet: Fleet,
    unrest: Unrest,
    events: UnboundedReceiver<Event>,
    seen: watch::Receiver<Option<State>>,
    url: String,
    /// The server that workers reach through proxies.
    proxied: Option<String>,
    cured: PathBuf,
    told: Instant,
}

impl Scene {
    fn take_in(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.fleet.add(event);
        }
    }

    /// Lets time pass: looks at the workers, disturbs them if there is `unrest`, replaces those that are gone.
    async fn tick(&mut self, unrest: bool) -> Result<(), Failure> {
        self.take_in();
        for (worker, _) in self.fleet.look()? {
            self.unrest.proxies.remove(&worker);
        }
        self.unrest.tick(&mut self.fleet, unrest)?;
        while self.fleet.alive() < WORKERS {
            self.start().await?;
        }
        if self.told.elapsed() >= TELL {
            self.told = Instant::now();
            eprintln!("{:>12} us  handled {}; {:?}", now(), self.fleet.handled(), *self.seen.borrow());
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let number = self.fleet.next();
        let mut url = self.url.clone();
        if let Some(address) = &self.proxied {
            let proxy = Proxy::start(address.clone()).await?;
            url = proxy.url();
            self.unrest.proxies.insert(number, proxy);
        }
        let mut arguments: Vec<String> =
            ["soak-worker", "--url", &format!("{url}?connect_timeout=2s&response_timeout=2s"), "--cured"]
                .map(str::to_owned)
                .to_vec();
        arguments.push(self.cured.display().to_string());
        if number == VETERAN {
            arguments.push("--veteran".to_owned());
        }
        // Every second one reads and sends letters back as well.
        if number.is_multiple_of(2) {
            arguments.extend(["--reader", "--redrive"].map(str::to_owned));
        }
        self.fleet.start(&arguments)?;
        Ok(())
    }

    /// Waits until all is done with.
    async fn drain(&mut self) -> Result<(), Failure> {
        let since = Instant::now();
        let mut settled = 0;
        while settled < 3 || !self.unrest.is_over() {
            self.tick(false).await?;
            if self.seen.has_changed()? {
                let is_settled = self.seen.borrow_and_update().is_some_and(|state| state.is_settled());
                settled = if is_settled { settled + 1 } else { 0 };
            }
            if since.elapsed() > DRAINED_WITHIN {
                let (state, words) = (*self.seen.borrow(), self.fleet.last_words());
                return Err(
                    format!("not done after {DRAINED_WITHIN:?}: {state:?}; what was logged last:\n{words}").into()
                );
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        let working: Vec<u32> = self.fleet.working().collect();
        for worker in working {
            self.fleet.stop(worker)?;
        }
        while !self.fleet.is_empty() {
            self.fleet.look()?;
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// Faults by name.
pub(crate) type Faults = BTreeMap<&'static str, u64>;
