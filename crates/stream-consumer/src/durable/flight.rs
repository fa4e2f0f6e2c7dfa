//! Commands under way: what each will have answered when it lands, and how counts are set and bodies fetched.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use stream_core::{EntryId, Slot, Takeover};
use stream_redis::{Error, Taken};
use tokio::sync::OwnedSemaphorePermit;

use super::held::{Burial, Ready, Recount};
use super::stream::{Stream, now};
use crate::shutdown::Shutdown;

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
    let count = |recount: &Recount| Takeover::count(recount.attempt, recount.alone);
    let counts: Vec<_> = recounts.iter().map(|recount| (recount.id, count(recount))).collect();
    let lease = stream.config.lease.lease();
    let result = stream.link.take(&stream.owner, &counts, lease).await;
    Landed::Taken { recounts, permits, suspect, at, result }
}

/// The same for a suspect. Whether a count that got no answer was set is not known, and one that says that nothing runs
/// beside the entry has to be true: its places are kept until there is an answer.
pub(crate) async fn take_suspect(
    stream: Arc<Stream>,
    recount: Recount,
    mut places: SmallVec<[OwnedSemaphorePermit; 1]>,
    shutdown: &Shutdown,
) -> Landed {
    loop {
        match take(Arc::clone(&stream), vec![recount], places, true).await {
            Landed::Taken { permits, result: Err(error), .. }
                if recount.alone && !super::group::is_denied(&error) && !shutdown.is_stopping() =>
            {
                places = permits;
                tokio::select! {
                    () = tokio::time::sleep(stream.config.backoff.base()) => {}
                    () = shutdown.stopping() => {}
                }
            }
            landed => return landed,
        }
    }
}
