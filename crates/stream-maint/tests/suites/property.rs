//! Random histories of a stream, and a trimmer among them: no entry that a group has not finished is ever gone, and what
//! all have finished is gone after the next trim.
//!
//! What a group has not finished is counted here, from what the test itself did, and not read back from the server. To
//! show that the property can fail, three wrong floors are put in the trimmer's place: each must break it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use stream_core::{EntryId, StreamState, TrimPolicy};
use stream_maint::Trimmer;
use stream_redis::Value;
use stream_testkit::MemoryServer;
use stream_testkit::memory::Profile;

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

struct History {
    server: MemoryServer,
    trimmer: Trimmer,
    random: fastrand::Rng,
    /// Entries that were added and neither deleted nor trimmed with everybody's consent.
    entries: BTreeSet<EntryId>,
    groups: [Option<Known>; GROUPS.len()],
    last: EntryId,
}

impl History {
    fn new(seed: u64) -> Self {
        let profiles = [Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus];
        let server = MemoryServer::with_profile(profiles[seed as usize % profiles.len()]);
        let trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
        Self {
            server,
            trimmer,
            random: fastrand::Rng::with_seed(seed),
            entries: BTreeSet::new(),
            groups: Default::default(),
            last: EntryId::ZERO,
        }
    }

    fn command(&self, words: &str) -> Value {
        self.server.command(words.split(' ')).unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    fn some_entry(&mut self) -> Option<EntryId> {
        let at = self.random.usize(..self.entries.len().max(1));
        self.entries.iter().nth(at).copied()
    }

    async fn step(&mut self, floor: Floor) -> Result<(), String> {
        let at = self.random.usize(..GROUPS.len());
        match self.random.u8(..20) {
            0..6 => self.add(),
            6 => self.create(at),
            7..11 => self.read(at),
            11..15 => self.acknowledge(at),
            15 => self.claim(at),
            16 => self.delete(),
            17 if self.random.u8(..8) == 0 => self.destroy(at),
            18 | 19 => return self.trim(floor).await,
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self) {
        // Sequence numbers of one and of two digits in the same millisecond, and milliseconds likewise.
        let ms = self.last.ms() + u64::from(self.random.u8(..4) == 0);
        let seq = if ms == self.last.ms() { self.last.seq() + self.random.u64(1..6) } else { self.random.u64(..12) };
        self.last = EntryId::new(ms.max(8), seq);
        self.command(&format!("XADD s {} f v", self.last));
        self.entries.insert(self.last);
    }

    fn create(&mut self, at: usize) {
        let middle = self.some_entry();
        if self.groups[at].is_some() || self.last == EntryId::ZERO {
            return;
        }
        let position = match self.random.u8(..3) {
            0 => EntryId::ZERO,
            1 => self.last,
            _ => middle.unwrap_or(EntryId::ZERO),
        };
        self.command(&format!("XGROUP CREATE s {} {position}", GROUPS[at]));
        self.groups[at] = Some(Known { position, unfinished: BTreeSet::new() });
    }

    fn read(&mut self, at: usize) {
        let (count, consumer) = (self.random.usize(1..5), self.random.choice(CONSUMERS).unwrap_or("x"));
        let Some(known) = &mut self.groups[at] else { return };
        let given: Vec<_> = self.entries.iter().copied().filter(|id| *id > known.position).take(count).collect();
        known.position = given.last().copied().unwrap_or(known.position);
        known.unfinished.extend(&given);
        self.command(&format!("XREADGROUP GROUP {} {consumer} COUNT {count} STREAMS s >", GROUPS[at]));
    }

    fn acknowledge(&mut self, at: usize) {
        let Some(known) = &mut self.groups[at] else { return };
        let done: Vec<_> = known.unfinished.iter().copied().filter(|_| self.random.u8(..3) > 0).collect();
        for id in done {
            known.unfinished.remove(&id);
            self.server.command(["XACK", "s", GROUPS[at], &id.to_string()]).unwrap();
        }
    }

    /// A consumer is dead, and another one takes over what it held.
    fn claim(&mut self, at: usize) {
        let consumer = self.random.choice(CONSUMERS).unwrap_or("x");
        if self.groups[at].is_some() {
            self.command(&format!("XAUTOCLAIM s {} {consumer} 0 0 COUNT 3", GROUPS[at]));
        }
    }

    fn delete(&mut self) {
        if let Some(id) = self.some_entry() {
            self.command(&format!("XDEL s {id}"));
            self.entries.remove(&id);
        }
    }

    fn destroy(&mut self, at: usize) {
        if self.groups[at].take().is_some() {
            self.command(&format!("XGROUP DESTROY s {}", GROUPS[at]));
        }
    }

    async fn trim(&mut self, floor: Floor) -> Result<(), String> {
        match floor {
            Floor::Ours => drop(self.trimmer.run().await.unwrap()),
            Floor::Mutant(floor) => {
                let state = self.trimmer.state().await.unwrap();
                if let Some(floor) = state.as_ref().and_then(floor) {
                    self.command(&format!("XTRIM s MINID = {floor}"));
                }
            }
        }
        let left: BTreeSet<_> = self.server.entries("s").iter().map(stream_core::Entry::id).collect();
        for (name, known) in GROUPS.iter().zip(&self.groups) {
            let Some(known) = known else { continue };
            let needed = |id: &&EntryId| **id > known.position || known.unfinished.contains(*id);
            if let Some(lost) = self.entries.iter().filter(needed).find(|id| !left.contains(id)) {
                return Err(format!("{name} has lost {lost}"));
            }
        }
        self.entries = left;
        self.nothing_finished_is_left()
    }

    /// The first entry that is left is one that somebody needs, or the last one; one that was deleted while it was pending
    /// still holds its place.
    fn nothing_finished_is_left(&self) -> Result<(), String> {
        let Some(first) = self.entries.first() else { return Ok(()) };
        let needs = |(name, known): (&&str, &Option<Known>)| {
            let known = known.as_ref()?;
            let pending = self.server.pending("s", name).first().map(|row| row.0);
            Some(pending.into_iter().chain(known.position.successor()).min().unwrap_or(EntryId::ZERO))
        };
        match GROUPS.iter().zip(&self.groups).filter_map(needs).min() {
            Some(floor) if floor.min(self.last) > *first => Err(format!("{first} is left and nobody needs it")),
            _ => Ok(()),
        }
    }
}

async fn play(seed: u64, floor: Floor) -> Result<(), String> {
    let mut history = History::new(seed);
    for step in 0..STEPS {
        history.step(floor).await.map_err(|why| format!("seed {seed}, step {step}: {why}"))?;
    }
    history.trim(floor).await.map_err(|why| format!("seed {seed}, at the end: {why}"))
}

#[test]
fn no_history_loses_an_entry_or_keeps_a_finished_one() {
    const RUNS: u64 = 10_000;
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    while let seed @ ..RUNS = next.fetch_add(1, Ordering::Relaxed) {
                        play(seed, Floor::Ours).await.unwrap_or_else(|why| panic!("{why}"));
                    }
                });
            });
        }
    });
}

/// The wrong floor loses an entry in one of the first histories.
async fn check_caught(mutant: fn(&StreamState) -> Option<EntryId>) {
    for seed in 0..1000 {
        if let Err(why) = play(seed, Floor::Mutant(mutant)).await {
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
