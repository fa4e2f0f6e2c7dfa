//! How far the demo is: a line that is drawn over on a terminal, a line now and then elsewhere. Always on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::asked::State;

/// Between two lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Progress {
    total: u64,
    started: Instant,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Progress {
    /// `total` is the number of orders that are going to be handled.
    pub(crate) fn new(total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {percent:>3}%  {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Self { total, started: Instant::now(), bar, last_line: None }
    }

    /// Something has happened that a reader should see.
    pub(crate) fn say(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("{:>5.1} s  {what}", self.started.elapsed().as_secs_f64())),
            None => eprintln!("{:>5.1} s  {what}", self.started.elapsed().as_secs_f64()),
        }
    }

    pub(crate) fn show(&mut self, published: u64, handled: u64, state: Option<State>) {
        let message = message(published, handled, state);
        if let Some(bar) = &self.bar {
            bar.set_position(handled.min(self.total));
            bar.set_message(message);
        } else if self.last_line.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last_line = Some(Instant::now());
            self.say(&message);
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn message(published: u64, handled: u64, state: Option<State>) -> String {
    let group = match state {
        Some(state) => {
            let lag = state.lag.map_or_else(|| "unknown".to_owned(), |lag| lag.to_string());
            format!("pending {}, lag {lag}, dead letters {}", state.pending, state.dead_letters)
        }
        None => "the server does not answer".to_owned(),
    };
    format!("published {published}, handled {handled}, {group}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use streamkeeper::EntryId;

    #[test]
    fn a_lag_that_is_not_known_is_not_0() {
        let id = EntryId::new(1, 0);
        let state = State {
            pending: 3,
            oldest_pending: None,
            lag: None,
            last_delivered: id,
            last_published: id,
            first: None,
            dead_letters: 2,
        };
        assert_eq!(message(9, 4, Some(state)), "published 9, handled 4, pending 3, lag unknown, dead letters 2");
        let state = State { lag: Some(0), ..state };
        assert_eq!(message(9, 4, Some(state)), "published 9, handled 4, pending 3, lag 0, dead letters 2");
        assert_eq!(message(9, 4, None), "published 9, handled 4, the server does not answer");
    }
}
