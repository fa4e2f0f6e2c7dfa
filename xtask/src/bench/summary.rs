//! What the rounds of a race come to: medians, and ratios to the floor, each within its round.

use std::fmt::Write;

use serde::Serialize;

use super::race::Run;
use super::racer::Racer;
use super::workload::{Figure, Goal, Style, Workload};
use crate::table::table;

/// A race, summed up.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) workload: &'static str,
    pub(crate) what: &'static str,
    pub(crate) entries: u64,
    pub(crate) live: bool,
    /// The floor first.
    pub(crate) rows: Vec<Row>,
    pub(crate) reached: Vec<Reached>,
    pub(crate) allocations_per_entry: Option<f64>,
    pub(crate) runs: Vec<Run>,
}

/// One racer's medians.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) racer: String,
    pub(crate) rate: Option<f64>,
    /// Ratios to the floor.
    pub(crate) share: Option<Ratio>,
    pub(crate) cpu: Option<f64>,
    pub(crate) cpu_ratio: Option<Ratio>,
    pub(crate) server_cpu: Option<f64>,
    pub(crate) peak_mib: Option<f64>,
    pub(crate) acks_per_read: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p50_ratio: Option<Ratio>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p99_ratio: Option<Ratio>,
    pub(crate) p999_us: Option<f64>,
    pub(crate) failed: usize,
}

/// The median of ratios within rounds, the least and the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// A goal and what came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Reached {
    pub(crate) what: String,
    /// `None` where the figure is unknown.
    pub(crate) value: Option<f64>,
    pub(crate) met: bool,
}

impl Summary {
    pub(crate) fn of(workload: &Workload, racers: &[Racer], runs: Vec<Run>) -> Self {
        let base = racers.first().map(|racer| racer.name.clone()).unwrap_or_default();
        let rows: Vec<Row> = racers.iter().map(|racer| Row::of(&racer.name, &base, &runs)).collect();
        let reached = workload.goals.iter().filter_map(|goal| reached(goal, &rows)).collect();
        Self {
            workload: workload.name,
            what: workload.what,
            entries: workload.entries,
            live: matches!(workload.style, Style::Live { .. }),
            rows,
            reached,
            allocations_per_entry: None,
            runs,
        }
    }

    /// A table, and the goals.
    pub(crate) fn shown(&self) -> String {
        let mut out = if self.live {
            let head = ["racer", "p50 us", "of the floor", "p99 us", "of the floor", "p99.9 us", "CPU s/M", "MiB", ""];
            let cells = |row: &Row| {
                [
                    row.racer.clone(),
                    number(row.p50_us, 1),
                    ratio(row.p50_ratio),
                    number(row.p99_us, 1),
                    ratio(row.p99_ratio),
                    number(row.p999_us, 1),
                    number(row.cpu, 2),
                    number(row.peak_mib, 1),
                    failed(row),
                ]
            };
            table(head, &self.rows.iter().map(cells).collect::<Vec<_>>())
        } else {
            let head = ["racer", "entries/s", "of the floor", "CPU s/M", "server CPU s/M", "MiB", "XACK/read", ""];
            let cells = |row: &Row| {
                [
                    row.racer.clone(),
                    number(row.rate, 0),
                    ratio(row.share),
                    number(row.cpu, 3),
                    number(row.server_cpu, 2),
                    number(row.peak_mib, 1),
                    number(row.acks_per_read, 3),
                    failed(row),
                ]
            };
            table(head, &self.rows.iter().map(cells).collect::<Vec<_>>())
        };
        for goal in &self.reached {
            out += &goal.line();
        }
        if let Some(allocations) = self.allocations_per_entry {
            let _ = writeln!(out, "allocations per entry: {allocations:.2}");
        }
        out
    }
}

impl Row {
    fn of(racer: &str, base: &str, runs: &[Run]) -> Self {
        let mine = || runs.iter().filter(|run| run.racer == racer);
        let median_of = |figure: fn(&Run) -> Option<f64>| {
            median(mine().filter(|run| run.error.is_none()).filter_map(figure).collect())
        };
        let ratio_of = |figure: fn(&Run) -> Option<f64>| {
            let sound = |name: &str, round| {
                runs.iter().find(|run| run.racer == name && run.round == round && run.error.is_none()).and_then(figure)
            };
            Ratio::of(mine().filter_map(|run| Some(sound(racer, run.round)? / sound(base, run.round)?)).collect())
        };
        Self {
            racer: racer.to_owned(),
            rate: median_of(|run| run.rate),
            share: ratio_of(|run| run.rate),
            cpu: median_of(|run| run.cpu),
            cpu_ratio: ratio_of(|run| run.cpu),
            server_cpu: median_of(|run| run.server_cpu),
            peak_mib: median_of(|run| run.peak_mib),
            acks_per_read: median_of(|run| (run.reads > 0).then(|| run.acks as f64 / run.reads as f64)),
            p50_us: median_of(|run| run.p50_us),
            p50_ratio: ratio_of(|run| run.p50_us),
            p99_us: median_of(|run| run.p99_us),
            p99_ratio: ratio_of(|run| run.p99_us),
            p999_us: median_of(|run| run.p999_us),
            failed: mine().filter(|run| run.error.is_some()).count(),
        }
    }
}

impl Ratio {
    fn of(ratios: Vec<f64>) -> Option<Self> {
        let least = ratios.iter().copied().reduce(f64::min)?;
        let most = ratios.iter().copied().reduce(f64::max)?;
        Some(Self { median: median(ratios)?, least, most })
    }
}

impl Reached {
    /// A figure that must be at most `limit`.
    pub(crate) fn at_most(what: &str, value: Option<f64>, limit: f64) -> Self {
        let what = format!("{what} at most {limit}");
        Self { what, value, met: value.is_some_and(|value| value <= limit) }
    }

    /// A figure that must be at least `limit`.
    pub(crate) fn at_least(what: &str, value: Option<f64>, limit: f64) -> Self {
        let what = format!("{what} at least {limit}");
        Self { what, value, met: value.is_some_and(|value| value >= limit) }
    }

    pub(crate) fn line(&self) -> String {
        let state = if self.met { "met" } else { "NOT MET" };
        format!("goal: {}: {} {state}\n", self.what, number(self.value, 3))
    }
}

/// `None` where the racer did not take part.
fn reached(goal: &Goal, rows: &[Row]) -> Option<Reached> {
    let row = rows.iter().find(|row| row.racer == goal.racer)?;
    let median = |ratio: Option<Ratio>| ratio.map(|ratio| ratio.median);
    let (what, value) = match goal.figure {
        Figure::Rate => {
            return Some(Reached::at_least(
                &format!("{}, share of the floor", goal.racer),
                median(row.share),
                goal.limit,
            ));
        }
        Figure::Cpu => ("CPU seconds per million entries", row.cpu),
        Figure::CpuRatio => ("CPU as a multiple of the floor's", median(row.cpu_ratio)),
        Figure::Memory => ("MiB", row.peak_mib),
        Figure::P50 => ("p50 as a multiple of the floor's", median(row.p50_ratio)),
        Figure::P99 => ("p99 as a multiple of the floor's", median(row.p99_ratio)),
        Figure::Acks => ("XACK commands per read", row.acks_per_read),
    };
    Some(Reached::at_most(&format!("{}, {what}", goal.racer), value, goal.limit))
}

/// The middle of `values`, or between the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// A figure for people; `-` where it is unknown.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2} ({:.2}-{:.2})", ratio.median, ratio.least, ratio.most))
}

fn failed(row: &Row) -> String {
    if row.failed == 0 { String::new() } else { format!("{} FAILED", row.failed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(racer: &str, round: u32, rate: f64) -> Run {
        Run { racer: racer.to_owned(), round, rate: Some(rate), reads: 10, acks: 10, ..Run::default() }
    }

    #[test]
    fn ratios_are_within_a_round() {
        // The machine became twice as fast after the first round; the racer is at 0.9 throughout.
        let runs = [run("floor", 0, 100.0), run("own", 0, 90.0), run("floor", 1, 200.0), run("own", 1, 180.0)];
        let row = Row::of("own", "floor", &runs);
        assert_eq!(row.share, Some(Ratio { median: 0.9, least: 0.9, most: 0.9 }));
        assert_eq!((row.rate, row.acks_per_read), (Some(135.0), Some(1.0)));
    }

    #[test]
    fn a_run_that_failed_counts_as_failed_and_for_nothing_else() {
        let failed = Run { error: Some("it ended".to_owned()), ..run("own", 0, 1.0) };
        let runs = [run("floor", 0, 100.0), failed, run("floor", 1, 100.0), run("own", 1, 80.0)];
        let row = Row::of("own", "floor", &runs);
        assert_eq!((row.failed, row.rate, row.share.map(|ratio| ratio.median)), (1, Some(80.0), Some(0.8)));
    }

    #[test]
    fn a_goal_without_a_figure_is_not_met() {
        let goal = Goal { racer: "own", figure: Figure::Memory, limit: 16.0 };
        let rows = [Row::of("own", "floor", &[run("own", 0, 1.0)])];
        assert!(!reached(&goal, &rows).unwrap().met);
        assert!(reached(&Goal { racer: "absent", ..goal }, &rows).is_none());
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
