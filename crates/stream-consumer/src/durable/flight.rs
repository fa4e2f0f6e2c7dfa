//! Commands under way: what each will have answered when it lands, and how counts are set and bodies fetched.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use stream_core::{EntryId, Slot, Takeover};
use stream_redis::{Error, Recovery, Taken};
use tokio::sync::OwnedSemaphorePermit;

use super::held::{Burial, Ready, Recount};
use super::stream::{Stream, now};
use crate::shutdown::Shutdown;

/// The shortest pause before counts are set again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// A command under way.
pub(crate) type Flight = Pin<Box<dyn Future<Output = Landed> + Send>>;

/// The answer of a command.
pub(crate) enum Landed {
    Acknowledged {
        entries: Vec<(Slot, EntryId)>,
        result: Result<u64, Error>,
    },
    /// With a check of the owner; the ids that were not ours.
    Checked {
        entries: Vec<(Slot, EntryId)>,
        result: Result<Vec<EntryId>, Error>,
    },
    Taken {
        recounts: Vec<Recount>,
        permits: SmallVec<[OwnedSemaphorePermit; 1]>,
        suspect: bool,
        at: Instant,
        result: Result<Vec<Taken>, Error>,
    },
    /// A stop came before there was a place for it.
    NotTaken {
        recounts: Vec<Recount>,
        suspect: bool,
    },
    /// The count of a suspect that could not start yet is what it was; or a stop came.
    TakenBack,
    Buried {
        burial: Box<Burial>,
        result: Result<bool, Error>,
    },
    /// In the mode that acknowledges first; the lost ones belong to somebody else.
    AcknowledgedFirst {
        entries: Vec<Ready>,
        lost: Vec<Ready>,
    },
    HandedBack {
        number: u64,
        result: Result<u64, Error>,
    },
}

/// Sets counts and fetches bodies.
pub(crate) async fn take(
    stream: Arc<Stream>,
    recounts: Vec<Recount>,
    permits: SmallVec<[OwnedSemaphorePermit; 1]>,
    suspect: bool,
) -> Landed {
    let at = now();
    let count = |recount: &Recount| Takeover::count(recount.attempt, recount.alone, &stream.config.retry);
    let counts: Vec<_> = recounts.iter().map(|recount| (recount.id, count(recount))).collect();
    let lease = stream.config.lease.lease();
    let result = stream.link.take(&stream.owner, &counts, true, lease).await;
    Landed::Taken { recounts, permits, suspect, at, result }
}

/// The same for a suspect. Whether a count that got no answer was set is not known, and one that says that nothing runs
/// beside the entry has to be true: its places are kept until there is an answer. An error of the server is one, unless an
/// attempt before it got none.
pub(crate) async fn take_suspect(
    stream: Arc<Stream>,
    recount: Recount,
    mut places: SmallVec<[OwnedSemaphorePermit; 1]>,
    shutdown: &Shutdown,
) -> Landed {
    let mut unanswered = false;
    let mut tries = 0;
    loop {
        match take(Arc::clone(&stream), vec![recount], places, true).await {
            Landed::Taken { permits, result: Err(error), .. }
                if recount.alone
                    && !super::group::is_denied(&error)
                    && (unanswered || error.server().is_none())
                    && !shutdown.is_stopping() =>
            {
                unanswered = true;
                if tries == 0 && error.recovery() == Recovery::Fatal {
                    stream.degraded("a suspect keeps all places, since its count cannot be set", &error);
                }
                places = permits;
                tokio::select! {
                    biased;
                    () = shutdown.stopping() => {}
                    () = tokio::time::sleep(stream.config.backoff.delay(tries, fastrand::f64()).max(PAUSE)) => {}
                }
                tries = tries.saturating_add(1);
            }
            landed => return landed,
        }
    }
}

/// Sets the count of a suspect back that was taken and has to wait for others. Its places are kept until nobody else's death
/// can be blamed on it, but for no longer than that takes: what it waits for may need one of them.
pub(crate) async fn take_back(
    stream: Arc<Stream>,
    recount: Recount,
    places: SmallVec<[OwnedSemaphorePermit; 1]>,
    shutdown: Shutdown,
) -> Landed {
    let counts = [(recount.id, u64::from(recount.attempt.saturating_sub(1)))];
    let mut tries = 0;
    // When it stops, it is handed back with the same count.
    while !shutdown.is_stopping() {
        let error = match stream.link.take(&stream.owner, &counts, false, stream.config.lease.lease()).await {
            Ok(answers) => {
                match answers.first() {
                    Some(Taken::Counted | Taken::Entry(_)) => {}
                    Some(Taken::Deleted) => {
                        stream.deleted(recount.id);
                        // It is let go of when its turn comes.
                        let _ = stream.book().ledger.lose(recount.slot);
                    }
                    _ => stream.lost(recount.slot),
                }
                break;
            }
            Err(error) if super::group::is_denied(&error) || error.recovery() == Recovery::Missing => break,
            Err(error) => error,
        };
        if tries == 0 && error.recovery() == Recovery::Fatal {
            stream.degraded("a suspect keeps its places, since its count cannot be set back", &error);
        }
        tokio::select! {
            biased;
            () = shutdown.stopping() => {}
            () = tokio::time::sleep(stream.config.backoff.delay(tries, fastrand::f64()).max(PAUSE)) => {}
        }
        tries = tries.saturating_add(1);
    }
    drop(places);
    Landed::TakenBack
}
