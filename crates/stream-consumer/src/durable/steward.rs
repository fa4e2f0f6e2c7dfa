//! The steward of one stream: renews the leases of what is held, and takes over what dead owners have left.
//!
//! A task of its own, so that a handler that computes for long in its first poll cannot keep leases from being renewed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::iter;
use stream_core::{ClaimCursor, Entry, EntryId, Holder, Lease, NextStep, SearchBudget, Slot};
use stream_redis::command::{XAck, XAutoClaim, XInfoConsumers, XPending, XRange};
use stream_redis::{Error, ErrorKind, Recovery};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::group;
use super::held::TakenOver;
use super::stream::{Stream, now};
use crate::observe::{Event, count};

/// So many leases are renewed by one call: under a millisecond of the server's time.
const CHUNK: usize = 250;
/// So many such calls are under way at a time: the way to the server takes time as well.
const IN_FLIGHT: usize = 4;
/// So many entries are claimed by one call, which looks at ten times as many.
const PAGE: usize = 100;
/// So many pages are searched without a pause.
const PAGES: u64 = 4;
/// The pause after them: the search of a huge pending list takes a small part of the server's time.
const PAUSE: Duration = Duration::from_millis(50);
/// So often is room waited for, for as long as [`PAUSE`], before the search goes on with the next interval.
const WAITS: u32 = 20;
/// Where leases must not be renewed, it is tried again after one interval, two, four, and so on up to so many or so long.
const RENEW_AGAIN: (u128, Duration) = (10, Duration::from_mins(1));
/// The pause for taking over, which others do meanwhile.
const CLAIM_AGAIN: Duration = Duration::from_mins(5);

/// Renews and claims until `end`.
pub(crate) async fn run(stream: Arc<Stream>, taken_over: mpsc::Sender<TakenOver>, end: CancellationToken) {
    let work = async { tokio::join!(renew_loop(&stream), claim_loop(&stream, &taken_over)) };
    end.run_until_cancelled(work).await;
}

async fn renew_loop(stream: &Stream) {
    let every = stream.config.lease.renew_every();
    let mut next = Instant::now() + every;
    let (mut plain, mut blocked) = (false, false);
    let most = (RENEW_AGAIN.1.as_millis() / every.as_millis().max(1)).clamp(1, RENEW_AGAIN.0);
    // The present pause, in intervals, while they are refused; and how much of it is left.
    let (mut pause, mut left) = (0, 0);
    loop {
        sleep_until(next).await;
        // A tick that comes late is not followed by a burst.
        next = (next + every).max(Instant::now());
        let held_up = stream.in_turn_for(now());
        let before = std::mem::replace(&mut blocked, held_up >= every);
        if blocked && !before {
            stream.tell(&Event::Blocked { since: held_up });
        }
        if left > 0 {
            left -= 1;
            continue;
        }
        let sent = now();
        let renewed = renew(stream, pause > 0).await;
        if stream.link.is_plain() && !std::mem::replace(&mut plain, true) {
            let error = Error::new(ErrorKind::NoPermission, "the server does not allow EVALSHA and EVAL to this user");
            stream.degraded("without scripts, an entry counts as lost before its lease is over", &error);
        }
        match renewed {
            Ok(true) if pause > 0 => {
                pause = 0;
                tracing::info!(stream = %stream.owner.key, "leases are renewed again");
            }
            Ok(_) => {}
            Err(error) if error.recovery() == Recovery::Missing => {
                // The reader finds out as well; on 6.2 only after its BLOCK period. It may be at it, and be held up.
                let _ = timeout(every, group::mend(stream, sent)).await;
            }
            Err(error) if group::is_denied(&error) => {
                if pause == 0 {
                    stream.degraded("leases cannot be renewed: handlers must be quicker than the lease", &error);
                }
                // Refused as they are, they cost little; and what is held meanwhile may be taken over by others.
                pause = (pause * 2).clamp(1, most);
                left = pause - 1;
            }
            Err(error) => tracing::debug!(stream = %stream.owner.key, %error, "leases were not renewed this time"),
        }
    }
}

/// Returns whether there was anything to renew. After it was `refused`, what plain commands would count as lost is left alone:
/// they would say so without a word about the permission.
async fn renew(stream: &Stream, refused: bool) -> Result<bool, Error> {
    let due = {
        let (book, at) = (stream.book(), now());
        let mut due = book.ledger.due(at, stream.config.lease.renew_from());
        if refused && stream.link.is_plain() {
            let fresh = |since| at.saturating_duration_since(since) < stream.config.lease.lease() / 2;
            due.retain(|(_, slot)| matches!(book.ledger.lease(*slot), Lease::Held(since) if fresh(since)));
        }
        due
    };
    // How long all of it takes is no matter, as long as each answer comes in time: what is renewed last has the longest left.
    let chunks: Vec<_> = due.chunks(CHUNK).map(<[_]>::to_vec).collect();
    let mut chunks = iter(chunks).map(|chunk| renew_chunk(stream, chunk)).buffer_unordered(IN_FLIGHT);
    while let Some(renewed) = chunks.next().await {
        renewed?;
    }
    drop(chunks);
    Ok(!due.is_empty())
}

async fn renew_chunk(stream: &Stream, chunk: Vec<(EntryId, Slot)>) -> Result<(), Error> {
    let lease = stream.config.lease;
    let mut ids: Vec<EntryId> = chunk.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    let sent = now();
    let renewed = stream.link.renew(&stream.owner, &ids, lease.lease());
    let renewed = stream.link.within(lease.renew_every(), renewed).await?;
    let (mut gone, mut deleted) = (Vec::new(), Vec::new());
    {
        let mut book = stream.book();
        for (id, slot) in &chunk {
            let is_gone = || renewed.gone.contains(id);
            if renewed.deleted.contains(id) {
                deleted.push(*id);
            } else if matches!(book.ledger.lease(*slot), Lease::Held(at) if lease.is_certain(at, sent)) && is_gone() {
                // Nobody else had it, and whose search has dropped it has told.
                book.ledger.orphan(*slot);
            } else if !is_gone() && !renewed.lost.contains(id) {
                book.ledger.confirm(*slot, sent);
            } else if book.ledger.stage(*slot) != Some(stream_core::Stage::Settling) {
                // What is being acknowledged is expected to be gone.
                gone.push(*slot);
            }
        }
    }
    for id in deleted {
        stream.deleted(id);
    }
    for slot in gone {
        stream.lost(slot);
    }
    Ok(())
}

async fn claim_loop(stream: &Stream, taken_over: &mpsc::Sender<TakenOver>) {
    let every = stream.config.claim_every;
    let mut search = Search::default();
    // Whether a refusal was told and not mended since, and until when it is taken for one that lasts.
    let (mut refused, mut denied) = (false, None);
    loop {
        let sent = now();
        let due = stream.config.take_over && denied.is_none_or(|again| Instant::now() >= again);
        search.answered = false;
        let swept = if due { search.sweep(stream, taken_over).await } else { Ok(()) };
        match swept {
            Ok(()) if refused && search.answered => {
                refused = false;
                tracing::info!(stream = %stream.owner.key, "entries of dead owners are taken over again");
            }
            Ok(()) => {}
            Err(error) if error.recovery() == Recovery::Missing => {
                let _ = group::mend(stream, sent).await;
            }
            Err(error) if error.kind() == ErrorKind::WrongType => {}
            Err(error) if error.recovery() == Recovery::Fatal => {
                // The permission may be given later; asking seldom costs nothing. Other refusals pass sooner: of a password that
                // is being changed, or of a certificate.
                denied = group::is_denied(&error).then(|| Instant::now() + CLAIM_AGAIN);
                if !std::mem::replace(&mut refused, true) {
                    stream.degraded("entries of dead owners are not taken over by this process", &error);
                }
            }
            Err(error) => {
                tracing::debug!(stream = %stream.owner.key, %error, "the search for abandoned entries goes on later");
            }
        }
        if let Err(error) = group::refresh(stream).await {
            tracing::debug!(stream = %stream.owner.key, %error, "the group's position is not known anew");
        }
        sleep(every.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

#[derive(Default)]
struct Search {
    cursor: ClaimCursor,
    /// Whether the server does not let us ask for delivery counts, or set them.
    plain: bool,
    /// Whether it was let claim, whatever there was.
    answered: bool,
    /// Until when ids are claimed although counts cannot be asked for: Redis 6.2 does not name the deleted ones otherwise.
    by_id_until: Option<std::time::Instant>,
    /// Whether the server does not let us look whether they are deleted.
    blind: bool,
}

impl Search {
    /// Goes once through the pending list, as far as there is room and it is worth the server's time.
    async fn sweep(&mut self, stream: &Stream, taken_over: &mpsc::Sender<TakenOver>) -> Result<(), Error> {
        let mut budget = SearchBudget::new(stream.config.claim_every);
        // What others have read and left counts as well as what was read here.
        let delivered = stream.group.lock().await.last_delivered();
        let mut from_the_beginning = self.cursor.position() == EntryId::ZERO;
        let mut pages = 0;
        // How often room may be waited for: not at all, as long as nothing was found.
        let mut waits = 0;
        loop {
            if stream.is_cut() || stream.is_stopping() {
                return Ok(());
            }
            let room = room(stream);
            if room == 0 {
                if waits == 0 {
                    return Ok(());
                }
                waits -= 1;
                sleep(PAUSE).await;
                continue;
            }
            self.plain |= stream.is_uncounted();
            let by_id = !self.plain || self.by_id_until.is_some_and(|until| now() < until);
            self.cursor.end_at(stream.book().read_to.max(delivered));
            let claim = XAutoClaim {
                key: stream.owner.key.clone(),
                group: stream.owner.group.clone(),
                consumer: stream.owner.consumer.clone(),
                min_idle: stream.config.lease.lease(),
                start: self.cursor.position(),
                count: room.min(PAGE),
                just_id: by_id,
            };
            let sent = now();
            let claimed = stream.link.run(&claim).await?;
            self.answered = true;
            let step = budget.spend(now().saturating_duration_since(sent), !claimed.ids.is_empty());
            let ended = self.cursor.advance(claimed.next);
            waits = if claimed.ids.is_empty() { 0 } else { WAITS };
            for id in &claimed.deleted {
                stream.deleted(*id);
            }
            let mut finished = Vec::new();
            if self.plain {
                if claimed.holes > 0 && !self.blind {
                    // They are ours now, and can be claimed again once the lease is over.
                    self.by_id_until = Some(sent + 2 * (claim.min_idle + stream.config.claim_every));
                }
                let entries = if by_id { self.bodies(stream, claimed.ids).await? } else { claimed.entries };
                let mut whole = Vec::new();
                for entry in entries {
                    if let Some(slot) = take_up(stream, entry.id(), sent, &mut finished) {
                        whole.push((slot, entry));
                    }
                }
                tell(stream, taken_over, whole.len(), TakenOver::Whole(sent, whole)).await;
            } else if !claimed.ids.is_empty() {
                note_uncounted(stream, &claimed.ids);
                let counts = match counts(stream, &claimed.ids).await {
                    Ok(counts) => counts,
                    Err(error) if group::is_denied(&error) => {
                        self.plain = true;
                        stream.degraded("attempts of abandoned entries cannot be counted", &error);
                        Vec::new()
                    }
                    // They are ours now and nobody runs them: they come back once their lease is over.
                    Err(error) => return Err(error),
                };
                let counted: Vec<_> = counts
                    .into_iter()
                    .filter_map(|(id, count)| take_up(stream, id, sent, &mut finished).map(|slot| (slot, id, count)))
                    .collect();
                tell(stream, taken_over, counted.len(), TakenOver::Counted(counted)).await;
            }
            tell(stream, taken_over, finished.len(), TakenOver::Finished(finished)).await;
            if ended && budget.is_lifted() && !from_the_beginning {
                // The pass began in the middle, and what is searched for may lie before it.
                from_the_beginning = true;
                continue;
            }
            if ended || step == NextStep::Later {
                return Ok(());
            }
            if step == NextStep::LookAtOwners && !look_at_owners(stream, &mut budget).await? {
                return Ok(());
            }
            pages += 1;
            if pages % PAGES == 0 {
                sleep(PAUSE).await;
            }
        }
    }

    /// Fetches what was claimed by its ids, and settles what is deleted.
    async fn bodies(&mut self, stream: &Stream, ids: Vec<EntryId>) -> Result<Vec<Entry>, Error> {
        let (key, group) = (&stream.owner.key, &stream.owner.group);
        let (mut found, mut gone) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let look = XRange { key: key.clone(), from: id, to: id, count: 1 };
            match stream.link.run(&look).await {
                Ok(entries) if entries.is_empty() => gone.push(id),
                Ok(entries) => found.extend(entries),
                Err(error) if group::is_denied(&error) => {
                    (self.blind, self.by_id_until) = (true, None);
                    stream.degraded("deleted entries stay pending, since they cannot be told from others", &error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !gone.is_empty() {
            match stream.link.run(&XAck { key: key.clone(), group: group.clone(), ids: gone.clone() }).await {
                Ok(_) => gone.into_iter().for_each(|id| stream.deleted(id)),
                // They come back after the lease, and those that are found do not wait for that.
                Err(error) => tracing::debug!(stream = %key, %error, "deleted entries are settled later"),
            }
        }
        Ok(found)
    }
}

/// Whether the search goes on beyond its budget, since somebody in the group seems to be dead.
async fn look_at_owners(stream: &Stream, budget: &mut SearchBudget) -> Result<bool, Error> {
    let command = XInfoConsumers { key: stream.owner.key.clone(), group: stream.owner.group.clone() };
    match stream.link.run(&command).await {
        Ok(consumers) => {
            let (config, held) = (&stream.config, stream.book().ledger.len());
            // And what may be on its way to us.
            let ours = (held + config.concurrency + config.prefetch) as u64;
            let holders = consumers.into_iter().map(|consumer| {
                if consumer.name == stream.owner.consumer {
                    // What is pending under our name and not held here was left by a process before this one.
                    Holder { pending: consumer.pending.saturating_sub(ours), idle: Duration::MAX }
                } else {
                    Holder { pending: consumer.pending, idle: consumer.idle }
                }
            });
            Ok(budget.lift_if(holders, stream.config.lease.lease()))
        }
        Err(error) if group::is_denied(&error) => {
            budget.lift();
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// How many more entries may be taken over: not many more than can run, so that other processes get their share.
fn room(stream: &Stream) -> usize {
    let config = &stream.config;
    if stream.in_turn_for(now()) >= config.lease.renew_every() {
        // Nothing that was taken over now would be started, and nobody else could take it over.
        return 0;
    }
    let book = stream.book();
    if book.ledger.count(stream_core::Stage::Waiting) >= config.waiting {
        // As for reading: what keeps failing must not pile up here without a bound.
        return 0;
    }
    let mut busy = book.ledger.count(stream_core::Stage::Queued) + book.ledger.count(stream_core::Stage::Running);
    if config.acknowledge == super::config::Acknowledge::First {
        // These wait for the acknowledgement that comes before their start.
        busy += book.ledger.count(stream_core::Stage::Settling);
    }
    let free = (config.concurrency + config.concurrency.min(config.prefetch)).saturating_sub(busy);
    // Where all processes are busy with a backlog, somebody has to take over nevertheless: they come before new entries.
    free.max(config.concurrency.div_ceil(2).saturating_sub(stream.in_line()))
}

/// Holds an entry that was claimed by a command `sent` then. `None` if it was held all the time: then its lease is as good as
/// new; or if it is one of those that this process has `finished`.
fn take_up(
    stream: &Stream,
    id: EntryId,
    sent: std::time::Instant,
    finished: &mut Vec<(Slot, EntryId)>,
) -> Option<Slot> {
    let mut book = stream.book();
    book.uncounted.remove(&id);
    if !book.ledger.is_new(id)
        && let Some(slot) = book.ledger.find(id)
    {
        book.ledger.confirm(slot, sent);
        return None;
    }
    // One that was lost and came back is another delivery: the handler that runs here still is not its owner.
    let slot = book.ledger.insert(id, sent, None);
    if book.recognises(id) {
        finished.push((slot, id));
        return None;
    }
    Some(slot)
}

/// They are ours, and until their counts are known, nothing else tells them from what a read was cut off from.
fn note_uncounted(stream: &Stream, ids: &[EntryId]) {
    let (at, lease) = (now(), stream.config.lease.lease());
    let mut book = stream.book();
    book.uncounted.retain(|_, claimed| at.saturating_duration_since(*claimed) < lease);
    book.uncounted.extend(ids.iter().map(|id| (*id, at)));
}

async fn tell(stream: &Stream, taken_over: &mpsc::Sender<TakenOver>, number: usize, entries: TakenOver) {
    if number == 0 {
        return;
    }
    count(&stream.counters.taken_over, number as u64);
    stream.tell(&Event::TakenOver { count: number });
    // The worker is gone only when this task is about to be as well.
    let _ = taken_over.send(entries).await;
}

/// The delivery counts of entries that are ours now.
async fn counts(stream: &Stream, ids: &[EntryId]) -> Result<Vec<(EntryId, u64)>, Error> {
    let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) else { return Ok(Vec::new()) };
    let mut found = Vec::with_capacity(ids.len());
    let mut page = XPending {
        key: stream.owner.key.clone(),
        group: stream.owner.group.clone(),
        min_idle: None,
        from: *first,
        after: false,
        to: *last,
        count: CHUNK.max(ids.len()),
        consumer: Some(stream.owner.consumer.clone()),
    };
    loop {
        let entries = stream.link.run(&page).await?;
        let Some(end) = entries.last().map(|entry| entry.id) else { return Ok(found) };
        let full = entries.len() == page.count;
        found.extend(
            entries.into_iter().filter(|entry| ids.contains(&entry.id)).map(|entry| (entry.id, entry.deliveries)),
        );
        if !full || end >= *last {
            return Ok(found);
        }
        page.from = end;
        page.after = true;
    }
}
