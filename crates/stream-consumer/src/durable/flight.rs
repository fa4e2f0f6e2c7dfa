//! Commands under way: what each will have answered when it lands, and how counts are set and bodies fetched.
//!
//! What must stay true: a node that does not answer keeps places from the streams of other nodes for a bounded time only, a
//! moment for most entries and a lease for a suspect that has to be alone.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::{SmallVec, smallvec};
use stream_core::{EntryId, Slot, Takeover};
use stream_redis::{Error, ErrorKind, HandedBack, Recovery, Taken};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant as Deadline, sleep, timeout, timeout_at};

use super::held::{Burial, Fleet, Ready, Recount};
use super::reading::Undelivered;
use super::settle::Checked;
use super::stream::{Stream, now};
use crate::shutdown::Shutdown;

/// The shortest pause before counts are set again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// For so long places are kept for what is fetched. A node that answers does so sooner; one that is away must not keep the
/// streams of others from running.
const PATIENCE: Duration = Duration::from_millis(500);

/// Places to run handlers in.
pub(crate) type Places = SmallVec<[OwnedSemaphorePermit; 1]>;

/// A command under way.
pub(crate) type Flight = Pin<Box<dyn Future<Output = Landed> + Send>>;

/// The answer of a command.
pub(crate) enum Landed {
    Acknowledged {
        entries: Vec<(Slot, EntryId)>,
        result: Result<u64, Error>,
    },
    /// With a check of the owner.
    Checked {
        entries: Vec<(Slot, EntryId)>,
        result: Result<Checked, Error>,
    },
    Taken {
        recounts: Vec<Recount>,
        permits: Places,
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
    /// The count of a suspect that ran alone says that others may run beside it now.
    Shared {
        slot: Slot,
        result: Result<(), Error>,
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
    /// What a cut read had brought to nobody when a stop came.
    LeftByCut {
        left: Vec<Undelivered>,
    },
    HandedBack {
        number: u64,
        result: Result<HandedBack, Error>,
    },
}

/// Sets counts and fetches bodies. What comes after its places were given back waits for others.
pub(crate) async fn take(stream: Arc<Stream>, recounts: Vec<Recount>, mut permits: Places) -> Landed {
    let at = now();
    let result = {
        let mut answers = pin!(set_counts(&stream, &recounts));
        if let Ok(result) = timeout(PATIENCE, &mut answers).await {
            result
        } else {
            permits.clear();
            answers.await
        }
    };
    Landed::Taken { recounts, permits, suspect: false, at, result }
}

async fn set_counts(stream: &Stream, recounts: &[Recount]) -> Result<Vec<Taken>, Error> {
    let count = |recount: &Recount| Takeover::count(recount.attempt, recount.alone, &stream.config.retry);
    let counts: Vec<_> = recounts.iter().map(|recount| (recount.id, count(recount))).collect();
    stream.link.take(&stream.owner, &counts, true, stream.config.lease.lease()).await
}

/// The same for a suspect, when no other runs; for its last attempt, when nothing does. Its node is asked first: others do
/// not wait for a place until one that is away comes back.
pub(crate) async fn take_suspect(stream: Arc<Stream>, mut recount: Recount, fleet: Fleet) -> Landed {
    let at = now();
    let alone = recount.alone;
    let way = async {
        loop {
            recount.alone = alone;
            if let Some(gone) = ask_for(&stream, recount).await? {
                return Ok(Way::Gone(gone));
            }
            let places = places(&stream, &mut recount, &fleet).await;
            // It may have gone away meanwhile.
            if !stream.link.is_troubled() {
                return Ok(places.map_or(Way::End, Way::Open));
            }
        }
    };
    let way = tokio::select! {
        biased;
        () = fleet.shutdown.stopping() => Ok(Way::End),
        way = way => way,
    };
    let result = match way {
        Ok(Way::Open(places)) => {
            let mut landed = take_alone(stream, recount, places, &fleet.shutdown).await;
            if let Landed::Taken { recounts, result: Err(_), .. } = &mut landed {
                // The next time it may be alone again.
                for recount in recounts {
                    recount.alone = alone;
                }
            }
            return landed;
        }
        Ok(Way::End) => return Landed::NotTaken { recounts: vec![recount], suspect: true },
        Ok(Way::Gone(gone)) => Ok(vec![gone]),
        Err(error) => Err(error),
    };
    Landed::Taken { recounts: vec![recount], permits: Places::new(), suspect: true, at, result }
}

/// What a suspect has found.
enum Way {
    Open(Places),
    /// It is deleted or somebody else's.
    Gone(Taken),
    End,
}

/// Whether the node of a suspect answers; the answer itself where the entry is gone. While it is not certain, it is asked
/// by setting the count to what it was, which also mends a count that was set without an answer.
async fn ask_for(stream: &Stream, recount: Recount) -> Result<Option<Taken>, Error> {
    if !stream.link.is_troubled() {
        return stream.link.reach().await.map(|()| None);
    }
    let answers = stream.link.take(&stream.owner, &[before(recount)], false, stream.config.lease.lease()).await?;
    Ok(answers.into_iter().next().filter(|taken| matches!(taken, Taken::Lost | Taken::Deleted)))
}

/// The count of an entry that has not started again.
fn before(recount: Recount) -> (EntryId, u64) {
    (recount.id, u64::from(recount.attempt.saturating_sub(1)))
}

/// The lane of the suspects and a place, or all places.
async fn places(stream: &Stream, recount: &mut Recount, fleet: &Fleet) -> Option<Places> {
    let lane = Arc::clone(&fleet.suspect).acquire_owned().await.ok()?;
    if recount.alone {
        let everything = u32::try_from(stream.config.concurrency).unwrap_or(u32::MAX);
        // Handlers that run for longer than a lease are not waited for: they were not what died, or they would have by now.
        let all = Arc::clone(&fleet.permits).acquire_many_owned(everything);
        if let Ok(all) = timeout(stream.config.lease.lease(), all).await {
            return Some(smallvec![all.ok()?, lane]);
        }
        recount.alone = false;
    }
    let place = Arc::clone(&fleet.permits).acquire_owned().await.ok()?;
    Some(smallvec![place, lane])
}

/// Whether a count that got no answer was set is not known, and one that says that nothing runs beside the entry has to be
/// true: its places are kept until there is an answer, for a lease at most. An error of the server is one, unless an attempt
/// before it got none.
async fn take_alone(stream: Arc<Stream>, recount: Recount, permits: Places, shutdown: &Shutdown) -> Landed {
    let (mut unanswered, mut tries) = (false, 0);
    let lease = stream.config.lease.lease();
    let until = Deadline::now() + lease;
    loop {
        let at = now();
        let late = |_| Err(Error::new(ErrorKind::Timeout, format!("no answer within {lease:?}")));
        let result = timeout_at(until, set_counts(&stream, &[recount])).await.unwrap_or_else(late);
        match result {
            Err(error)
                if recount.alone
                    && !super::group::is_denied(&error)
                    && (unanswered || error.server().is_none())
                    && !shutdown.is_stopping()
                    && Deadline::now() < until =>
            {
                unanswered = true;
                if tries == 0 && error.recovery() == Recovery::Fatal {
                    stream.degraded("a suspect keeps all places, since its count cannot be set", &error);
                }
                tokio::select! {
                    biased;
                    () = shutdown.stopping() => {}
                    () = sleep(stream.config.backoff.delay(tries, fastrand::f64()).max(PAUSE)) => {}
                }
                tries = tries.saturating_add(1);
            }
            result => return Landed::Taken { recounts: vec![recount], permits, suspect: true, at, result },
        }
    }
}

/// Gives entries back to the group, again and again until the server has answered: who takes over an entry that was not given
/// back takes a start for failed that was none.
pub(crate) async fn give_back(stream: Arc<Stream>, mut counts: Vec<(EntryId, u64)>) -> Landed {
    let number = counts.len() as u64;
    let mut tries = 0;
    loop {
        let result = stream.link.hand_back(&stream.owner, &counts).await;
        match &result {
            Err(error) if !super::group::is_denied(error) && error.recovery() != Recovery::Missing => {}
            _ => return Landed::HandedBack { number, result },
        }
        // Nobody takes them over before their lease is over.
        let most = stream.config.lease.renew_every();
        sleep(stream.config.backoff.delay(tries, fastrand::f64()).min(most).max(PAUSE)).await;
        tries = tries.saturating_add(1);
        // What has come back to us by now has a count of its own.
        let book = stream.book();
        counts.retain(|(id, _)| book.ledger.is_new(*id) || book.ledger.find(*id).is_none());
    }
}

/// Has the count of a suspect that runs alone say that it does not.
pub(crate) async fn share(stream: Arc<Stream>, recount: Recount) -> Landed {
    let count = Takeover::count(recount.attempt, false, &stream.config.retry);
    let answer = stream.link.take(&stream.owner, &[(recount.id, count)], false, stream.config.lease.lease()).await;
    // If it is not ours any more, its count is not ours either.
    Landed::Shared { slot: recount.slot, result: answer.map(|_| ()) }
}

/// Sets the count of a suspect back that was taken and has to wait for others. Its places are kept until nobody else's death
/// can be blamed on it, but for no longer than that takes, and a lease at most: what it waits for may need one of them.
pub(crate) async fn take_back(stream: Arc<Stream>, recount: Recount, places: Places, shutdown: Shutdown) -> Landed {
    let _ = timeout(stream.config.lease.lease(), set_back(&stream, recount, &shutdown)).await;
    drop(places);
    Landed::TakenBack
}

async fn set_back(stream: &Stream, recount: Recount, shutdown: &Shutdown) {
    let mut tries = 0;
    // When it stops, it is handed back with the same count.
    while !shutdown.is_stopping() {
        let error = match stream.link.take(&stream.owner, &[before(recount)], false, stream.config.lease.lease()).await
        {
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
                return;
            }
            Err(error) if super::group::is_denied(&error) || error.recovery() == Recovery::Missing => return,
            Err(error) => error,
        };
        if tries == 0 && error.recovery() == Recovery::Fatal {
            stream.degraded("a suspect keeps its places, since its count cannot be set back", &error);
        }
        tokio::select! {
            biased;
            () = shutdown.stopping() => {}
            () = sleep(stream.config.backoff.delay(tries, fastrand::f64()).max(PAUSE)) => {}
        }
        tries = tries.saturating_add(1);
    }
}
