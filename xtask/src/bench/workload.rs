//! What is raced over, who takes part, and what has to come out.

use super::programs::Programs;
use super::racer::{Racer, peers};

/// How the entries come, and what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A backlog that is there, through a group: entries a second from outside.
    Drain,
    /// The same with handlers that sleep for 5 ms, 100 at a time.
    Slow,
    /// Entries that come at a rate: the latency of each.
    Live { rate: u32 },
    /// Without a group: the racer's own clock from the first entry to the last.
    Tail,
    /// Appending: the racer's own clock.
    Publish,
}

/// A racer of this repository: its name, its command, and whether it runs on one thread.
type Own = (&'static str, &'static str, bool);

/// One race.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) style: Style,
    pub(crate) entries: u64,
    /// Bytes of a payload.
    pub(crate) size: usize,
    /// What payloads are, as our filler calls it.
    pub(crate) kind: &'static str,
    /// Racers of this repository, the floor first.
    own: Vec<Own>,
    /// Whether other clients can take part.
    peers: bool,
    pub(crate) goals: Vec<Goal>,
}

/// What a racer has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) racer: &'static str,
    pub(crate) figure: Figure,
    pub(crate) limit: f64,
}

/// A figure that has a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Share of the floor's rate, at least.
    Rate,
    /// Processor seconds per million entries, at most.
    Cpu,
    /// Processor time as a multiple of the floor's, at most.
    CpuRatio,
    /// MiB, at most.
    Memory,
    /// Median latency as a multiple of the floor's, at most.
    P50,
    /// The same of the 99th percentile.
    P99,
    /// `XACK` commands per read, at most.
    Acks,
}

const fn goal(racer: &'static str, figure: Figure, limit: f64) -> Goal {
    Goal { racer, figure, limit }
}

const LIVE: &[Own] = &[
    ("floor", "floor", false),
    ("own", "durable", false),
    ("own-1t", "durable", true),
    ("redis-typed", "redis-typed", true),
];
const LIVE_GOALS: &[Goal] = &[
    goal("own", Figure::P50, 1.3),
    goal("own", Figure::P99, 1.5),
    goal("own-1t", Figure::P50, 1.3),
    goal("own-1t", Figure::P99, 1.5),
];

impl Workload {
    /// All races; with `quick` over a tenth of the entries.
    pub(crate) fn all(quick: bool) -> Vec<Self> {
        let n = if quick { 50_000 } else { 500_000 };
        let seconds = if quick { 1 } else { 5 };
        let drain = |name: &'static str, what: &'static str, size: usize, own: &[Own], goals: &[Goal]| Self {
            name,
            what,
            style: Style::Drain,
            entries: n,
            size,
            kind: "text",
            own: own.to_vec(),
            peers: false,
            goals: goals.to_vec(),
        };
        let live = |name: &'static str, what: &'static str, rate: u32| Self {
            style: Style::Live { rate },
            entries: u64::from(rate) * seconds,
            peers: true,
            ..drain(name, what, 200, LIVE, LIVE_GOALS)
        };
        vec![
            Self {
                peers: true,
                ..drain(
                    "w1",
                    "a backlog of 200 B entries and a handler that looks at them",
                    200,
                    &[
                        ("floor", "floor", false),
                        ("own", "durable", false),
                        ("own-1t", "durable", true),
                        ("redis-typed", "redis-typed", true),
                    ],
                    &[
                        goal("own", Figure::Rate, 0.93),
                        goal("own-1t", Figure::Rate, 0.93),
                        goal("own", Figure::Cpu, 0.9),
                        goal("own-1t", Figure::Cpu, 0.6),
                        goal("own", Figure::Memory, 16.0),
                        goal("own-1t", Figure::Memory, 16.0),
                        goal("own", Figure::Acks, 1.02),
                    ],
                )
            },
            drain(
                "w1-1k",
                "a backlog of 1 KiB entries",
                1 << 10,
                &[("floor", "floor", false), ("own", "durable", false), ("own-1t", "durable", true)],
                &[goal("own", Figure::Rate, 0.9), goal("own-1t", Figure::Rate, 0.9)],
            ),
            drain(
                "w1-batch",
                "a backlog of 200 B entries and a handler of up to 1,000 at once",
                200,
                &[("floor", "floor", false), ("own", "durable batch", false), ("own-1t", "durable batch", true)],
                &[
                    goal("own", Figure::Rate, 0.95),
                    goal("own-1t", Figure::Rate, 0.95),
                    goal("own-1t", Figure::Cpu, 0.35),
                ],
            ),
            Self {
                kind: "json",
                ..drain(
                    "w1-json",
                    "a backlog of 200 B JSON objects and a handler that gets them decoded",
                    200,
                    &[("floor", "floor", false), ("own", "durable json", false), ("own-1t", "durable json", true)],
                    &[goal("own", Figure::Rate, 0.85), goal("own-1t", Figure::Rate, 0.85)],
                )
            },
            Self {
                kind: "keyed",
                ..drain(
                    "w1-ordered",
                    "a backlog of 200 B entries with 1,000 keys, those of a key in order",
                    200,
                    &[
                        ("floor", "floor", false),
                        ("own", "durable ordered", false),
                        ("own-1t", "durable ordered", true),
                    ],
                    &[goal("own", Figure::Rate, 0.8), goal("own-1t", Figure::Rate, 0.8)],
                )
            },
            live("w2-5k", "5,000 entries a second, latency from publishing to the handler", 5_000),
            live("w2-20k", "20,000 entries a second, latency from publishing to the handler", 20_000),
            Self {
                style: Style::Slow,
                entries: n / 25,
                ..drain(
                    "w3",
                    "handlers that sleep for 5 ms, 100 at a time",
                    200,
                    &[
                        ("redis-semaphore", "redis-semaphore", true),
                        ("own", "durable", false),
                        ("own-1t", "durable", true),
                    ],
                    &[
                        goal("own", Figure::Rate, 0.98),
                        goal("own-1t", Figure::Rate, 0.98),
                        goal("own-1t", Figure::CpuRatio, 1.0),
                    ],
                )
            },
            Self {
                style: Style::Tail,
                ..drain(
                    "ephemeral",
                    "a backlog of 200 B entries without a group, against raw XREAD",
                    200,
                    &[("floor", "floor-tail", false), ("own", "tail", false), ("own-1t", "tail", true)],
                    &[goal("own", Figure::Rate, 0.9), goal("own-1t", Figure::Rate, 0.9)],
                )
            },
            Self {
                style: Style::Publish,
                ..drain(
                    "publish",
                    "200 B entries appended, against raw pipelined XADD",
                    200,
                    &[
                        ("floor", "floor-publish", false),
                        ("own", "publish 1000", false),
                        ("own-1t", "publish 1000", true),
                        ("own, default batch", "publish", false),
                    ],
                    &[goal("own", Figure::Rate, 0.9), goal("own-1t", Figure::Rate, 0.9)],
                )
            },
        ]
    }

    /// Who takes part, the floor first.
    pub(crate) fn racers(&self, programs: &Programs) -> Vec<Racer> {
        let own = self.own.iter().map(|&(name, words, one_thread)| {
            let racer = Racer::own(programs, name, words);
            if one_thread { racer.on_one_thread() } else { racer }
        });
        let mut racers: Vec<Racer> = own.collect();
        if self.peers {
            racers.extend(peers(programs, matches!(self.style, Style::Live { .. })));
        }
        racers
    }

    /// The library once more with its allocations counted, where entries are drained through a group.
    pub(crate) fn counted(&self, programs: &Programs) -> Option<Racer> {
        let (_, words, _) = self.own.iter().find(|(name, ..)| *name == "own")?;
        (self.style == Style::Drain).then(|| Racer::counted(programs, words))
    }
}
