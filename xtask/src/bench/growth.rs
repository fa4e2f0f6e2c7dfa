//! What must not grow: cost per entry with the backlog or the number of streams, renewing with what is held, looking for
//! abandoned entries with what is pending, and doing nothing with the number of consumers.

use std::time::{Duration, Instant};

use serde::Serialize;
use stream_testkit::RealServer;
use streamkeeper::StreamKey;
use tokio::time::sleep;

use super::group::Asked;
use super::process::Cpu;
use super::programs::Programs;
use super::racer::Racer;
use super::running::{Errand, Running, Told};
use super::summary::{Reached, median, number};
use crate::Failure;
use crate::table::table;

/// One check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    Backlog,
    Streams,
    Renewing,
    Claiming,
    Idling,
}

/// What a check found: a figure or two for each size, and the goals.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    pub(crate) name: &'static str,
    what: &'static str,
    /// What the two figures of a row are.
    figures: [&'static str; 2],
    rows: Vec<(String, [Option<f64>; 2])>,
    pub(crate) reached: Vec<Reached>,
}

impl Found {
    pub(crate) fn shown(&self) -> String {
        let cell = |value| number(value, 3);
        let rows: Vec<_> =
            self.rows.iter().map(|(label, [one, other])| [label.clone(), cell(*one), cell(*other)]).collect();
        let goals: String = self.reached.iter().map(Reached::line).collect();
        format!("\n== {}: {}\n{}{goals}", self.name, self.what, table(["", self.figures[0], self.figures[1]], &rows))
    }
}

/// A server and the programs that a check runs on it.
struct Bench<'a> {
    server: &'a RealServer,
    programs: &'a Programs,
    quick: bool,
}

impl Growth {
    pub(crate) fn all() -> Vec<Self> {
        vec![Self::Backlog, Self::Streams, Self::Renewing, Self::Claiming, Self::Idling]
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Backlog => "growth-backlog",
            Self::Streams => "growth-streams",
            Self::Renewing => "growth-renewing",
            Self::Claiming => "growth-claiming",
            Self::Idling => "growth-idling",
        }
    }

    /// Measures.
    ///
    /// # Errors
    /// A program fails, or the server does not do as it is told.
    pub(crate) async fn run(
        self,
        server: &RealServer,
        programs: &Programs,
        quick: bool,
        large: bool,
    ) -> Result<Found, Failure> {
        let bench = Bench { server, programs, quick };
        match self {
            Self::Backlog => bench.backlog(large).await,
            Self::Streams => bench.streams().await,
            Self::Renewing => bench.renewing().await,
            Self::Claiming => bench.claiming().await,
            Self::Idling => bench.idling().await,
        }
    }
}

const STREAM: &str = "bench:growth";
/// Figures of a drain, per entry.
const COSTS: [&str; 2] = ["wall us/entry", "CPU us/entry"];
/// Figures of something that goes on in the background.
const SHARES: [&str; 2] = ["client CPU ms/s", "server CPU ms/s"];

impl Bench<'_> {
    /// The first entries of backlogs of several sizes, and all of them.
    async fn backlog(&self, large: bool) -> Result<Found, Failure> {
        let sizes: &[u64] = match (self.quick, large) {
            (true, _) => &[10_000, 100_000],
            (false, false) => &[10_000, 100_000, 1_000_000],
            (false, true) => &[10_000, 100_000, 1_000_000, 5_000_000],
        };
        let first = 10_000;
        let mut asked = Asked::of(self.server).await?;
        let mut heads = Vec::new();
        let mut wholes = Vec::new();
        for &size in sizes {
            self.fill(&mut asked, size, 1).await?;
            let mut head = Vec::new();
            for _ in 0..if self.quick { 3 } else { 15 } {
                head.push(self.drain(&mut asked, first, 1).await?);
            }
            heads.push((format!("the first {first} of {size}"), costs(&head, first)));
            if size > first {
                let mut whole = Vec::new();
                for _ in 0..if self.quick { 1 } else { 3 } {
                    whole.push(self.drain(&mut asked, size, 1).await?);
                }
                wholes.push((format!("all of {size}"), costs(&whole, size)));
            }
        }
        let reached = vec![
            spread("wall time of the first entries, greatest to least", &heads, 0, 1.1),
            spread("CPU of the first entries, greatest to least", &heads, 1, 1.1),
            spread("wall time of all entries, greatest to least", &wholes, 0, 1.1),
            spread("CPU of all entries, greatest to least", &wholes, 1, 1.1),
        ];
        heads.extend(wholes);
        let what = "cost per entry, by the size of the backlog";
        Ok(Found { name: Growth::Backlog.name(), what, figures: COSTS, rows: heads, reached })
    }

    /// The same number of entries over more and more streams.
    async fn streams(&self) -> Result<Found, Failure> {
        let entries = if self.quick { 40_000 } else { 400_000 };
        let counts = [1, 4, 16, 64];
        let mut told: Vec<Vec<Told>> = counts.iter().map(|_| Vec::new()).collect();
        let mut asked = Asked::of(self.server).await?;
        for _ in 0..if self.quick { 1 } else { 5 } {
            for (place, &count) in counts.iter().enumerate() {
                self.fill(&mut asked, entries, count).await?;
                told[place].push(self.drain(&mut asked, entries, count).await?);
            }
        }
        let rows: Vec<_> =
            counts.iter().zip(&told).map(|(count, told)| (format!("{count} streams"), costs(told, entries))).collect();
        let reached = vec![
            spread("wall time, greatest to least", &rows, 0, 1.15),
            spread("CPU, greatest to least", &rows, 1, 1.15),
        ];
        let what = "cost per entry, by the number of streams of one consumer";
        Ok(Found { name: Growth::Streams.name(), what, figures: COSTS, rows, reached })
    }

    /// Holding 10,000 entries and renewing their leases.
    async fn renewing(&self) -> Result<Found, Failure> {
        let held = 10_000;
        let mut asked = Asked::of(self.server).await?;
        self.fill(&mut asked, held, 1).await?;
        asked.fresh_group(STREAM).await?;
        let racer = Racer::own(self.programs, "holder", "durable hold").on_one_thread();
        let running = Running::start(&racer, self.errand(held, &[]))?;
        self.until_pending(&mut asked, held).await?;
        let shares = self.observe(&mut asked, &running, Duration::from_secs(30)).await?;
        let reached = vec![
            Reached::at_most("client CPU in ms a second", shares[0], 10.0),
            Reached::at_most("server CPU in ms a second", shares[1], 10.0),
        ];
        let what = "renewing the leases of what is held, at the default lease of 30 s";
        let rows = vec![(format!("{held} held"), shares)];
        Ok(Found { name: Growth::Renewing.name(), what, figures: SHARES, rows, reached })
    }

    /// Looking for abandoned entries among many that are pending and not abandoned.
    async fn claiming(&self) -> Result<Found, Failure> {
        let pending = if self.quick { 100_000 } else { 1_000_000 };
        let mut asked = Asked::of(self.server).await?;
        self.fill(&mut asked, pending, 1).await?;
        asked.fresh_group(STREAM).await?;
        let holder = Racer::own(self.programs, "holder", "take");
        Running::start(&holder, self.errand(pending, &[]))?.ended().await?;
        // The lease is long so that nothing is abandoned meanwhile; the interval is the default one for 30 s.
        let settings = [("LEASE_MS", "600000"), ("CLAIM_MS", "10000")];
        let racer = Racer::own(self.programs, "claimer", "durable").on_one_thread();
        let running = Running::start(&racer, self.errand(1, &settings))?;
        let shares = self.observe(&mut asked, &running, Duration::from_secs(60)).await?;
        let mut rows = vec![(format!("{pending} pending"), shares)];
        for command in ["xautoclaim", "xpending", "xclaim", "evalsha", "eval", "xinfo|groups"] {
            let calls = asked.calls(command).await?;
            if calls.count > 0 {
                let label = format!("of which {command}, {} calls", calls.count);
                let window = self.window(Duration::from_secs(60)).as_secs_f64();
                rows.push((label, [None, Some(calls.microseconds as f64 / 1e3 / window)]));
            }
        }
        let reached = vec![Reached::at_most("server CPU in ms a second", shares[1], 10.0)];
        let what = "looking for abandoned entries every 10 s, among entries that another holds";
        Ok(Found { name: Growth::Claiming.name(), what, figures: SHARES, rows, reached })
    }

    /// 200 consumers in one process, with nothing to do.
    async fn idling(&self) -> Result<Found, Failure> {
        let mut asked = Asked::of(self.server).await?;
        let racer = Racer::own(self.programs, "idle", "idle").on_one_thread();
        let running = Running::start(&racer, self.errand(0, &[("STREAMS", "200")]))?;
        let shares = self.observe(&mut asked, &running, Duration::from_secs(30)).await?;
        let reached = vec![Reached::at_most("client CPU in ms a second", shares[0], 10.0)];
        let what = "consumers of a stream each in one process, with nothing to do";
        let rows = vec![("200 consumers".to_owned(), shares)];
        Ok(Found { name: Growth::Idling.name(), what, figures: SHARES, rows, reached })
    }

    fn errand<'a>(&self, entries: u64, more: &'a [(&'a str, &'a str)]) -> Errand<'a> {
        Errand { port: self.server.port(), stream: STREAM, entries, size: 200, more }
    }

    async fn fill(&self, asked: &mut Asked, entries: u64, streams: usize) -> Result<(), Failure> {
        asked.command(&["FLUSHALL"]).await?;
        let streams = streams.to_string();
        let filler = Racer::own(self.programs, "filler", "fill");
        Running::start(&filler, self.errand(entries, &[("STREAMS", &streams)]))?.ended().await
    }

    /// Drains the first `entries` with a new group, by the consumer's own clock.
    async fn drain(&self, asked: &mut Asked, entries: u64, streams: usize) -> Result<Told, Failure> {
        if streams == 1 {
            asked.fresh_group(STREAM).await?;
        }
        let streams = streams.to_string();
        let racer = Racer::own(self.programs, "own", "durable").on_one_thread();
        let mut running = Running::start(&racer, self.errand(entries, &[("STREAMS", &streams)]))?;
        let told = running.told().await?.ok_or("the consumer reported nothing")?;
        running.ended().await?;
        if told.n < entries { Err(format!("only {} of {entries} were handled", told.n).into()) } else { Ok(told) }
    }

    async fn until_pending(&self, asked: &mut Asked, entries: u64) -> Result<(), Failure> {
        let key = StreamKey::new(STREAM)?;
        let begin = Instant::now();
        while asked.position(&key).await?.pending < entries {
            if begin.elapsed() > Duration::from_secs(30) {
                return Err("the consumer does not take up the entries".into());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Processor time of the client and the server, in milliseconds a second, once all is under way.
    async fn observe(
        &self,
        asked: &mut Asked,
        running: &Running,
        window: Duration,
    ) -> Result<[Option<f64>; 2], Failure> {
        sleep(Duration::from_secs(3)).await;
        asked.command(&["CONFIG", "RESETSTAT"]).await?;
        let mut client = Cpu::of(running.process);
        let (used, server) = (client.look(), asked.cpu());
        let begin = Instant::now();
        sleep(self.window(window)).await;
        let elapsed = begin.elapsed().as_secs_f64();
        let client = client.look().zip(used).map(|(after, before)| (after - before).as_secs_f64());
        let server = asked.cpu().zip(server).map(|(after, before)| after - before);
        Ok([client, server].map(|used| used.map(|seconds| seconds * 1e3 / elapsed)))
    }

    fn window(&self, full: Duration) -> Duration {
        if self.quick { full.min(Duration::from_secs(12)) } else { full }
    }
}

/// Medians per entry, in microseconds.
fn costs(told: &[Told], entries: u64) -> [Option<f64>; 2] {
    let per_entry =
        |figure: fn(&Told) -> f64| median(told.iter().map(|told| figure(told) * 1e6 / entries as f64).collect());
    [per_entry(|told| told.seconds), per_entry(|told| told.cpu_seconds)]
}

fn spread(what: &str, rows: &[(String, [Option<f64>; 2])], figure: usize, limit: f64) -> Reached {
    let values = || rows.iter().filter_map(|(_, figures)| figures[figure]);
    let spread = values().reduce(f64::max).zip(values().reduce(f64::min)).map(|(most, least)| most / least);
    Reached::at_most(what, spread, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_one_figure() {
        let rows = [("a".to_owned(), [Some(1.0), Some(3.0)]), ("b".to_owned(), [Some(1.2), Some(3.0)])];
        assert_eq!(spread("x", &rows, 0, 1.1).value, Some(1.2));
        assert!(!spread("x", &rows, 0, 1.1).met && spread("x", &rows, 1, 1.1).met);
    }
}
