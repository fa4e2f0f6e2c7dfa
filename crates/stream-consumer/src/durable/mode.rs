//! What an outcome means in each acknowledgement mode.

use stream_core::{DeadReason, Outcome};

use super::config::Acknowledge;

/// The error that a mode makes nothing of, which is told at least.
pub(crate) fn swallowed(mode: Acknowledge, outcome: &Outcome) -> Option<DeadReason> {
    match (mode, outcome) {
        (Acknowledge::Always | Acknowledge::First | Acknowledge::NoAck, Outcome::Retry { error, .. }) => {
            Some(DeadReason::Exhausted { error: error.clone() })
        }
        (Acknowledge::Always | Acknowledge::First | Acknowledge::NoAck, Outcome::Stop { acknowledge: false }) => {
            Some(DeadReason::Exhausted { error: None })
        }
        _ => None,
    }
}

/// The outcome as the acknowledgement mode sees it.
pub(crate) fn by_mode(mode: Acknowledge, outcome: Outcome) -> Outcome {
    match (mode, outcome) {
        (Acknowledge::RejectOnError, Outcome::Retry { after: None, error: Some(error) }) => {
            Outcome::Reject { reason: error }
        }
        (
            Acknowledge::Always | Acknowledge::First | Acknowledge::NoAck,
            Outcome::Retry { .. } | Outcome::Stop { .. },
        ) => Outcome::Done,
        (_, outcome) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_what_an_error_means_and_nothing_else() {
        let check = |mode, outcome: Outcome, expected: Outcome| assert_eq!(by_mode(mode, outcome), expected);
        let failed = || Outcome::failed("no");
        check(Acknowledge::RetryOnError, failed(), failed());
        check(Acknowledge::RejectOnError, failed(), Outcome::reject("no"));
        check(Acknowledge::RejectOnError, Outcome::retry(), Outcome::retry());
        check(Acknowledge::Always, failed(), Outcome::Done);
        check(Acknowledge::Always, Outcome::reject("bad"), Outcome::reject("bad"));
        check(Acknowledge::First, failed(), Outcome::Done);
        let stop = Outcome::Stop { acknowledge: false };
        check(Acknowledge::RejectOnError, stop.clone(), stop.clone());
        check(Acknowledge::Always, stop.clone(), Outcome::Done);
        assert!(
            swallowed(Acknowledge::Always, &stop).is_some() && swallowed(Acknowledge::RetryOnError, &stop).is_none()
        );
    }
}
