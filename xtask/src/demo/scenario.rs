//! What happens during the demo, and when: a worker is killed, another is stopped, the server is killed and started again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stream_testkit::RealServer;
use stream_testkit::history::{Cause, Ending, What};
use tokio::task::JoinHandle;

use super::plan::Plan;
use super::progress::Progress;
use super::publish::{Published, publish};
use crate::Failure;
use crate::asked::{Asked, State};
use crate::fleet::Fleet;
use crate::fleet::journal::now;

const WORKERS: usize = 3;
/// Between two looks at the workers.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks at the server.
const ASK: Duration = Duration::from_millis(250);
/// Without any progress for so long, it is not going to end well.
const STALLED: Duration = Duration::from_mins(1);
/// The publisher keeps this far ahead of the handlers at least.
const AHEAD: u64 = 2_000;

/// What is done to the system, at which part of the orders handled.
const EVENTS: [(f64, Event); 3] = [(0.25, Event::KillWorker), (0.45, Event::StopWorker), (0.65, Event::RestartServer)];

#[derive(Debug, Clone, Copy)]
enum Event {
    KillWorker,
    StopWorker,
    RestartServer,
}

/// What progress is made of, to notice that there is none.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    published: u64,
    runs: usize,
    state: Option<(u64, u64)>,
}

pub(crate) struct Scenario<'a> {
    server: &'a mut RealServer,
    asked: Asked,
    plan: Arc<Plan>,
    fleet: &'a mut Fleet,
    worker: Vec<String>,
    progress: Progress,
    expected: u64,
    done: usize,
}

impl<'a> Scenario<'a> {
    pub(crate) fn new(
        server: &'a mut RealServer,
        asked: Asked,
        plan: Arc<Plan>,
        fleet: &'a mut Fleet,
        worker: Vec<String>,
    ) -> Self {
        let expected = plan.orders().filter(|(_, kind)| !kind.is_dead()).count() as u64;
        Self { server, asked, plan, fleet, worker, progress: Progress::new(expected), expected, done: 0 }
    }

    /// Publishes and consumes everything, and stops the workers. Returns how long it took from the first order until
    /// nothing was left to do.
    ///
    /// # Errors
    /// It could not be brought to an end; that is worse than a bad end, which the checker finds.
    pub(crate) async fn run(mut self) -> Result<Duration, Failure> {
        let published = Arc::new(Published::default());
        let publisher = publish(self.asked.clone(), Arc::clone(&self.plan), Arc::clone(&published));
        let mut publisher = Publisher(Some(tokio::spawn(async move {
            // A failure is text here, since it comes from another task.
            publisher.await.map_err(|error| error.to_string())
        })));
        let began = Instant::now();
        for _ in 0..WORKERS {
            self.fleet.start(&self.worker)?;
        }
        let took = self.until_settled(&published, &mut publisher, began).await?;
        self.stop_all().await?;
        self.progress.finish();
        Ok(took)
    }

    async fn until_settled(
        &mut self,
        published: &Published,
        publisher: &mut Publisher,
        began: Instant,
    ) -> Result<Duration, Failure> {
        let mut state = None;
        let mut asked_at: Option<Instant> = None;
        let mut settled = 0;
        let mut mark: Option<(Mark, Instant)> = None;
        loop {
            for number in self.aborted()? {
                let next = self.fleet.start(&self.worker)?;
                self.progress.say(&format!("worker {number} was aborted by an order; worker {next} takes its place"));
            }
            publisher.check().await?;
            let handled = self.fleet.handled();
            published.allow(handled + AHEAD.max(self.plan.len() / 3));
            if asked_at.is_none_or(|at| at.elapsed() >= ASK) {
                state = self.asked.state().await;
                asked_at = Some(Instant::now());
                self.progress.show(published.confirmed(), handled, state);
                let is_settled = publisher.is_done() && state.is_some_and(|state| state.is_settled());
                settled = if is_settled { settled + 1 } else { 0 };
                if settled >= 2 && self.done == EVENTS.len() {
                    return Ok(began.elapsed());
                }
            }
            let now = Mark {
                published: published.confirmed(),
                runs: self.fleet.starts(),
                state: state.map(|state| (state.pending, state.dead_letters)),
            };
            match &mark {
                Some((before, since)) if *before == now => {
                    if since.elapsed() >= STALLED {
                        return Err(self.diagnosis(&now, state).into());
                    }
                }
                _ => mark = Some((now, Instant::now())),
            }
            // Where there is little to do, all may be done before it could be disturbed; disturbed it is nevertheless.
            if let Some((part, event)) = EVENTS.get(self.done)
                && (settled >= 1 || handled as f64 >= (self.expected as f64 * part).max(1.0))
            {
                self.happen(*event).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn aborted(&mut self) -> Result<Vec<u32>, Failure> {
        let ended = self.fleet.look()?;
        Ok(ended.into_iter().filter(|(_, how)| *how == Ending::Aborted).map(|(number, _)| number).collect())
    }

    /// Lets an event happen, if this is the moment for it.
    async fn happen(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::KillWorker => {
                let Some(victim) = self.fleet.working().next() else { return Ok(()) };
                let cut = self.fleet.kill(victim)?;
                let next = self.fleet.start(&self.worker)?;
                let what = format!("worker {victim} was killed in {cut} handler runs; worker {next} takes its place");
                self.progress.say(&what);
            }
            Event::StopWorker => {
                let Some(stopped) = self.fleet.working().next() else { return Ok(()) };
                self.fleet.stop(stopped)?;
                let next = self.fleet.start(&self.worker)?;
                self.progress.say(&format!("worker {stopped} was asked to stop; worker {next} takes its place"));
            }
            // A worker that stops while there is no server could give nothing back.
            Event::RestartServer if self.fleet.is_stopping() => return Ok(()),
            Event::RestartServer => {
                let down = now();
                self.server.kill9().await?;
                self.server.restart().await?;
                let up = now();
                let outage = What::Silence { process: None, cause: Cause::Server, since: down };
                self.fleet.history.add(up, outage);
                let took = Duration::from_micros(up - down);
                self.progress.say(&format!("the server was killed and is back after {:.2} s", took.as_secs_f64()));
            }
        }
        self.done += 1;
        Ok(())
    }

    async fn stop_all(&mut self) -> Result<(), Failure> {
        let working: Vec<u32> = self.fleet.working().collect();
        for number in working {
            self.fleet.stop(number)?;
        }
        while !self.fleet.is_empty() {
            self.fleet.look()?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn diagnosis(&self, mark: &Mark, state: Option<State>) -> String {
        format!(
            "no progress for {STALLED:?}: {} of {} orders published, {} of {} handled; the group: {state:?}; what the \
             workers logged last:\n{}",
            mark.published,
            self.plan.len(),
            self.fleet.handled(),
            self.expected,
            self.fleet.last_words()
        )
    }
}

/// The publisher's task, which ends with this value.
struct Publisher(Option<JoinHandle<Result<(), String>>>);

impl Publisher {
    fn is_done(&self) -> bool {
        self.0.is_none()
    }

    async fn check(&mut self) -> Result<(), Failure> {
        if let Some(task) = self.0.take_if(|task| task.is_finished()) {
            task.await??;
        }
        Ok(())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
