//! Publishers: processes that publish messages in bursts, and may be killed in the middle.

use std::sync::Arc;
use std::time::Duration;

use stream_core::BackoffPolicy;
use stream_redis::Publisher;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::machine::Machine;
use crate::plan::{Kind, STREAM, seconds};
use crate::seam;
use crate::world::{Message, World};

/// Publishes what the publisher at `place` of the plan has to publish; ends when all is confirmed, or it died.
pub(crate) async fn run(world: Arc<World>, place: usize) {
    let mut left = world.plan.publishers[place].messages;
    while left > 0 {
        let machine = world.next_machine(|number| format!("publisher-{number}"), None);
        left = live(&world, place, &machine, left).await;
        machine.kill();
        sleep(Duration::from_secs(1)).await;
    }
}

/// One life; returns how many messages are left for the next.
async fn live(world: &Arc<World>, place: usize, machine: &Arc<Machine>, mut left: u64) -> u64 {
    let plan = &world.plan.publishers[place];
    let publisher = BackoffPolicy::new(Duration::from_millis(100), Duration::from_secs(2))
        .map_err(|error| error.to_string())
        .and_then(|backoff| {
            let builder = Publisher::builder(&seam::client(machine)).stream(STREAM).backoff(backoff);
            builder.batch(10).build().map_err(|error| error.to_string())
        });
    let publisher = match publisher {
        Ok(publisher) => publisher,
        Err(error) => {
            world.violation(format!("the publisher's settings are refused: {error}"));
            return 0;
        }
    };
    let mut receipts = JoinSet::new();
    while left > 0 && !machine.is_dead() {
        for _ in 0..world.draw(|rng| rng.u64(1..=plan.burst)).min(left) {
            left -= 1;
            let (number, fields) = message(world);
            match publisher.enqueue(fields).await {
                Ok(receipt) => drop(receipts.spawn(confirmed(Arc::clone(machine), number, receipt))),
                Err(error) => world.violation(format!("message {number} is refused: {error}")),
            }
        }
        let pause = world.draw(|rng| plan.pause.mul_f64(rng.f64()));
        tokio::select! {
            biased;
            () = machine.died() => {}
            () = sleep(pause) => {}
        }
    }
    loop {
        tokio::select! {
            biased;
            () = machine.died() => {
                world.fault("dead process", &machine.name);
                return left;
            }
            receipt = receipts.join_next() => if receipt.is_none() {
                return left;
            },
        }
    }
}

async fn confirmed(machine: Arc<Machine>, number: u64, receipt: stream_redis::Receipt) {
    let world = &machine.world;
    match receipt.confirmed().await {
        Ok(id) => {
            world.note(format_args!("confirmed message {number} as {id}"));
            let state = world.state();
            let wrong = state.known.entries.get(&id).is_some_and(|known| *known != number);
            drop(state);
            if wrong {
                world.violation(format!("message {number} is confirmed as {id}, which is another"));
            }
        }
        Err(error) if machine.is_dead() => world.detail(format_args!("unconfirmed message {number}: {error}")),
        Err(error) => world.violation(format!("message {number} was not published: {error:?}")),
    }
}

/// The next message of the run.
fn message(world: &World) -> (u64, [(&'static str, String); 4]) {
    let mut state = world.state();
    let state = &mut *state;
    let number = state.known.messages.len() as u64 + 1;
    let kind = world.plan.kind(&mut state.rng);
    let key = state.rng.u64(0..5);
    let takes = match kind {
        Kind::Quick => Duration::ZERO,
        // Some take longer than a lease.
        Kind::Slow if state.rng.u32(..6) == 0 => world.plan.lease.mul_f64(0.5 + 2.0 * state.rng.f64()),
        Kind::Slow => seconds(&mut state.rng, 0.01, 2.0),
        _ => seconds(&mut state.rng, 0.0, 0.5),
    };
    state.known.messages.insert(number, Message { kind, key });
    let text = [
        ("n", number.to_string()),
        ("kind", kind.name().to_owned()),
        ("takes", takes.as_millis().to_string()),
        ("key", key.to_string()),
    ];
    (number, text)
}
