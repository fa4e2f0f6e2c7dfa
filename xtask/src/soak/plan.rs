//! What is published: what each message is going to do, decided by the seed and its number alone.

use serde::{Deserialize, Serialize};
use stream_testkit::history::Fate;

/// Half of the messages have one of so many keys.
const KEYS: u64 = 40;
/// One message in so many takes its process down.
const ONE_KILLS_IN: u64 = 9_000;

/// What a handler does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    /// Handles it.
    Handle,
    /// Fails twice, then handles it.
    FailTwice,
    /// Fails until it is cured.
    Fail,
    /// Rejects it.
    Reject,
    /// Aborts its process.
    Abort,
    /// Is never asked: the payload cannot be decoded.
    Garble,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) number: u64,
    pub(crate) act: Act,
    /// How long handling it takes.
    pub(crate) ms: u64,
    pub(crate) key: Option<u64>,
}

impl Message {
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let act = match random.u64(..10_000) {
            _ if number % ONE_KILLS_IN == ONE_KILLS_IN / 2 => Act::Abort,
            0..50 => Act::FailTwice,
            50..80 => Act::Fail,
            80..95 => Act::Reject,
            95..110 => Act::Garble,
            _ => Act::Handle,
        };
        let key = random.bool().then(|| random.u64(..KEYS));
        let ms = match random.u64(..10_000) {
            // Longer than two leases; without a key, behind which others would wait.
            0..5 if key.is_none() => random.u64(7_000..9_000),
            5..60 => random.u64(100..1_000),
            _ => random.u64(0..5),
        };
        Self { number, act, ms, key }
    }

    pub(crate) fn fate(&self) -> Fate {
        match self.act {
            Act::Handle | Act::FailTwice => Fate::Handled,
            Act::Fail => Fate::Exhausted,
            Act::Reject => Fate::Rejected,
            Act::Abort => Fate::Kills,
            Act::Garble => Fate::Undecodable,
        }
    }

    pub(crate) fn payload(&self) -> Vec<u8> {
        let whole = serde_json::to_vec(self).unwrap_or_default();
        if self.act == Act::Garble { whole[..whole.len() / 2].to_vec() } else { whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_its_seed_and_number_say_and_only_garbled_ones_cannot_be_decoded() {
        for number in 1..5_000 {
            let message = Message::of(7, number);
            assert_eq!(message, Message::of(7, number));
            match serde_json::from_slice::<Message>(&message.payload()) {
                Ok(decoded) => assert_eq!(decoded, message),
                Err(_) => assert_eq!(message.act, Act::Garble),
            }
        }
        assert!((1..100).any(|number| Message::of(7, number) != Message { number, ..Message::of(8, number) }));
    }

    #[test]
    fn there_is_something_of_everything() {
        let acts: Vec<Act> = (1..20_000).map(|number| Message::of(1, number).act).collect();
        for (act, least, most) in [
            (Act::Handle, 19_000, 20_000),
            (Act::FailTwice, 50, 150),
            (Act::Fail, 30, 100),
            (Act::Reject, 10, 60),
            (Act::Garble, 10, 60),
            (Act::Abort, 2, 2),
        ] {
            let count = acts.iter().filter(|one| **one == act).count();
            assert!((least..=most).contains(&count), "{act:?}: {count}");
        }
    }
}
