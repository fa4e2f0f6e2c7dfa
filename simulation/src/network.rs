//! What goes wrong with a command: decided for each in the moment in which the server has it before it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use stream_testkit::memory::Fault;

use crate::plan::{Network, choose};
use crate::world::{Weather, World};

/// Lets the network of `world` fail from now on.
pub(crate) fn install(world: &Arc<World>) {
    let weak = Arc::downgrade(world);
    world.server.choose_faults(move |command| fault(&*weak.upgrade()?, command));
    // So that what hangs ends at some time.
    world.server.set_response_timeout(Some(Duration::from_secs(3)));
    world.server.set_latency(world.plan.latency);
}

fn fault(world: &World, command: &str) -> Option<Fault> {
    let (machine, line, drawn) = {
        let mut state = world.state();
        let scale = match state.weather {
            Weather::Over => return None,
            Weather::Calm => 1,
            Weather::Storm => 10,
        };
        let (machine, line) = state.current.clone()?;
        let rng = &mut state.network;
        let rates = &world.plan.network;
        let drawn = if command == "CONNECT" { connecting(rng, rates, scale) } else { sent(rng, rates, scale, command) };
        (machine, line, drawn?)
    };
    let Drawn { name, fault, silences, dies } = drawn;
    if let Some(name) = name {
        world.fault(name, &format!("{} {command}", machine.name));
    }
    if silences {
        machine.fell_silent(line);
    }
    if dies {
        machine.kill();
    }
    fault
}

struct Drawn {
    /// How it is counted; what is ordinary is not.
    name: Option<&'static str>,
    fault: Option<Fault>,
    /// Whether the line may not have carried what was sent, or the answer.
    silences: bool,
    dies: bool,
}

impl Drawn {
    fn new(name: &'static str, fault: Fault) -> Self {
        Self { name: Some(name), fault: Some(fault), silences: true, dies: false }
    }
}

/// Draws with a probability in a thousand, in a storm; a tenth of it otherwise.
fn strikes(rng: &mut Rng, rate: u32, scale: u32) -> bool {
    rate > 0 && rng.u32(..10_000) < rate * scale
}

fn connecting(rng: &mut Rng, rates: &Network, scale: u32) -> Option<Drawn> {
    if strikes(rng, rates.refused, scale) {
        return Some(Drawn::new("refused connection", Fault::CutBefore));
    }
    if strikes(rng, rates.delayed, scale) {
        return Some(Drawn::new("slow connection", Fault::Delay(Duration::from_millis(rng.u64(10..2_500)))));
    }
    None
}

fn sent(rng: &mut Rng, rates: &Network, scale: u32, command: &str) -> Option<Drawn> {
    if strikes(rng, rates.dies, scale) {
        let (name, fault) = if rng.bool() {
            ("death before a command", Fault::CutBefore)
        } else {
            ("death after a command", Fault::CutAfter)
        };
        return Some(Drawn { dies: true, ..Drawn::new(name, fault) });
    }
    if strikes(rng, rates.cut_before, scale) {
        return Some(Drawn::new("cut before a command", Fault::CutBefore));
    }
    if strikes(rng, rates.cut_after, scale) {
        return Some(Drawn::new("lost reply", Fault::CutAfter));
    }
    if command == "XREADGROUP" && strikes(rng, rates.torn, scale) {
        return Some(Drawn::new("torn reply", Fault::CutAfterEntries(rng.usize(0..4))));
    }
    if strikes(rng, rates.hangs, scale) {
        return Some(Drawn::new("no reply", Fault::Hang));
    }
    if strikes(rng, rates.busy, scale) {
        let error =
            choose(rng, &["LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script."]);
        return Some(Drawn::new("busy server", Fault::error(error)));
    }
    if strikes(rng, rates.delayed, scale) {
        let delay = if rng.u32(..10) == 0 { rng.u64(500..4_000) } else { rng.u64(5..500) };
        let silences = delay >= 200;
        return Some(Drawn { silences, ..Drawn::new("late reply", Fault::Delay(Duration::from_millis(delay))) });
    }
    // Ordinary jitter, which makes that things do not happen in the order in which they were begun.
    if rng.u32(..4) == 0 {
        let fault = Some(Fault::Delay(Duration::from_millis(rng.u64(1..8))));
        return Some(Drawn { name: None, fault, silences: false, dies: false });
    }
    None
}
