//! Deterministic simulation: a fleet of publishers, consumers and maintenance, a server and a network that fail, in one thread
//! on virtual time, all of it decided by one number.
//!
//! The library under test is the real one; only the server (`stream_testkit::MemoryServer`) and the network are models. What
//! must stay true: a seed gives the same journal, byte for byte. So nothing here asks a real clock, draws from another source
//! than the seed, or goes over a collection that has no order.

mod chaos;
mod judge;
mod machine;
mod maintain;
mod mutation;
mod network;
mod plan;
mod publish;
mod seam;
mod watch;
mod worker;
mod world;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use mutation::Mutation;
use plan::Plan;
use worker::Switch;
pub use world::Tally;
use world::World;

/// How to run a seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The bug that is put in, if one is.
    pub mutation: Option<Mutation>,
    /// Whether every command is written down, not only what happens.
    pub verbose: bool,
}

/// What came of a seed.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What did not hold; empty for a run that is as it should be.
    pub violations: Vec<String>,
    /// Everything that happened, in its order, with virtual times in microseconds.
    pub journal: String,
    /// In numbers.
    pub tally: Tally,
}

/// Runs one seed to its end.
///
/// # Panics
/// When no runtime can be made.
pub fn run(seed: u64, options: Options) -> Outcome {
    let mut rng = Rng::with_seed(seed);
    // The library draws from here.
    fastrand::seed(rng.u64(..));
    let plan = Plan::of(&mut rng);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(async move {
        let world = World::new(plan, options.mutation, options.verbose, &mut rng);
        simulate(&world).await;
        let violations = judge::violations(&world);
        let mut state = world.state();
        let mut tally = std::mem::take(&mut state.tally);
        tally.simulated = Duration::from_micros(world.now());
        tally.entries = state.known.entries.len() as u64;
        let journal = std::mem::take(&mut state.journal);
        drop(state);
        tally.commands = world.server.commands().values().sum();
        Outcome { violations, journal, tally }
    })
}

async fn simulate(world: &Arc<World>) {
    world.note(format_args!("plan {:?}", world.plan));
    network::install(world);
    let switches: Vec<Arc<Switch>> = world.plan.workers.iter().map(|_| Arc::default()).collect();
    let mut workers = JoinSet::new();
    for (place, switch) in switches.iter().enumerate() {
        workers.spawn(worker::keep_going(Arc::clone(world), place, Arc::clone(switch)));
    }
    let mut publishers = JoinSet::new();
    for place in 0..world.plan.publishers.len() {
        publishers.spawn(publish::run(Arc::clone(world), place));
    }
    let mut others = JoinSet::new();
    others.spawn(chaos::look_on(Arc::clone(world)));
    let mut maintenance = JoinSet::new();
    let tasks: [(_, _, maintain::Task); 3] = [
        ("trimmer", world.plan.trim_every, maintain::trim),
        ("cleaner", world.plan.clean_every, maintain::clean),
        ("redrive", world.plan.redrive_every, maintain::redrive),
    ];
    for (name, every, task) in tasks {
        if let Some(every) = every {
            maintenance.spawn(maintain::again(Arc::clone(world), name, every, task));
        }
    }
    chaos::rage(world, &switches).await;
    if timeout(Duration::from_mins(30), joined(&mut publishers)).await.is_err() {
        world.violation("the publishers do not come to an end".to_owned());
    }
    // What a re-drive sends at last has to be handled as well.
    if timeout(Duration::from_mins(30), joined(&mut maintenance)).await.is_err() {
        world.violation("maintenance does not come to an end".to_owned());
    }
    judge::settle(world).await;
    judge::close(world);
    for switch in &switches {
        switch.stop(true);
    }
    if timeout(Duration::from_mins(2), joined(&mut workers)).await.is_err() {
        world.violation("the consumers do not stop".to_owned());
    }
}

async fn joined(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
