//! [`Plan`]: what one run is made of, all of it drawn from the seed before it begins.
//!
//! Runs differ in what can happen in them at all: one in which everything happens all the time would hide what needs quiet,
//! or the same thing twice.

use std::time::Duration;

use fastrand::Rng;
use stream_testkit::history::Fate;
use stream_testkit::memory::Profile;

/// The stream.
pub(crate) const STREAM: &str = "orders";
/// Where its dead letters go.
pub(crate) const DEAD: &str = "orders:dead";

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) profile: Profile,
    pub(crate) groups: Vec<String>,
    pub(crate) workers: Vec<WorkerPlan>,
    /// Of every member of a group alike.
    pub(crate) lease: Duration,
    pub(crate) claim_every: Duration,
    pub(crate) block: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) retry: (Duration, Duration),
    pub(crate) backoff: (Duration, Duration),
    pub(crate) lanes: bool,
    pub(crate) delete_acknowledged: bool,
    pub(crate) publishers: Vec<PublisherPlan>,
    pub(crate) kinds: Vec<(Kind, u32)>,
    /// How long things go wrong.
    pub(crate) chaos: Duration,
    pub(crate) latency: Duration,
    pub(crate) network: Network,
    pub(crate) disasters: Disasters,
    pub(crate) trim_every: Option<Duration>,
    pub(crate) clean_every: Option<Duration>,
    pub(crate) redrive_every: Option<Duration>,
}

/// One of the consumer processes.
#[derive(Debug, Clone)]
pub(crate) struct WorkerPlan {
    /// Which group.
    pub(crate) group: usize,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    /// Whether it has the same name again after a restart.
    pub(crate) keeps_name: bool,
    pub(crate) starts_after: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct PublisherPlan {
    pub(crate) messages: u64,
    /// The longest pause between two bursts, and the largest burst.
    pub(crate) pause: Duration,
    pub(crate) burst: u64,
}

/// What has to become of a message, and what its handler does for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Done at the first poll.
    Quick,
    /// Takes this long.
    Slow,
    /// Fails once or twice.
    Flaky,
    /// Panics at every attempt.
    Panics,
    /// Fails at every attempt.
    Fails,
    /// Takes its process down at every attempt.
    Kills,
    Undecodable,
    Rejected,
    /// Asks to be tried again after a very long time, and is held until then.
    Parked,
}

impl Kind {
    /// What it is called in an entry.
    pub(crate) const ALL: [(Self, &'static str); 9] = [
        (Self::Quick, "quick"),
        (Self::Slow, "slow"),
        (Self::Flaky, "flaky"),
        (Self::Panics, "panics"),
        (Self::Fails, "fails"),
        (Self::Kills, "kills"),
        (Self::Undecodable, "undecodable"),
        (Self::Rejected, "rejected"),
        (Self::Parked, "parked"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes() == name).map(|(kind, _)| *kind)
    }

    pub(crate) fn fate(self) -> Fate {
        match self {
            Self::Quick | Self::Slow => Fate::Handled,
            Self::Panics | Self::Fails => Fate::Exhausted,
            Self::Kills => Fate::Kills,
            Self::Undecodable => Fate::Undecodable,
            Self::Rejected => Fate::Rejected,
            // The death of processes may use up the attempts that it needs.
            Self::Flaky | Self::Parked => Fate::Free,
        }
    }
}

/// How often commands go wrong, in a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    pub(crate) refused: u32,
    pub(crate) cut_before: u32,
    pub(crate) cut_after: u32,
    pub(crate) torn: u32,
    pub(crate) delayed: u32,
    pub(crate) hangs: u32,
    /// A process dies as it sends, or as its answer comes.
    pub(crate) dies: u32,
    /// Errors that a server gives while it is busy with itself.
    pub(crate) busy: u32,
    /// Calm times, in which a tenth of this happens, alternate with storms of this length.
    pub(crate) storm: Duration,
    pub(crate) calm: Duration,
}

/// How long it is between two of a kind, on average.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disasters {
    pub(crate) crash: Option<Duration>,
    pub(crate) freeze: Option<Duration>,
    pub(crate) stop: Option<Duration>,
    pub(crate) cut: Option<Duration>,
    pub(crate) restart: Option<Duration>,
    pub(crate) lose_tail: Option<Duration>,
    pub(crate) destroy: Option<Duration>,
    pub(crate) outage: Option<Duration>,
}

impl Plan {
    pub(crate) fn of(rng: &mut Rng) -> Self {
        let groups: Vec<String> = ["billing", "audit"][..if rng.u32(..4) == 0 { 2 } else { 1 }]
            .iter()
            .map(|&group| group.to_owned())
            .collect();
        let lease = seconds(rng, 2.0, 15.0);
        let chaos = seconds(rng, 60.0, 600.0);
        let number = rng.usize(1..=8).max(groups.len());
        let single = rng.u32(..4) == 0;
        let workers = (0..number)
            .map(|place| WorkerPlan {
                group: if place < groups.len() { place } else { rng.usize(..groups.len()) },
                concurrency: if single { 1 } else { rng.usize(1..=12) },
                prefetch: if rng.u32(..4) == 0 { 0 } else { rng.usize(1..=40) },
                keeps_name: rng.bool(),
                starts_after: if place == 0 { Duration::ZERO } else { seconds(rng, 0.0, 20.0) },
            })
            .collect();
        let publishers = (0..rng.usize(1..=3))
            .map(|_| {
                let messages = rng.u64(20..=100);
                let burst = *choose(rng, &[1, 3, 10, 40]);
                // All of them within the time in which things go wrong.
                let pause = chaos.mul_f64(1.6) / u32::try_from(messages * 2 / (burst + 1) + 1).unwrap_or(1);
                PublisherPlan { messages, pause, burst }
            })
            .collect();
        let lanes = rng.u32(..3) == 0;
        let mut some = |weight: u32| if rng.bool() { weight } else { 0 };
        let kinds = vec![
            (Kind::Quick, 30),
            (Kind::Slow, 30),
            (Kind::Flaky, some(15)),
            (Kind::Panics, some(3)),
            (Kind::Fails, some(8)),
            (Kind::Kills, some(2)),
            (Kind::Undecodable, some(4)),
            (Kind::Rejected, some(4)),
            // One that waits for ever would hold up its copies, which have the same key.
            (Kind::Parked, if lanes { 0 } else { some(25) }),
        ];
        let network = if rng.u32(..5) == 0 { Network::default() } else { Network::of(rng) };
        Self {
            profile: *choose(rng, &[Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus]),
            workers,
            lease,
            claim_every: if rng.bool() { lease / 3 } else { seconds(rng, 0.3, 5.0) },
            block: seconds(rng, 1.0, 5.0),
            max_attempts: rng.u32(3..=6),
            retry: (seconds(rng, 0.05, 1.0), seconds(rng, 1.0, 15.0)),
            backoff: (seconds(rng, 0.05, 0.5), seconds(rng, 0.5, 3.0)),
            lanes,
            delete_acknowledged: groups.len() == 1 && rng.u32(..8) == 0,
            publishers,
            kinds,
            chaos,
            latency: Duration::from_millis(rng.u64(0..=3)),
            network,
            disasters: Disasters::of(rng, chaos),
            trim_every: rng.bool().then(|| seconds(rng, 3.0, 40.0)),
            clean_every: rng.bool().then(|| seconds(rng, 10.0, 60.0)),
            redrive_every: (rng.u32(..3) == 0).then(|| seconds(rng, 20.0, 120.0)),
            groups,
        }
    }

    pub(crate) fn kind(&self, rng: &mut Rng) -> Kind {
        let all: u32 = self.kinds.iter().map(|(_, weight)| weight).sum();
        let mut draw = rng.u32(..all);
        for (kind, weight) in &self.kinds {
            match draw.checked_sub(*weight) {
                Some(left) => draw = left,
                None => return *kind,
            }
        }
        Kind::Quick
    }
}

impl Network {
    fn of(rng: &mut Rng) -> Self {
        let mut rate = |most: u32| if rng.bool() { rng.u32(1..=most) } else { 0 };
        Self {
            refused: rate(300),
            cut_before: rate(30),
            cut_after: rate(40),
            torn: rate(60),
            delayed: rate(150),
            hangs: rate(10),
            dies: rate(6),
            busy: rate(30),
            storm: seconds(rng, 2.0, 40.0),
            calm: seconds(rng, 2.0, 90.0),
        }
    }
}

impl Disasters {
    fn of(rng: &mut Rng, chaos: Duration) -> Self {
        let mut often =
            |times: f64, one_in: u32| (rng.u32(..one_in) == 0).then(|| chaos.div_f64(times * (0.3 + rng.f64())));
        Self {
            crash: often(12.0, 2),
            freeze: often(12.0, 2),
            stop: often(8.0, 2),
            cut: often(10.0, 2),
            restart: often(4.0, 3),
            lose_tail: often(3.0, 4),
            destroy: often(3.0, 5),
            outage: often(4.0, 3),
        }
    }
}

/// A time between these, in seconds.
pub(crate) fn seconds(rng: &mut Rng, least: f64, most: f64) -> Duration {
    Duration::from_millis(((least + (most - least) * rng.f64()) * 1_000.0) as u64)
}

/// A time around `mean`, often much shorter and sometimes much longer.
pub(crate) fn around(rng: &mut Rng, mean: Duration) -> Duration {
    let factor = -(1.0 - rng.f64()).max(1e-3).ln();
    Duration::from_millis((mean.as_secs_f64() * factor * 1_000.0) as u64)
}

pub(crate) fn choose<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.usize(..from.len())]
}
