//! What happens to processes, the server and the group while a run lasts, and when.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use stream_core::EntryId;
use stream_testkit::history::{Cause, What};
use tokio::time::{Instant, sleep, sleep_until};

use crate::machine::{Line, Machine};
use crate::plan::{STREAM, around, seconds};
use crate::worker::Switch;
use crate::world::{Weather, World};

#[derive(Debug, Clone, Copy)]
enum Disaster {
    Crash,
    Freeze,
    Stop,
    Cut,
    Restart,
    LoseTail,
    Destroy,
    Outage,
}

/// Lets things go wrong for as long as the plan says.
pub(crate) async fn rage(world: &Arc<World>, switches: &[Arc<Switch>]) {
    let end = Instant::now() + world.plan.chaos;
    let mut due = schedule(world);
    let storms = tokio::spawn(storms(Arc::clone(world)));
    while let Some(next) = due.iter_mut().min_by_key(|(at, ..)| *at).filter(|(at, ..)| *at < end) {
        sleep_until(next.0).await;
        next.0 = Instant::now() + world.draw(|rng| around(rng, next.1)) + Duration::from_millis(1);
        strike(world, switches, next.2).await;
    }
    sleep_until(end).await;
    storms.abort();
    world.state().weather = Weather::Over;
    for machine in alive(world) {
        machine.thaw();
    }
    world.note(format_args!("over"));
}

/// The consumer processes that live.
fn alive(world: &World) -> Vec<Arc<Machine>> {
    world.state().workers.iter().flatten().cloned().collect()
}

fn schedule(world: &World) -> Vec<(Instant, Duration, Disaster)> {
    let plan = &world.plan.disasters;
    let kinds = [
        (plan.crash, Disaster::Crash),
        (plan.freeze, Disaster::Freeze),
        (plan.stop, Disaster::Stop),
        (plan.cut, Disaster::Cut),
        (plan.restart, Disaster::Restart),
        (plan.lose_tail, Disaster::LoseTail),
        (plan.destroy, Disaster::Destroy),
        (plan.outage, Disaster::Outage),
    ];
    let first = |every| Instant::now() + world.draw(|rng| around(rng, every));
    kinds.into_iter().filter_map(|(every, disaster)| Some((first(every?), every?, disaster))).collect()
}

/// Storms and calm times by turns.
async fn storms(world: Arc<World>) {
    let (calm, storm) = (world.plan.network.calm, world.plan.network.storm);
    loop {
        sleep(world.draw(|rng| around(rng, calm)) + Duration::from_millis(1)).await;
        world.state().weather = Weather::Storm;
        sleep(world.draw(|rng| around(rng, storm)) + Duration::from_millis(1)).await;
        world.state().weather = Weather::Calm;
    }
}

async fn strike(world: &Arc<World>, switches: &[Arc<Switch>], disaster: Disaster) {
    let mut workers = alive(world);
    match disaster {
        Disaster::Crash | Disaster::Freeze if workers.is_empty() => {}
        Disaster::Crash => {
            // Now and then all of them, as when the power fails.
            if world.draw(|rng| rng.u32(..8)) != 0 {
                let one = world.draw(|rng| rng.usize(..workers.len()));
                workers = vec![workers.swap_remove(one)];
            }
            for machine in workers {
                machine.kill();
            }
        }
        Disaster::Freeze => {
            let machine = workers.swap_remove(world.draw(|rng| rng.usize(..workers.len())));
            let time = world.draw(|rng| world.plan.lease.mul_f64(0.1 + 3.0 * rng.f64() * rng.f64()));
            world.fault("frozen process", &machine.name);
            machine.freeze();
            tokio::spawn(async move {
                sleep(time).await;
                machine.thaw();
            });
        }
        Disaster::Stop => {
            let place = world.draw(|rng| rng.usize(..switches.len()));
            world.fault("stopped process", &format!("worker at place {place}"));
            let stopped = world.state().workers[place].clone();
            if let Some((machine, group)) = stopped.and_then(|machine| Some((machine.number, machine.group?))) {
                world.happened(group, What::Stopping { process: machine });
            }
            switches[place].stop(false);
        }
        Disaster::Cut if world.draw(Rng::bool) => {
            world.fault("cut connections", "all");
            silenced(world, &Line::ALL);
            world.server.kill_connections();
        }
        Disaster::Cut => {
            world.fault("cut connections", "readers");
            silenced(world, &[Line::Reads]);
            world.server.kill_readers();
        }
        Disaster::Restart => {
            world.fault("restarted server", "with all it had");
            down(world, true).await;
        }
        Disaster::Outage => {
            world.fault("outage", "of the network");
            down(world, false).await;
        }
        Disaster::LoseTail => lose_tail(world).await,
        Disaster::Destroy => {
            let group = world.draw(|rng| rng.usize(..world.plan.groups.len()));
            if world.server.destroy_group(STREAM, &world.plan.groups[group]) {
                world.fault("destroyed group", &world.plan.groups[group]);
                lost(world, group, world.now());
            }
        }
    }
}

/// Whoever consumes does not hear of the server by these lines from now on, until it does again.
fn silenced(world: &World, lines: &[Line]) {
    for machine in alive(world) {
        for line in lines {
            machine.fell_silent(*line);
        }
    }
}

/// The server is away for a while, and has forgotten what is in memory alone.
async fn down(world: &World, restarts: bool) {
    let since = world.now();
    silenced(world, &Line::ALL);
    world.server.set_down(true);
    world.server.kill_connections();
    if restarts {
        world.server.forget_scripts();
    }
    sleep(world.draw(|rng| if rng.bool() { seconds(rng, 0.01, 1.0) } else { seconds(rng, 0.1, 12.0) })).await;
    world.server.set_down(false);
    world.happened_to_all(&What::Silence { process: None, cause: Cause::Server, since });
}

/// The server is killed before it has written the latest to its disk.
async fn lose_tail(world: &World) {
    let snapshot = world.server.snapshot();
    let since = world.now();
    let (last, last_letter) = {
        let state = world.state();
        (state.known.last, state.known.last_letter)
    };
    sleep(world.draw(|rng| seconds(rng, 0.01, 2.0))).await;
    world.fault("lost tail", "of the server");
    world.server.restart_from(snapshot);
    let forgotten: Vec<EntryId> = {
        let mut state = world.state();
        let known = &mut state.known;
        let forgotten = known.entries.split_off(&last.successor().unwrap_or(last)).into_keys().collect();
        known.letters.split_off(&last_letter.successor().unwrap_or(last_letter));
        (known.last, known.last_letter) = (last, last_letter);
        forgotten
    };
    for entry in forgotten {
        world.happened_to_all(&What::Forgotten { entry });
    }
    for group in 0..world.plan.groups.len() {
        lost(world, group, since);
    }
    down(world, true).await;
    // Nobody knew of it before.
    let now = world.now();
    let groups = 0..world.plan.groups.len();
    world.state().known.losses.extend(groups.map(|group| (group, now)));
}

/// The group, or the latest of it, was lost.
fn lost(world: &World, group: usize, since: u64) {
    let now = world.now();
    world.happened(group, What::GroupLost { since });
    let mut state = world.state();
    state.known.losses.push((group, now));
    state.done.retain(|(which, _), _| *which != group);
}

/// Looks, now and then, at what the server says is done.
pub(crate) async fn look_on(world: Arc<World>) {
    loop {
        sleep(world.draw(|rng| seconds(rng, 0.5, 5.0))).await;
        for (group, name) in world.plan.groups.iter().enumerate() {
            let pending = world.server.pending(STREAM, name);
            let Some(delivered) = world.server.group_last_delivered(STREAM, name) else { continue };
            let below = pending.first().map(|(oldest, ..)| oldest.predecessor().unwrap_or(EntryId::ZERO));
            world.happened(group, What::DoneUpTo { entry: below.unwrap_or(delivered) });
        }
        if let Some(first) = world.server.entries(STREAM).first() {
            world.happened_to_all(&What::TrimmedBelow { entry: first.id() });
        }
    }
}
