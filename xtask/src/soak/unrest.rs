//! What goes wrong with the workers: the other half of the faults.

use std::collections::BTreeMap;
use std::time::Duration;

use stream_testkit::Proxy;
use stream_testkit::history::{Cause, What};
use stream_testkit::proxy::{Mode, Weather};
use tokio::time::Instant;

use super::faults::Tally;
use super::log::Log;
use crate::Failure;
use crate::fleet::Fleet;
use crate::fleet::journal::{micros, now};

/// How long a process may need to notice that a connection is dead, and to make another: its timeout and its pause.
const NOTICED_WITHIN: Duration = Duration::from_secs(4);
/// So many workers are to work at a time.
pub(crate) const WORKERS: usize = 3;
/// This one lives as long as the soak.
pub(crate) const VETERAN: u32 = 1;

/// Disturbs workers, and replaces those that have ended.
#[derive(Debug)]
pub(crate) struct Unrest {
    pub(crate) random: fastrand::Rng,
    weather: Weather,
    pub(crate) log: Log,
    pub(crate) tally: Tally,
    /// Where each worker's connections go through, if they go through one.
    pub(crate) proxies: BTreeMap<u32, Proxy>,
    /// What comes to an end, and when.
    until: Vec<(Instant, u32, End)>,
    next: Instant,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Thaw,
    Heal { since: u64 },
}

impl Unrest {
    pub(crate) fn new(mut random: fastrand::Rng, log: Log, tally: Tally) -> Self {
        let weather = Weather::new(random.u64(..));
        let next = Instant::now() + Duration::from_secs(3);
        Self { random, weather, log, tally, proxies: BTreeMap::new(), until: Vec::new(), next }
    }

    /// Does what is due. Without `more`, only what has begun is brought to its end.
    ///
    /// # Errors
    /// A process cannot be signalled.
    pub(crate) fn tick(&mut self, fleet: &mut Fleet, more: bool) -> Result<(), Failure> {
        let now = Instant::now();
        let due: Vec<_> = self.until.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, worker, end) in due {
            self.end(fleet, worker, end)?;
        }
        if more && now >= self.next {
            self.next = now + Duration::from_millis(self.random.u64(1_500..6_000));
            self.disturb(fleet)?;
        }
        Ok(())
    }

    /// Whether nothing that has begun is left to end.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_empty()
    }

    fn end(&mut self, fleet: &mut Fleet, worker: u32, end: End) -> Result<(), Failure> {
        match end {
            End::Thaw => fleet.thaw(worker)?,
            End::Heal { since } => {
                if let Some(proxy) = self.proxies.get(&worker) {
                    proxy.set(Mode::Forward);
                }
                self.silence(worker, since);
            }
        }
        Ok(())
    }

    fn silence(&self, worker: u32, since: u64) {
        let what = What::Silence { process: Some(worker), cause: Cause::Network, since };
        self.log.write_at(now() + micros(NOTICED_WITHIN), what);
    }

    fn disturb(&mut self, fleet: &mut Fleet) -> Result<(), Failure> {
        let working: Vec<u32> = fleet.working().filter(|worker| !self.is_disturbed(*worker)).collect();
        let Some(victim) = self.random.choice(working) else { return Ok(()) };
        match self.random.u32(..if self.proxies.is_empty() { 4 } else { 8 }) {
            0 | 1 if victim != VETERAN => {
                self.proxies.remove(&victim);
                fleet.kill(victim)?;
                self.tally.count("worker killed");
            }
            2 if victim != VETERAN => {
                fleet.stop(victim)?;
                self.tally.count("worker stopped");
            }
            0..=3 => {
                fleet.freeze(victim)?;
                let pause = Duration::from_millis(self.random.u64(300..9_000));
                self.until.push((Instant::now() + pause, victim, End::Thaw));
                self.tally.count("worker frozen");
            }
            _ => self.cut_off(victim),
        }
        Ok(())
    }

    fn cut_off(&mut self, victim: u32) {
        let Some(proxy) = self.proxies.get(&victim) else { return };
        let since = now();
        if self.random.u32(..7) == 0 {
            proxy.cut();
            self.tally.count("network cut");
            self.silence(victim, since);
        } else if let Some(spell) = self.weather.next() {
            proxy.begin(spell.mode);
            self.tally.count(spell.name());
            self.until.push((Instant::now() + spell.lasts, victim, End::Heal { since }));
        }
    }

    fn is_disturbed(&self, worker: u32) -> bool {
        self.until.iter().any(|(_, one, _)| *one == worker)
    }
}
