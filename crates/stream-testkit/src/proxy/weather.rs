//! [`Weather`]: what a network does, drawn from a seed.

use std::time::Duration;

use super::Mode;

/// A time of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spell {
    /// What the network does; never [`Mode::Forward`].
    pub mode: Mode,
    /// For how long.
    pub lasts: Duration,
}

impl Spell {
    /// Its name, for a table of what happened.
    pub fn name(&self) -> &'static str {
        match self.mode {
            Mode::Forward => "network calm",
            Mode::Stall => "network stalled",
            Mode::StallReplies => "replies stalled",
            Mode::SwallowReplies => "replies swallowed",
            Mode::Delay(_) => "network slow",
            Mode::Throttle(_) => "network throttled",
            Mode::Refuse => "connections refused",
        }
    }
}

/// Spells without end, the same for the same seed. Give them to [`Proxy::play`](super::Proxy::play).
///
/// ```
/// use stream_testkit::proxy::Weather;
/// let spells: Vec<_> = Weather::new(7).take(5).collect();
/// assert_eq!(spells, Weather::new(7).take(5).collect::<Vec<_>>());
/// ```
#[derive(Debug, Clone)]
pub struct Weather(fastrand::Rng);

impl Weather {
    /// Begins anew.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }
}

impl Iterator for Weather {
    type Item = Spell;

    fn next(&mut self) -> Option<Spell> {
        let random = &mut self.0;
        let mode = match random.u32(..6) {
            0 => Mode::Stall,
            1 => Mode::StallReplies,
            2 => Mode::SwallowReplies,
            3 => Mode::Delay(Duration::from_millis(random.u64(5..150))),
            4 => Mode::Throttle(random.u32(2_000..200_000)),
            _ => Mode::Refuse,
        };
        Some(Spell { mode, lasts: Duration::from_millis(random.u64(300..6_000)) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mode_comes_up_and_no_seed_is_like_another() {
        let spells: Vec<Spell> = Weather::new(1).take(100).collect();
        let names: BTreeSet<_> = spells.iter().map(Spell::name).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        assert!(!names.contains("network calm"));
        assert!(spells.iter().all(|spell| spell.lasts < Duration::from_secs(6)));
        assert_ne!(spells, Weather::new(2).take(100).collect::<Vec<_>>());
    }
}
