//! Everything of one call: results.json, the pictures, and how many goals were met.

use std::fs;
use std::path::Path;

use serde::Serialize;
use stream_testkit::ServerBinary;

use super::growth::Found;
use super::picture::{Bar, Line, bars, lines};
use super::process::load;
use super::summary::{Row, Summary};
use crate::Failure;

/// What the figures depend on.
#[derive(Debug, Serialize)]
pub(crate) struct Setup {
    server: String,
    processors: usize,
    /// How busy the machine was just before, in processors: a figure from a busy machine means little.
    load_before: Option<f64>,
    quick: bool,
}

impl Setup {
    pub(crate) fn of(server: &ServerBinary, quick: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let load_before = load();
        if let Some(load) = load_before
            && load > 0.5
        {
            println!("this machine is busy (load {load}): figures will drift");
        }
        Self { server: format!("{} {}", server.name(), server.version()), processors, load_before, quick }
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    setup: Setup,
    races: Vec<Summary>,
    checks: Vec<Found>,
    /// Workloads that could not be measured, and why.
    failures: Vec<String>,
}

impl Report {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, races: Vec::new(), checks: Vec::new(), failures: Vec::new() }
    }

    pub(crate) fn add(&mut self, race: Summary) {
        self.races.push(race);
    }

    pub(crate) fn add_check(&mut self, found: Found) {
        self.checks.push(found);
    }

    /// A workload could not be measured.
    pub(crate) fn failed(&mut self, name: &str, error: &Failure) {
        eprintln!("{name} FAILED: {error}");
        self.failures.push(format!("{name}: {error}"));
    }

    /// # Errors
    /// Something could not be measured. A goal that was not met is no error: machines differ.
    pub(crate) fn outcome(&self) -> Result<(), Failure> {
        if self.failures.is_empty() { Ok(()) } else { Err(self.failures.join("\n").into()) }
    }

    /// How many goals were met.
    pub(crate) fn verdict(&self) -> String {
        let races = self.races.iter().flat_map(|race| &race.reached);
        let all: Vec<bool> =
            races.chain(self.checks.iter().flat_map(|check| &check.reached)).map(|goal| goal.met).collect();
        let met = all.iter().filter(|met| **met).count();
        let failed: usize = self.races.iter().flat_map(|race| &race.rows).map(|row| row.failed).sum();
        let failed = if failed == 0 { String::new() } else { format!("{failed} runs FAILED\n") };
        format!("{failed}{met} of {} goals met\n", all.len())
    }

    /// Writes results.json and the pictures that there are figures for.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn write(&self, out: &Path) -> Result<(), Failure> {
        fs::create_dir_all(out).map_err(|error| format!("cannot make the folder {}: {error}", out.display()))?;
        fs::write(out.join("results.json"), serde_json::to_vec_pretty(self)?)?;
        let share = self.bars(|row| Some((row.share?.median, format!("{:.2}", row.share?.median))), true);
        let cpu = self.bars(|row| Some((row.cpu?, format!("{:.2} s", row.cpu?))), false);
        let pictures = [
            ("share.svg", bars("Throughput as a share of the floor", &share)),
            ("cpu.svg", bars("Client CPU seconds per million entries", &cpu)),
            ("latency.svg", self.latencies()),
            ("memory.svg", self.memory()),
        ];
        for (name, picture) in pictures {
            if let Some(picture) = picture {
                fs::write(out.join(name), picture)?;
            }
        }
        Ok(())
    }

    fn bars(&self, figure: impl Fn(&Row) -> Option<(f64, String)>, floor_at_one: bool) -> Vec<Bar> {
        let mut bars = Vec::new();
        for race in self.races.iter().filter(|race| !(race.live && floor_at_one)) {
            for (place, row) in race.rows.iter().enumerate() {
                if let Some((value, text)) = figure(row) {
                    let label = format!("{} · {}", race.workload, row.racer);
                    bars.push(Bar { label, value, text, is_floor: place == 0 });
                }
            }
        }
        bars
    }

    /// The distribution of latencies of the first live race, over the share of entries that were slower.
    fn latencies(&self) -> Option<String> {
        let race = self.races.iter().find(|race| race.live)?;
        let mut found = Vec::new();
        for row in &race.rows {
            // The round in the middle, by its median.
            let mut runs: Vec<_> = race
                .runs
                .iter()
                .filter(|run| run.racer == row.racer && run.error.is_none() && !run.quantiles_us.is_empty())
                .collect();
            runs.sort_by(|one, other| one.p50_us.unwrap_or(0.0).total_cmp(&other.p50_us.unwrap_or(0.0)));
            let Some(run) = runs.get(runs.len() / 2) else { continue };
            // Nines on the horizontal axis: 0.9 is 1, 0.99 is 2.
            let points = run.quantiles_us.iter().filter(|(share, _)| *share < 1.0);
            let points = points.map(|(share, latency)| (-(1.0 - share).log10(), *latency)).collect();
            found.push(Line { label: row.racer.clone(), points });
        }
        let ticks = [(0.0, "0"), (0.301, "50 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %")];
        let title = format!("{}: latency in µs, by the share of entries that are as fast", race.workload);
        lines(&title, &found, &ticks, true)
    }

    /// Resident memory over time, of the last round of the first drain.
    fn memory(&self) -> Option<String> {
        let race = self.races.iter().find(|race| !race.live)?;
        let mut found = Vec::new();
        for row in &race.rows {
            if let Some(run) = race.runs.iter().rev().find(|run| run.racer == row.racer && run.memory.len() > 1) {
                found.push(Line { label: row.racer.clone(), points: run.memory.clone() });
            }
        }
        let end = found.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
        let marks: Vec<(f64, String)> =
            (0..=4).map(|quarter| end * f64::from(quarter) / 4.0).map(|at| (at, format!("{at:.1} s"))).collect();
        let ticks: Vec<(f64, &str)> = marks.iter().map(|(at, text)| (*at, text.as_str())).collect();
        lines(&format!("{}: resident memory in MiB", race.workload), &found, &ticks, false)
    }
}
