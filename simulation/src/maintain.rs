//! Maintenance: trimming, clean-up and re-drives, each in a process of its own that may be killed in the middle.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use stream_core::ConsumerPolicy;
use stream_maint::{ConsumerCleaner, DeadLetters, Redrive, Trimmed, Trimmer};
use stream_redis::{Error, ErrorKind};
use tokio::time::sleep;

use crate::machine::Machine;
use crate::plan::{DEAD, STREAM, around};
use crate::seam;
use crate::world::{Weather, World};

/// What a process of maintenance does in its short life.
pub(crate) type Task = fn(Arc<Machine>) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Deletes what every group is done with.
pub(crate) fn trim(machine: Arc<Machine>) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async move {
        let mut builder = Trimmer::builder(&seam::client(&machine)).stream(STREAM).without_lease();
        // A group that is gone for a while needs its entries nevertheless.
        for group in &machine.world.plan.groups {
            builder = builder.protect(group);
        }
        if let Trimmed::Stream(report) = builder.build()?.run().await? {
            machine.world.detail(format_args!("trimmed {} entries", report.removed));
        }
        Ok(())
    })
}

/// Removes dead consumers.
pub(crate) fn clean(machine: Arc<Machine>) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async move {
        let refused = |error| Error::new(ErrorKind::Config, "the policy is refused").with_source(error);
        for group in &machine.world.plan.groups {
            let policy = ConsumerPolicy::new(Duration::from_mins(1)).map_err(refused)?;
            let report = ConsumerCleaner::new(&seam::client(&machine), STREAM, group, policy)?.run().await?;
            machine.world.detail(format_args!("cleaned {report:?}"));
        }
        Ok(())
    })
}

/// Sends dead letters back.
pub(crate) fn redrive(machine: Arc<Machine>) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send>> {
    Box::pin(async move {
        let batch = machine.world.draw(|rng| rng.usize(1..=5));
        let mut dead = DeadLetters::new(&seam::client(&machine), DEAD)?;
        let report = dead.redrive(&Redrive::new().batch(batch).at_most(10)).await?;
        machine.world.note(format_args!("redriven {report:?}"));
        Ok(())
    })
}

/// Does a task about `every` so often, as long as things go wrong; each time in a new process, some of which are killed.
pub(crate) async fn again(world: Arc<World>, name: &'static str, every: Duration, task: Task) {
    loop {
        let (pause, dies) = world.draw(|rng| (around(rng, every), (rng.u32(..8) == 0).then(|| rng.u64(0..50))));
        sleep(pause + Duration::from_millis(100)).await;
        if world.state().weather == Weather::Over {
            return;
        }
        let machine = world.next_machine(|number| format!("{name}-{number}"), None);
        let killed = async {
            match dies {
                Some(after) => sleep(Duration::from_millis(after)).await,
                None => machine.died().await,
            }
        };
        tokio::select! {
            biased;
            () = killed => world.fault("dead process", &machine.name),
            done = task(Arc::clone(&machine)) => if let Err(error) = done {
                world.note(format_args!("{} failed: {error}", machine.name));
            },
        }
        machine.kill();
    }
}
