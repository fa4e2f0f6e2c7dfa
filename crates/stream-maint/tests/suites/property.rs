//! Random histories of a stream, and a trimmer among them: no entry that a group has not finished is ever gone, and what
//! all have finished is gone after the next trim.
//!
//! What a group has not finished is counted here, from what the test itself did, and not read back from the server. Most
//! histories are played on the in-memory server, some on each real one. To show that the property can fail, three wrong
//! floors are put in the trimmer's place: each must break it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use stream_core::{EntryId, StreamState, TrimPolicy};
use stream_maint::Trimmer;
use stream_redis::{Client, Value};
use stream_testkit::memory::Profile;
use stream_testkit::{Cli, MemoryServer, RealServer, ServerOptions, matrix};

const STEPS: usize = 60;
const GROUPS: [&str; 5] = ["a", "b", "c", "d", "e"];
const CONSUMERS: [&str; 3] = ["x", "y", "z"];

/// Where a history's trims get their floor from.
#[derive(Clone, Copy)]
enum Floor {
    /// The trimmer itself.
    Ours,
    /// A function of what the server says, in the trimmer's place.
    Mutant(fn(&StreamState) -> Option<EntryId>),
}

/// What the test knows of a group.
#[derive(Default)]
struct Known {
    position: EntryId,
    unfinished: BTreeSet<EntryId>,
}

/// Where a history is played.
enum Stage {
    Memory(MemoryServer),
    Real(Box<Cli>),
}

struct History {
    server: Stage,
    trimmer: Trimmer,
    random: fastrand::Rng,
    /// Entries that were added and neither deleted nor trimmed with everybody's consent.
    entries: BTreeSet<EntryId>,
    groups: [Option<Known>; GROUPS.len()],
    /// Groups that are gone and that the trimmer may have seen: it keeps for a while what they needed.
    gone: [bool; GROUPS.len()],
    client: Client,
    last: EntryId,
}

fn trimmer(client: &Client) -> Trimmer {
    Trimmer::builder(client).stream("s").build().unwrap()
}

impl History {
    /// On the in-memory server, in one of its profiles.
    fn in_memory(seed: u64) -> Self {
        let profiles = [Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus];
        let server = MemoryServer::with_profile(profiles[seed as usize % profiles.len()]);
        Self::new(seed, &server.client(), Stage::Memory(server))
    }

    fn new(seed: u64, client: &Client, server: Stage) -> Self {
        Self {
            server,
            trimmer: trimmer(client),
            random: fastrand::Rng::with_seed(seed),
            entries: BTreeSet::new(),
            groups: Default::default(),
            gone: Default::default(),
            client: client.clone(),
            last: EntryId::ZERO,
        }
    }

    async fn command(&mut self, words: &str) -> Value {
        let words: Vec<&str> = words.split(' ').collect();
        match &mut self.server {
            Stage::Memory(server) => server.command(&words).unwrap_or_else(|error| panic!("{words:?}: {error}")),
            Stage::Real(server) => server.command(&words).await.unwrap_or_else(|error| panic!("{words:?}: {error}")),
        }
    }

    /// The ids in the first column of a reply.
    async fn ids(&mut self, words: &str) -> Vec<EntryId> {
        let Value::Array(rows) = self.command(words).await else { panic!("{words}: no rows") };
        let first = |row: &Value| {
            let Value::Array(row) = row else { panic!("{words}: {row:?}") };
            EntryId::parse(row[0].as_bytes().unwrap()).unwrap()
        };
        rows.iter().map(first).collect()
    }

    fn some_entry(&mut self) -> Option<EntryId> {
        let at = self.random.usize(..self.entries.len().max(1));
        self.entries.iter().nth(at).copied()
    }

    async fn step(&mut self, floor: Floor) -> Result<(), String> {
        let at = self.random.usize(..GROUPS.len());
        match self.random.u8(..20) {
            0..6 => self.add().await,
            6 => self.create(at).await,
            7..11 => self.read(at).await,
            11..15 => self.acknowledge(at).await,
            15 => self.claim(at).await,
            16 => self.delete().await,
            17 if self.random.u8(..8) == 0 => self.destroy(at).await,
            18 | 19 => return self.trim(floor).await,
            _ => {}
        }
        Ok(())
    }

    async fn add(&mut self) {
        // Sequence numbers of one and of two digits in the same millisecond, and milliseconds likewise.
        let ms = self.last.ms() + u64::from(self.random.u8(..4) == 0);
        let seq = if ms == self.last.ms() { self.last.seq() + self.random.u64(1..6) } else { self.random.u64(..12) };
        self.last = EntryId::new(ms.max(8), seq);
        self.command(&format!("XADD s {} f v", self.last)).await;
        self.entries.insert(self.last);
    }

    async fn create(&mut self, at: usize) {
        let middle = self.some_entry();
        if self.groups[at].is_some() || self.last == EntryId::ZERO {
            return;
        }
        let position = match self.random.u8(..3) {
            0 => EntryId::ZERO,
            1 => self.last,
            _ => middle.unwrap_or(EntryId::ZERO),
        };
        self.command(&format!("XGROUP CREATE s {} {position}", GROUPS[at])).await;
        self.groups[at] = Some(Known { position, unfinished: BTreeSet::new() });
        self.gone[at] = false;
    }

    async fn read(&mut self, at: usize) {
        let (count, consumer) = (self.random.usize(1..5), self.random.choice(CONSUMERS).unwrap_or("x"));
        let Some(known) = &mut self.groups[at] else { return };
        let given: Vec<_> = self.entries.iter().copied().filter(|id| *id > known.position).take(count).collect();
        known.position = given.last().copied().unwrap_or(known.position);
        known.unfinished.extend(&given);
        self.command(&format!("XREADGROUP GROUP {} {consumer} COUNT {count} STREAMS s >", GROUPS[at])).await;
    }

    async fn acknowledge(&mut self, at: usize) {
        let Some(known) = &mut self.groups[at] else { return };
        let done: Vec<_> = known.unfinished.iter().copied().filter(|_| self.random.u8(..3) > 0).collect();
        known.unfinished.retain(|id| !done.contains(id));
        for id in done {
            self.command(&format!("XACK s {} {id}", GROUPS[at])).await;
        }
    }

    /// A consumer is dead, and another one takes over what it held.
    async fn claim(&mut self, at: usize) {
        let consumer = self.random.choice(CONSUMERS).unwrap_or("x");
        if self.groups[at].is_some() {
            self.command(&format!("XAUTOCLAIM s {} {consumer} 0 0 COUNT 3", GROUPS[at])).await;
        }
    }

    async fn delete(&mut self) {
        if let Some(id) = self.some_entry() {
            self.command(&format!("XDEL s {id}")).await;
            self.entries.remove(&id);
        }
    }

    async fn destroy(&mut self, at: usize) {
        if self.groups[at].take().is_some() {
            self.command(&format!("XGROUP DESTROY s {}", GROUPS[at])).await;
            self.gone[at] = true;
            if self.random.bool() {
                // Another process, which has never seen it.
                (self.trimmer, self.gone) = (trimmer(&self.client), Default::default());
            }
        }
    }

    async fn trim(&mut self, floor: Floor) -> Result<(), String> {
        match floor {
            Floor::Ours => drop(self.trimmer.run().await.unwrap()),
            Floor::Mutant(floor) => {
                let state = self.trimmer.state().await.unwrap();
                if let Some(floor) = state.as_ref().and_then(floor) {
                    self.command(&format!("XTRIM s MINID = {floor}")).await;
                }
            }
        }
        let left: BTreeSet<_> = self.ids("XRANGE s - +").await.into_iter().collect();
        for (name, known) in GROUPS.iter().zip(&self.groups) {
            let Some(known) = known else { continue };
            let needed = |id: &&EntryId| **id > known.position || known.unfinished.contains(*id);
            if let Some(lost) = self.entries.iter().filter(needed).find(|id| !left.contains(id)) {
                return Err(format!("{name} has lost {lost}"));
            }
        }
        self.entries = left;
        if self.gone.contains(&true) { Ok(()) } else { self.nothing_finished_is_left().await }
    }

    /// The first entry that is left is one that somebody needs, or the last one; one that was deleted while it was pending
    /// still holds its place.
    async fn nothing_finished_is_left(&mut self) -> Result<(), String> {
        let Some(&first) = self.entries.first() else { return Ok(()) };
        let mut floor: Option<EntryId> = None;
        for (at, name) in GROUPS.iter().enumerate() {
            let Some(position) = self.groups[at].as_ref().map(|known| known.position) else { continue };
            let pending = self.ids(&format!("XPENDING s {name} - + 1")).await;
            let need = pending.into_iter().chain(position.successor()).min().unwrap_or(EntryId::ZERO);
            floor = Some(floor.map_or(need, |floor| floor.min(need)));
        }
        match floor {
            Some(floor) if floor.min(self.last) > first => Err(format!("{first} is left and nobody needs it")),
            _ => Ok(()),
        }
    }
}

async fn play(mut history: History, seed: u64, floor: Floor) -> Result<(), String> {
    for step in 0..STEPS {
        history.step(floor).await.map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    history.trim(floor).await.map_err(|why| format!("seed {seed}, at the end: {why}"))
}

const RUNS: u64 = 10_000;
/// So many of them on each real server.
const REAL: u64 = 50;

#[test]
fn no_history_loses_an_entry_or_keeps_a_finished_one() {
    let next = AtomicU64::new(matrix::all().len() as u64 * REAL);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    while let seed @ ..RUNS = next.fetch_add(1, Ordering::Relaxed) {
                        let history = History::in_memory(seed);
                        play(history, seed, Floor::Ours).await.unwrap_or_else(|why| panic!("{why}"));
                    }
                });
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn no_history_on_a_real_server_loses_an_entry_or_keeps_a_finished_one() {
    let mut tasks = tokio::task::JoinSet::new();
    for (number, binary) in matrix::all().into_iter().enumerate() {
        tasks.spawn(async move {
            let server = RealServer::start(&binary, &ServerOptions::default()).await.unwrap();
            if server.is_external() {
                eprintln!("SKIPPED on the server of REDIS_URL: it may hold other people's keys");
                return;
            }
            let client = Client::open(&server.url()).unwrap();
            for seed in number as u64 * REAL..(number as u64 + 1) * REAL {
                let mut cli = server.connect().await.unwrap();
                cli.command(&["FLUSHALL"]).await.unwrap();
                let history = History::new(seed, &client, Stage::Real(Box::new(cli)));
                play(history, seed, Floor::Ours).await.unwrap_or_else(|why| panic!("{}: {why}", server.name()));
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// The wrong floor loses an entry in one of the first histories.
async fn check_caught(mutant: fn(&StreamState) -> Option<EntryId>) {
    for seed in 0..1000 {
        if let Err(why) = play(History::in_memory(seed), seed, Floor::Mutant(mutant)).await {
            assert!(why.contains("has lost"), "{why}");
            return;
        }
    }
    panic!("a thousand histories did not notice the wrong floor");
}

#[tokio::test]
async fn a_floor_that_ignores_pending_lists_is_caught() {
    check_caught(|state| {
        let mut state = state.clone();
        for group in &mut state.groups {
            (group.pending, group.oldest_pending) = (0, None);
        }
        TrimPolicy::new().plan(&state).min_id
    })
    .await;
}

#[tokio::test]
async fn a_floor_compared_as_text_is_caught() {
    check_caught(|state| {
        let needs = state.groups.iter().map(|group| stream_core::Need::of(group, state.last_generated).floor());
        needs.map(|id| id.min(state.last_generated)).min_by_key(EntryId::to_string)
    })
    .await;
}

#[tokio::test]
async fn a_floor_that_leaves_new_groups_out_is_caught() {
    check_caught(|state| {
        let mut state = state.clone();
        state.groups.retain(|group| group.last_delivered != EntryId::ZERO);
        TrimPolicy::new().plan(&state).min_id
    })
    .await;
}
