//! Random histories on the server in memory, whose counts are those of the real ones, against what each group really lost.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stream_core::{EntryId, StreamKey, Undelivered};
use stream_redis::Value;
use stream_redis::command::{Command, XInfoGroups, XInfoStream};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Profile;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Add(u64),
    Read(usize, usize),
    Delete(usize),
    DeleteDelivered(usize),
    Newest(usize),
    From(usize),
    /// Up to what all groups were delivered.
    Finished,
    SetBack(usize, usize),
    Look(usize),
    Away(usize),
}

struct Follower {
    name: &'static str,
    undelivered: Undelivered,
    delivered: EntryId,
    /// What went before this group had been given it.
    lost: BTreeSet<EntryId>,
    told: u64,
    /// Up to here gaps were told.
    until: EntryId,
}

struct World {
    server: MemoryServer,
    profile: Profile,
    followers: Vec<Follower>,
    next: u64,
}

impl World {
    /// A stream that was trimmed before, with a group at its beginning, one at its end, and one in the middle.
    fn new(profile: Profile, before: u64, keep: usize) -> Self {
        let mut world = Self { server: MemoryServer::with_profile(profile), profile, followers: Vec::new(), next: 1 };
        world.add(before + 2);
        world.run(&format!("XTRIM s MAXLEN {}", keep + 1));
        let ids = world.ids();
        let (first, last) = (*ids.first().unwrap(), *ids.last().unwrap());
        // As the library makes it: what is gone by now is no loss.
        let gone = world.next - 1 - ids.len() as u64;
        let counted = if profile == Profile::Redis62 { String::new() } else { format!(" ENTRIESREAD {gone}") };
        for (name, start, delivered) in
            [("g", format!("0{counted}"), EntryId::ZERO), ("h", "$".to_owned(), last), ("i", first.to_string(), first)]
        {
            world.run(&format!("XGROUP CREATE s {name} {start}"));
            let (undelivered, lost) = (Undelivered::new(), BTreeSet::new());
            let (told, until) = (0, EntryId::ZERO);
            world.followers.push(Follower { name, undelivered, delivered, lost, told, until });
        }
        world
    }

    fn run(&self, command: &str) -> Value {
        self.server.command(command.split(' ')).unwrap()
    }

    fn add(&mut self, count: u64) {
        for _ in 0..count {
            // Neighbours and others.
            self.run(&format!("XADD s {}-{} f v", self.next / 3, self.next % 3));
            self.next += 1;
        }
    }

    fn ids(&self) -> BTreeSet<EntryId> {
        self.server.entries("s").iter().map(stream_core::Entry::id).collect()
    }

    fn remove(&mut self, command: &str) {
        let before = self.ids();
        self.run(command);
        let after = self.ids();
        for follower in &mut self.followers {
            let delivered = follower.delivered;
            follower.lost.extend(before.difference(&after).filter(|id| **id > delivered));
        }
    }

    fn nth(&self, nth: usize) -> Option<EntryId> {
        let ids = self.ids();
        ids.iter().nth(nth % ids.len().max(1)).copied()
    }

    fn look(&mut self, which: usize) -> Result<(), TestCaseError> {
        let key = StreamKey::new("s").unwrap();
        let info = XInfoStream { key: key.clone() }.decode(self.run("XINFO STREAM s")).unwrap();
        let groups = XInfoGroups { key }.decode(self.run("XINFO GROUPS s")).unwrap();
        let exact = self.profile >= Profile::Redis72Plus;
        let follower = &mut self.followers[which];
        let group = groups.iter().find(|group| group.name.to_string() == follower.name).unwrap();
        let Some(gap) = follower.undelivered.look(&super::facts(&info, group, exact)) else { return Ok(()) };
        let within = |id: &&EntryId| **id > gap.after && **id <= gap.before;
        let really = follower.lost.iter().filter(within).count() as u64;
        prop_assert!(really >= gap.missed.unwrap_or(1), "{gap:?} of {:?}", follower.lost);
        prop_assert!(gap.after >= follower.until, "{gap:?} was told up to {}", follower.until);
        follower.until = gap.before.predecessor().unwrap();
        follower.told += gap.missed.unwrap_or(0);
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Add(count) => self.add(count),
            Step::Read(which, count) => {
                let name = self.followers[which].name;
                self.run(&format!("XREADGROUP GROUP {name} c COUNT {count} NOACK STREAMS s >"));
                self.followers[which].delivered = self.server.group_last_delivered("s", name).unwrap();
            }
            Step::Delete(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.remove(&format!("XDEL s {id}"));
                }
            }
            Step::DeleteDelivered(nth) => {
                let all = self.followers.iter().map(|follower| follower.delivered).min().unwrap();
                if let Some(id) = self.nth(nth).filter(|id| *id <= all) {
                    self.remove(&format!("XDEL s {id}"));
                }
            }
            Step::Newest(keep) => self.remove(&format!("XTRIM s MAXLEN {keep}")),
            Step::From(nth) => {
                if let Some(id) = self.nth(nth) {
                    self.remove(&format!("XTRIM s MINID {id}"));
                }
            }
            Step::Finished => {
                let all = self.followers.iter().map(|follower| follower.delivered).min().unwrap();
                self.remove(&format!("XTRIM s MINID {}", all.successor().unwrap()));
            }
            Step::SetBack(which, nth) => {
                if let Some(id) = self.nth(nth).filter(|id| *id < self.followers[which].delivered) {
                    let follower = &mut self.followers[which];
                    follower.delivered = id;
                    let name = follower.name;
                    self.run(&format!("XGROUP SETID s {name} {id}"));
                    self.look(which)?;
                    // Told before or not: it is told by what is gone from now on.
                    self.followers[which].until = EntryId::ZERO;
                }
            }
            Step::Look(which) => self.look(which)?,
            Step::Away(which) => self.followers[which].undelivered.was_away(),
        }
        Ok(())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_u64..12).prop_map(Step::Add),
        6 => (0_usize..3, 1_usize..12).prop_map(|(which, count)| Step::Read(which, count)),
        1 => (0_usize..30).prop_map(Step::Delete),
        1 => (0_usize..30).prop_map(Step::DeleteDelivered),
        1 => (0_usize..20).prop_map(Step::Newest),
        1 => (0_usize..20).prop_map(Step::From),
        2 => Just(Step::Finished),
        1 => (0_usize..3, 0_usize..20).prop_map(|(which, nth)| Step::SetBack(which, nth)),
        5 => (0_usize..3).prop_map(Step::Look),
        1 => (0_usize..3).prop_map(Step::Away),
    ];
    proptest::collection::vec(step, 0..80)
}

fn profiles() -> impl Strategy<Value = Profile> {
    prop_oneof![Just(Profile::Redis62), Just(Profile::Redis70), Just(Profile::Redis72Plus), Just(Profile::Redis80Plus)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens: each gap holds as many lost entries as it says, and no two speak of the same.
    #[test]
    fn nothing_is_told_that_is_not_lost(profile in profiles(), steps in steps(), before in 0_u64..9, keep in 0_usize..9) {
        let mut world = World::new(profile, before, keep);
        for step in steps {
            world.step(step)?;
        }
    }

    /// Where the server counts, and somebody looks between each cut and the next read, every lost entry is told, once.
    #[test]
    fn what_is_lost_is_counted_exactly(profile in profiles(), steps in steps(), before in 0_u64..9, keep in 0_usize..9) {
        prop_assume!(profile > Profile::Redis62);
        let mut world = World::new(profile, before, keep);
        for which in 0..3 {
            world.look(which)?;
        }
        // A deletion makes the server lose its own count.
        let deletes = |step: &Step| matches!(step, Step::Delete(_) | Step::DeleteDelivered(_) | Step::SetBack(..));
        for step in steps.into_iter().filter(|step| !deletes(step) && !matches!(step, Step::Away(_))) {
            let cuts = matches!(step, Step::Newest(_) | Step::From(_) | Step::Finished);
            let reads = matches!(step, Step::Read(..));
            world.step(step)?;
            if cuts || (reads && profile == Profile::Redis70) {
                for which in 0..3 {
                    world.look(which)?;
                }
            }
            // Of a group that did not begin at the beginning the server may know no count.
            let follower = &world.followers[0];
            prop_assert!(!cuts || follower.told == follower.lost.len() as u64, "{}: {:?}", follower.told, follower.lost);
        }
    }
}
