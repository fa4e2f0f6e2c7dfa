//! A racer: a process that drains, follows or fills a stream as fast as it can, or at a rate.
//!
//! `bench-client WHAT`, with the task in environment variables, the same that other racers get: `PORT`, `STREAM`, `GROUP`
//! (exists, created at 0) and `EXPECT` (entries). With `LIVE`, latencies from a time stamp in the payload are printed; with
//! `W3` the handler sleeps for 5 ms and 100 run at a time. What must stay true: a racer ends when `EXPECT` entries are
//! handled and acknowledged, and its last line on stdout is one JSON object.

mod durable;
mod floor;
mod load;
mod raw;
mod report;
mod rust_redis;
mod tail;

use std::time::Duration;

pub use report::Allocations;
use report::Watch;

use crate::Failure;

/// What a racer has to do.
#[derive(Debug, Clone)]
pub struct Task {
    /// The server's port on the loopback interface.
    pub port: u16,
    /// The stream, or what the names of several begin with.
    pub stream: String,
    /// The group.
    pub group: String,
    /// How many entries there are.
    pub expect: u64,
    /// The field that the payload is in, where entries are written.
    pub field: String,
    /// Bytes of a payload.
    pub size: usize,
    /// Entries arrive while they are consumed, and carry the time at which they were sent.
    pub live: bool,
    /// Handlers sleep for 5 ms, 100 at a time.
    pub slow: bool,
}

impl Task {
    /// # Errors
    /// A variable is not a number.
    pub fn from_env() -> Result<Self, Failure> {
        Ok(Self {
            port: number("PORT", 6379)?,
            stream: text("STREAM", "bench"),
            group: text("GROUP", "g"),
            expect: number("EXPECT", 1_000)?,
            field: text("FIELD", "data"),
            size: number("SIZE", 200)?,
            live: std::env::var_os("LIVE").is_some(),
            slow: std::env::var_os("W3").is_some(),
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

const SLOW: Duration = Duration::from_millis(5);

const USAGE: &str = "usage: bench-client WHAT, with PORT, STREAM, GROUP and EXPECT in the environment
  racers on a group: durable [noop|batch|json|ordered|hold], floor [COUNT], redis-typed, redis-semaphore
  without a group: tail, floor-tail; publish [BATCH], floor-publish; idle (STREAMS consumers)
  load: fill [text|json|string|keyed], feed (RATE a second for SECS), take (reads EXPECT entries and acknowledges none)
  THREADS=1 runs on a current-thread runtime; STREAMS=N spreads over streams named STREAM:0 and so on";

/// Runs the racer that the arguments name. `allocations` counts those of this process, where something does.
///
/// # Errors
/// Whatever stops it.
pub fn main(allocations: Option<Allocations>) -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let task = Task::from_env()?;
    let watch = Watch::new(&task, allocations);
    match words[..] {
        ["floor"] => floor::drain(&task, 1_000, &watch),
        ["floor", count] => floor::drain(&task, count.parse()?, &watch),
        ["floor-tail"] => floor::tail(&task, &watch),
        ["floor-publish"] => load::publish(&task, &watch),
        ["fill"] => load::fill(&task, load::Kind::Text),
        ["fill", kind] => load::fill(&task, kind.parse()?),
        ["feed"] => load::feed(&task, number("RATE", 1_000.0)?, number("SECS", 5.0)?),
        ["take"] => floor::take(&task),
        ["durable"] => block_on(durable::run(&task, durable::What::NoOp, watch)),
        ["durable", what] => block_on(durable::run(&task, what.parse()?, watch)),
        ["idle"] => block_on(durable::idle(&task)),
        ["redis-typed"] => block_on(rust_redis::typed(&task, &watch)),
        ["redis-semaphore"] => block_on(rust_redis::semaphore(&task, &watch)),
        ["tail"] => block_on(tail::follow(&task, watch)),
        ["publish"] => block_on(tail::publish(&task, None, &watch)),
        ["publish", batch] => block_on(tail::publish(&task, Some(batch.parse()?), &watch)),
        _ => Err(USAGE.into()),
    }
}

fn block_on(future: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let mut runtime = if number("THREADS", 0)? == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    runtime.enable_all().build()?.block_on(future)
}

/// How many streams the task is spread over.
fn streams(task: &Task) -> Result<Vec<String>, Failure> {
    match number("STREAMS", 1)? {
        1 => Ok(vec![task.stream.clone()]),
        many => Ok((0..many).map(|n| format!("{}:{n}", task.stream)).collect()),
    }
}

fn text(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, default: T) -> Result<T, Failure> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|error| format!("{name}={text}: {error}").into()),
        Err(_) => Ok(default),
    }
}
