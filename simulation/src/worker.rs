//! Consumer processes: each consumes until it is killed or told to stop, and is started again a while later; and what their
//! handlers do.

use std::sync::Arc;
use std::time::Duration;

use stream_consumer::{Consumer, Context, DecodeError, Delivery, Event, FromDelivery, Outcome, RetryPolicy, Shutdown};
use stream_core::{EntryId, StreamKey};
use stream_testkit::history::{Ending, Returned, What};
use tokio::time::sleep;

use crate::machine::Machine;
use crate::plan::{DEAD, Kind, STREAM, seconds};
use crate::seam;
use crate::watch;
use crate::world::{Weather, World};

/// How long a parked entry is to wait: longer than any run.
const PARKED: Duration = Duration::from_hours(48);

/// Keeps the consumer process at `place` of the plan going, until the run ends.
pub(crate) async fn keep_going(world: Arc<World>, place: usize, switch: Arc<Switch>) {
    let plan = world.plan.workers[place].clone();
    sleep(plan.starts_after).await;
    loop {
        let name =
            |number| if plan.keeps_name { format!("worker-{place}") } else { format!("worker-{place}-{number}") };
        let machine = world.next_machine(name, Some(plan.group));
        live(&world, place, &machine, &switch).await;
        if switch.is_final() {
            return;
        }
        let pause = world.draw(|rng| if rng.bool() { seconds(rng, 0.0, 2.0) } else { seconds(rng, 0.0, 30.0) });
        let over = world.state().weather == Weather::Over;
        sleep(if over { pause.min(Duration::from_secs(1)) } else { pause }).await;
    }
}

/// Tells a consumer process to stop.
#[derive(Default)]
pub(crate) struct Switch {
    state: std::sync::Mutex<(Option<Shutdown>, bool)>,
}

impl Switch {
    /// Has the process stop gracefully; for good, if it is not to come back.
    pub(crate) fn stop(&self, for_good: bool) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.1 |= for_good;
        if let Some(shutdown) = &state.0 {
            shutdown.stop();
        }
    }

    fn is_final(&self) -> bool {
        self.state.lock().expect("nobody panics with it").1
    }

    fn of_life(&self) -> Shutdown {
        let shutdown = Shutdown::new();
        let mut state = self.state.lock().expect("nobody panics with it");
        if state.1 {
            shutdown.stop();
        }
        state.0 = Some(shutdown.clone());
        shutdown
    }
}

/// One life of a consumer process.
async fn live(world: &Arc<World>, place: usize, machine: &Arc<Machine>, switch: &Switch) {
    let group = world.plan.workers[place].group;
    let shutdown = switch.of_life();
    let process = machine.number;
    world.happened(group, What::ProcessStarted { process, consumer: machine.name.clone() });
    world.state().workers[place] = Some(Arc::clone(machine));
    let consumer = match builder(world, place, machine).build() {
        Ok(consumer) => consumer,
        Err(error) => return world.violation(format!("the settings are refused: {error}")),
    };
    let of_handlers = Arc::clone(machine);
    let handler = move |job: Job, context: Context| {
        let run = Run::begin(&of_handlers, job, context);
        run.work()
    };
    let run = async move { consumer.run_with(&shutdown, handler).await };
    let mut task = tokio::spawn(stream_consumer::simulation::within(Arc::clone(machine) as _, run));
    let how = tokio::select! {
        biased;
        () = machine.died() => {
            task.abort();
            world.fault("dead process", &machine.name);
            Ending::Killed
        }
        ended = &mut task => {
            match ended {
                Ok(Ok(report)) => {
                    world.note(format_args!("stopped {} {report:?}", machine.name));
                    // What it left behind looks as if it had died.
                    let left = report.aborted + report.left_pending + report.unconfirmed;
                    if left > 0 { Ending::Aborted } else { Ending::Stopped }
                }
                Ok(Err(error)) => {
                    world.violation(format!("{} ended by an error: {error:?}", machine.name));
                    Ending::Aborted
                }
                Err(error) => {
                    world.violation(format!("{} ended by a panic: {error}", machine.name));
                    Ending::Aborted
                }
            }
        }
    };
    machine.close_silences();
    world.state().workers[place] = None;
    world.happened(group, What::ProcessEnded { process, how });
    // What is left of it is no part of it any more, whatever becomes of its tasks.
    machine.kill();
}

fn builder(world: &World, place: usize, machine: &Arc<Machine>) -> stream_consumer::DurableBuilder {
    let plan = &world.plan;
    let worker = &plan.workers[place];
    let observed = Arc::clone(machine);
    let group = worker.group;
    let observer = move |_: &StreamKey, event: &Event<'_>| match event {
        Event::LeaseLost { id } => {
            observed.world.happened(group, What::LeaseLost { process: observed.number, entry: *id });
        }
        Event::Started { .. } | Event::Handled { .. } => {}
        event => observed.world.detail(format_args!("event {} {event:?}", observed.name)),
    };
    let mut builder = Consumer::durable(&seam::client(machine))
        .stream(STREAM)
        .group(&plan.groups[group])
        .consumer(&machine.name)
        .concurrency(worker.concurrency)
        .prefetch(worker.prefetch)
        .lease(plan.lease)
        .claim_every(plan.claim_every)
        .block(plan.block)
        .retry(RetryPolicy::exponential(plan.retry.0..=plan.retry.1.max(plan.retry.0)).max_attempts(plan.max_attempts))
        .backoff(plan.backoff.0, plan.backoff.1)
        .dead_letter(DEAD)
        .grace(Duration::from_secs(5))
        .observer(observer);
    if plan.lanes {
        builder = builder.order_by_field("key");
    }
    if plan.delete_acknowledged {
        builder = builder.delete_acknowledged();
    }
    builder
}

/// What an entry asks for.
struct Job {
    number: u64,
    kind: Kind,
    takes: Duration,
}

impl FromDelivery for Job {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        let field = |name: &str| delivery.entry().get(name).ok_or_else(|| DecodeError::missing_field(name));
        let number = |name: &str| {
            let text = std::str::from_utf8(field(name)?).ok();
            text.and_then(|text| text.parse().ok()).ok_or_else(|| DecodeError::new("not a number"))
        };
        let kind = Kind::of_name(field("kind")?).filter(|kind| *kind != Kind::Undecodable);
        let kind = kind.ok_or_else(|| DecodeError::new("no kind of message"))?;
        Ok(Self { number: number("n")?, kind, takes: Duration::from_millis(number("takes")?) })
    }
}

/// A handler at work.
struct Run {
    machine: Arc<Machine>,
    group: usize,
    job: Job,
    context: Context,
    which: u64,
    ended: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended && !self.machine.is_dead() && self.is_latest() {
            // It was aborted, and its entry goes to somebody else.
            let (process, entry) = (self.machine.number, self.context.id());
            self.machine.world.happened(self.group, What::LeaseLost { process, entry });
        }
    }
}

impl Run {
    fn begin(machine: &Arc<Machine>, job: Job, context: Context) -> Self {
        let world = &machine.world;
        let group = machine.group.unwrap_or(0);
        let (process, entry, number, attempt) = (machine.number, context.id(), job.number, context.attempt());
        watch::starts(machine, group, entry);
        let (which, before) = {
            let mut state = world.state();
            state.tally.starts += 1;
            let (which, began) = (state.tally.starts, world.now());
            (which, state.open.insert((process, entry), (which, attempt, began)))
        };
        if let Some((_, attempt, _)) = before.filter(|(.., began)| watch::lost_since(world, group, *began)) {
            // What it held before it knew of the loss is not its any more, and came back as another delivery.
            world.happened(group, What::Finished { process, entry, attempt, result: Returned::Failed });
        }
        world.happened(group, What::Started { process, entry, number, attempt });
        Self { machine: Arc::clone(machine), group, job, context, which, ended: false }
    }

    fn end(&mut self, result: Returned) {
        self.ended = true;
        if !self.is_latest() {
            return;
        }
        let (process, entry, attempt) = (self.machine.number, self.id(), self.context.attempt());
        let world = &self.machine.world;
        world.happened(self.group, What::Finished { process, entry, attempt, result });
        if result == Returned::Done && !self.context.is_cancelled() {
            watch::handled(&self.machine, self.group, entry);
        }
    }

    /// Whether no other run of the entry has begun here since; it is over then.
    fn is_latest(&self) -> bool {
        let mut state = self.machine.world.state();
        let place = (self.machine.number, self.context.id());
        let latest = state.open.get(&place).is_some_and(|(which, ..)| *which == self.which);
        if latest {
            state.open.remove(&place);
        }
        latest
    }

    fn id(&self) -> EntryId {
        self.context.id()
    }

    async fn work(mut self) -> Outcome {
        let takes = self.job.takes;
        match self.job.kind {
            Kind::Quick => {}
            Kind::Kills => {
                if !takes.is_zero() {
                    sleep(takes).await;
                }
                self.machine.kill();
                std::future::pending::<()>().await;
            }
            // Every third does not look whether it is still wanted.
            _ if self.job.number.is_multiple_of(3) => sleep(takes).await,
            _ => {
                tokio::select! {
                    biased;
                    () = self.context.cancelled() => {
                        self.end(Returned::Failed);
                        return Outcome::failed("told to stop");
                    }
                    () = sleep(takes) => {}
                }
            }
        }
        match self.job.kind {
            Kind::Flaky if u64::from(self.context.attempt()) <= 1 + self.job.number % 2 => {}
            Kind::Quick | Kind::Slow | Kind::Flaky => {
                self.end(Returned::Done);
                return Outcome::Done;
            }
            Kind::Rejected => {
                self.end(Returned::Rejected);
                return Outcome::reject("it is to be rejected");
            }
            Kind::Parked => {
                self.end(Returned::Failed);
                return Outcome::retry_after(PARKED);
            }
            _ => {}
        }
        self.end(Returned::Failed);
        if self.job.kind == Kind::Panics {
            std::panic::resume_unwind(Box::new("it is to panic"));
        }
        Outcome::failed("it is to fail")
    }
}
