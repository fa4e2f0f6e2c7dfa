//! One run of one racer, watched from outside: the clock runs from the last look at which the group had delivered nothing
//! to the first at which all is delivered and nothing pending, so that starting up is not counted.

use std::time::{Duration, Instant};

use serde::Serialize;
use stream_testkit::RealServer;
use streamkeeper::{EntryId, StreamKey};
use tokio::time::{sleep, timeout};

use super::group::Asked;
use super::process::{Cpu, memory};
use super::racer::Racer;
use super::running::{Errand, Running, Told};
use super::workload::{Style, Workload};
use crate::Failure;

/// How often the group is asked where it stands.
const LOOK: Duration = Duration::from_millis(2);
/// How often memory is looked at.
const LOOK_AT_MEMORY: Duration = Duration::from_millis(20);
/// How long a run may take.
const LIMIT: Duration = Duration::from_mins(3);

/// What came of one run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Run {
    pub(crate) racer: String,
    pub(crate) round: u32,
    /// Entries a second; none where they come at a rate.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    /// Processor seconds per million entries.
    pub(crate) cpu: Option<f64>,
    pub(crate) server_cpu: Option<f64>,
    pub(crate) peak_mib: Option<f64>,
    pub(crate) reads: u64,
    pub(crate) acks: u64,
    pub(crate) allocations: Option<u64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    /// Pairs of a share and the latency that it does not exceed.
    pub(crate) quantiles_us: Vec<(f64, f64)>,
    /// Pairs of seconds since the first entry and resident MiB.
    pub(crate) memory: Vec<(f64, f64)>,
    pub(crate) error: Option<String>,
}

impl Run {
    /// For the progress.
    pub(crate) fn line(&self) -> String {
        let number = |value: Option<f64>, unit: &str| value.map(|value| format!("  {value:.2} {unit}"));
        let parts = [
            self.rate.map(|rate| format!("  {rate:.0}/s")),
            number(self.p50_us, "us at p50"),
            number(self.p99_us, "us at p99"),
            number(self.cpu, "s/M"),
            self.error.as_ref().map(|error| format!("  FAILED: {error}")),
        ];
        let parts: String = parts.into_iter().flatten().collect();
        format!("   round {}  {:24}{parts}", self.round + 1, self.racer)
    }

    fn take(&mut self, told: Told) {
        self.allocations = told.allocations;
        (self.p50_us, self.p99_us, self.p999_us) = (told.p50_us, told.p99_us, told.p999_us);
        self.quantiles_us = told.quantiles_us;
    }
}

/// Runs `racer` once. What goes wrong with it is in [`Run::error`].
///
/// # Errors
/// The server does not do as it is told, or the racer's stream cannot be filled.
pub(crate) async fn run(server: &RealServer, workload: &Workload, racer: &Racer, round: u32) -> Result<Run, Failure> {
    let mut asked = Asked::of(server).await?;
    let kind = racer.kind.unwrap_or(workload.kind);
    let style = match workload.style {
        Style::Drain | Style::Slow | Style::Tail => "backlog",
        Style::Live { .. } => "live",
        Style::Publish => "publish",
    };
    let filler = if racer.fill.is_some() { racer.name.as_str() } else { "" };
    let stream = format!("bench:{style}:{kind}:{}:{filler}", racer.field);
    let errand =
        Errand { port: server.port(), stream: &stream, entries: workload.entries, size: workload.size, more: &[] };
    let mut run = Run { racer: racer.name.clone(), round, ..Run::default() };
    let outcome = match workload.style {
        Style::Drain | Style::Slow => {
            fill(&mut asked, racer, kind, errand).await?;
            drain(&mut asked, workload.style, racer, errand, &mut run).await
        }
        Style::Tail => {
            fill(&mut asked, racer, kind, errand).await?;
            by_its_own_clock(racer, errand, &mut run).await
        }
        Style::Publish => {
            asked.command(&["DEL", &stream]).await?;
            let outcome = by_its_own_clock(racer, errand, &mut run).await;
            let length = asked.length(&stream).await?;
            if length == workload.entries { outcome } else { Err(format!("{length} entries arrived").into()) }
        }
        Style::Live { rate } => {
            asked.command(&["DEL", &stream]).await?;
            live(&mut asked, rate, racer, errand, &mut run).await
        }
    };
    if let Err(error) = outcome {
        run.error = Some(error.to_string());
    }
    Ok(run)
}

/// Fills the racer's stream, unless it is.
async fn fill(asked: &mut Asked, racer: &Racer, kind: &str, errand: Errand<'_>) -> Result<(), Failure> {
    if asked.length(errand.stream).await? == errand.entries {
        return Ok(());
    }
    asked.command(&["DEL", errand.stream]).await?;
    let filler = match &racer.fill {
        Some((program, arguments, last)) => {
            let mut filler = Racer { program: program.clone(), arguments: arguments.clone(), ..racer.clone() };
            let words = [errand.stream, &errand.entries.to_string(), &errand.size.to_string(), last];
            filler.arguments.extend(words.map(Into::into));
            filler
        }
        None => helper(racer, &["fill", kind]),
    };
    let field = [("FIELD", racer.field)];
    Running::start(&filler, Errand { more: &field, ..errand })?.ended().await?;
    let length = asked.length(errand.stream).await?;
    if length == errand.entries { Ok(()) } else { Err(format!("the stream has {length} entries").into()) }
}

/// Our own program for load, beside that of a racer.
fn helper(racer: &Racer, words: &[&str]) -> Racer {
    let program = racer.helper.clone();
    Racer { program, arguments: words.iter().map(Into::into).collect(), environment: Vec::new(), ..racer.clone() }
}

async fn drain(
    asked: &mut Asked,
    style: Style,
    racer: &Racer,
    errand: Errand<'_>,
    run: &mut Run,
) -> Result<(), Failure> {
    let key = StreamKey::new(errand.stream)?;
    let last = asked.last(errand.stream).await?;
    asked.fresh_group(errand.stream).await?;
    let slow = [("W3", "1")];
    let errand = if style == Style::Slow { Errand { more: &slow, ..errand } } else { errand };
    let mut running = Running::start(racer, errand)?;
    let mut watched = Watched::new(running.process);
    let begin = Instant::now();
    loop {
        let position = asked.position(&key).await?;
        if position.delivered == EntryId::ZERO {
            // The clock runs from the last look that saw nothing: the next may come after several reads at once.
            watched.restart();
        }
        watched.look(asked);
        if position.delivered >= last && position.pending == 0 {
            break;
        }
        if begin.elapsed() > LIMIT {
            return Err(format!("not done after {LIMIT:?}: {position:?}").into());
        }
        if let Some(status) = running.child.try_wait()? {
            // It may have ended between the look and this.
            if asked.position(&key).await?.pending == 0 && status.success() {
                break;
            }
            return Err(format!("ended early ({status}): {position:?}").into());
        }
        sleep(LOOK).await;
    }
    watched.conclude(asked, errand.entries, run);
    run.rate = Some(errand.entries as f64 / run.seconds);
    run.reads = asked.calls("xreadgroup").await?.count;
    run.acks = asked.calls("xack").await?.count;
    // Some racers end only when they are ended.
    if let Ok(Ok(Some(told))) = timeout(Duration::from_secs(5), running.told()).await {
        run.take(told);
    }
    Ok(())
}

async fn by_its_own_clock(racer: &Racer, errand: Errand<'_>, run: &mut Run) -> Result<(), Failure> {
    let mut running = Running::start(racer, errand)?;
    let process = running.process;
    let told = {
        let begin = Instant::now();
        let told = running.told();
        tokio::pin!(told);
        loop {
            tokio::select! {
                told = &mut told => break told?,
                () = sleep(LOOK_AT_MEMORY) => {
                    if let Some((now, most)) = memory(process) {
                        run.memory.push((begin.elapsed().as_secs_f64(), now));
                        run.peak_mib = Some(most.max(run.peak_mib.unwrap_or(0.0)));
                    }
                }
            }
        }
    };
    let told = told.ok_or("it said nothing")?;
    run.seconds = told.seconds;
    run.rate = Some(errand.entries as f64 / told.seconds);
    run.cpu = Some(told.cpu_seconds / errand.entries as f64 * 1e6);
    run.take(told);
    running.ended().await
}

async fn live(asked: &mut Asked, rate: u32, racer: &Racer, errand: Errand<'_>, run: &mut Run) -> Result<(), Failure> {
    asked.fresh_group(errand.stream).await?;
    let live = [("LIVE", "1")];
    let mut running = Running::start(racer, Errand { more: &live, ..errand })?;
    sleep(racer.warm_up).await;
    let seconds = errand.entries as f64 / f64::from(rate);
    let (rate, secs) = (rate.to_string(), seconds.to_string());
    let more = [("RATE", rate.as_str()), ("SECS", secs.as_str()), ("FIELD", racer.field)];
    let mut watched = Watched::new(running.process);
    watched.look(asked);
    let feeder = Running::start(&helper(racer, &["feed"]), Errand { more: &more, ..errand })?;
    let limit = Duration::from_secs_f64(seconds) + Duration::from_secs(30);
    let told = timeout(limit, running.told()).await.map_err(|_| "it reported nothing in time")??;
    watched.conclude(asked, errand.entries, run);
    run.take(told.ok_or("it reported nothing")?);
    feeder.ended().await
}

/// Processor time and memory since the first look.
struct Watched {
    process: u32,
    cpu: Cpu,
    begin: Option<(Instant, Option<Duration>, Option<f64>)>,
    used: Option<Duration>,
    memory: Vec<(f64, f64)>,
    peak: Option<f64>,
    next: Duration,
}

impl Watched {
    fn new(process: u32) -> Self {
        let cpu = Cpu::of(process);
        Self { process, cpu, begin: None, used: None, memory: Vec::new(), peak: None, next: Duration::ZERO }
    }

    fn restart(&mut self) {
        (self.begin, self.next) = (None, Duration::ZERO);
        self.memory.clear();
    }

    fn look(&mut self, asked: &mut Asked) {
        self.used = self.cpu.look().or(self.used);
        let (begin, ..) = *self.begin.get_or_insert_with(|| (Instant::now(), self.used, asked.cpu()));
        let elapsed = begin.elapsed();
        if elapsed >= self.next {
            self.next = elapsed + LOOK_AT_MEMORY;
            self.look_at_memory(elapsed);
        }
    }

    fn look_at_memory(&mut self, elapsed: Duration) {
        if let Some((now, most)) = memory(self.process) {
            self.memory.push((elapsed.as_secs_f64(), now));
            self.peak = Some(most.max(self.peak.unwrap_or(0.0)));
        }
    }

    fn conclude(mut self, asked: &mut Asked, entries: u64, run: &mut Run) {
        let end = Instant::now();
        self.used = self.cpu.look().or(self.used);
        let server = asked.cpu();
        let Some((begin, used, server_before)) = self.begin else { return };
        let elapsed = end - begin;
        self.look_at_memory(elapsed);
        let million = entries as f64 / 1e6;
        run.seconds = elapsed.as_secs_f64().max(1e-3);
        run.cpu = self.used.zip(used).map(|(after, before)| after.saturating_sub(before).as_secs_f64() / million);
        run.server_cpu = server.zip(server_before).map(|(after, before)| (after - before) / million);
        (run.memory, run.peak_mib) = (self.memory, self.peak);
    }
}
