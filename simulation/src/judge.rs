//! The end of a run: waiting until nothing is left to do, and what is made of the history.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stream_core::EntryId;
use stream_testkit::history::{Event, Expectations, History, Reason, What};
use tokio::time::{Instant, sleep};

use crate::plan::{Kind, STREAM};
use crate::world::{Known, World};

/// Within this time all that is left is done, once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_hours(1);

/// Waits until every group is done with everything but what is parked.
pub(crate) async fn settle(world: &Arc<World>) {
    let began = Instant::now();
    loop {
        let left = left(world);
        if left.is_empty() {
            return;
        }
        if began.elapsed() >= PATIENCE {
            let shown: Vec<&str> = left.iter().take(5).map(String::as_str).collect();
            world.violation(format!("{} things are not done in an hour of quiet: {}", left.len(), shown.join("; ")));
            return;
        }
        sleep(Duration::from_secs(2)).await;
    }
}

/// What is not done.
fn left(world: &World) -> Vec<String> {
    let mut left = Vec::new();
    let last = world.state().known.last;
    for name in &world.plan.groups {
        match world.server.group_last_delivered(STREAM, name) {
            Some(delivered) if delivered >= last => {}
            // What comes after may have been delivered and deleted before the group was made anew.
            Some(delivered) if world.server.entries(STREAM).iter().all(|entry| entry.id() <= delivered) => {}
            Some(delivered) => left.push(format!("{name} has got entries up to {delivered} of {last}")),
            None => left.push(format!("there is no group {name}")),
        }
        for (id, owner, idle, count) in world.server.pending(STREAM, name) {
            if !is_parked(&world.state().known, id) {
                left.push(format!("{id} is pending for {owner} in {name}, left alone for {idle:?}, at {count}"));
            }
        }
    }
    left
}

fn is_parked(known: &Known, entry: EntryId) -> bool {
    let message = known.entries.get(&entry).and_then(|number| known.messages.get(number));
    message.is_some_and(|message| message.kind == Kind::Parked)
}

/// Adds to the histories what there is in the end.
pub(crate) fn close(world: &World) {
    for (group, name) in world.plan.groups.iter().enumerate() {
        for (entry, ..) in world.server.pending(STREAM, name) {
            world.happened(group, What::Pending { entry });
        }
        if let Some(delivered) = world.server.group_last_delivered(STREAM, name) {
            world.happened(group, What::End { delivered });
        }
    }
    let letters: Vec<_> = world.state().known.letters.values().cloned().collect();
    for letter in letters {
        let Some(group) = world.group(letter.group.as_bytes()) else {
            world.violation(format!("a dead letter names the group {}", letter.group));
            continue;
        };
        let Some(reason) = Reason::of(&letter.reason) else { continue };
        let number = letter.entry.get("n").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        let (entry, attempts, consumer) = (letter.entry.id(), letter.attempts, letter.consumer.to_string());
        world.happened(group, What::DeadLettered { entry, number, attempts, reason, consumer });
    }
}

/// What did not hold.
pub(crate) fn violations(world: &World) -> Vec<String> {
    let plan = &world.plan;
    let expectations = Expectations {
        max_attempts: plan.max_attempts,
        lease: plan.lease,
        settle: Duration::from_secs(2),
        // Who has just come knows nothing of the group, and makes it anew at its beginning.
        stale: Duration::from_hours(1_000),
        ..Expectations::default()
    };
    let state = world.state();
    let mut violations = state.violations.clone();
    for (name, history) in plan.groups.iter().zip(&state.histories) {
        let verdict = without_parked(history, &state.known).check(&expectations);
        violations.extend(verdict.complaints(3).into_iter().map(|complaint| format!("{name}: {complaint}")));
    }
    violations
}

/// Parked entries are held until long after the end: nothing has to become of them.
fn without_parked(history: &History, known: &Known) -> History {
    let is_parked = |number: &u64| known.messages.get(number).is_some_and(|message| message.kind == Kind::Parked);
    let parked: BTreeSet<EntryId> = history
        .events()
        .iter()
        .filter_map(|event| match &event.what {
            What::Published { entry, number, .. } if is_parked(number) => Some(*entry),
            _ => None,
        })
        .collect();
    let left_out = |event: &&Event| match &event.what {
        What::Unconfirmed { number, .. } => is_parked(number),
        What::Published { entry, .. }
        | What::Started { entry, .. }
        | What::Finished { entry, .. }
        | What::LeaseLost { entry, .. }
        | What::DeadLettered { entry, .. }
        | What::Forgotten { entry }
        | What::Pending { entry } => parked.contains(entry),
        _ => false,
    };
    let mut left = History::default();
    left.extend(history.events().iter().filter(|event| !left_out(event)).cloned());
    left
}
