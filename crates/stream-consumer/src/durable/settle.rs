//! Settling: what becomes of an entry whose handler ended, and the commands that make it so.
//!
//! Acknowledgements are collected and written in batches. One that is not confirmed is kept and sent again; one whose lease
//! is not certain any more is sent with a check of the owner; one whose lease was lost is withheld.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stream_core::{DeadLetter, DeadReason, EntryId, Lease, Outcome, Slot, Stage, Verdict};
use stream_redis::Error;
use stream_redis::command::XAck;

use super::first::owned_by_others;
use super::flight::{Landed, give_back};
use super::held::{Burial, Recount, Wake};
use super::job::Members;
use super::mode::{by_mode, swallowed};
use super::stream::{Stream, now};
use super::worker::Worker;
use crate::delivery::Delivery;
use crate::observe::{Event, count};
use crate::pace::wall_ms;
use crate::work::{Outcomes, Work, too_few};

/// How long an acknowledgement may wait for others while handlers run.
pub(crate) const LINGER: Duration = Duration::from_millis(25);
/// How long an acknowledgement that failed waits at least.
const ACK_PAUSE: Duration = Duration::from_millis(100);
/// So many acknowledgements are one command.
const MOST_ACKS: usize = 1_000;
/// So many commands may be under way.
pub(crate) const MOST_IN_FLIGHT: usize = 4;

impl<W: Work> Worker<W> {
    /// A handler has ended with these outcomes for its deliveries.
    pub(crate) fn settle_all(&mut self, members: Members, outcomes: Outcomes) {
        let Members { slots, deliveries, since: _ } = members;
        match outcomes {
            Outcomes::All(Outcome::Done) => {
                for (slot, delivery) in slots.into_iter().zip(&deliveries) {
                    self.done(slot, delivery);
                }
            }
            Outcomes::All(outcome) => {
                for (slot, delivery) in slots.into_iter().zip(deliveries) {
                    self.settle(slot, delivery, outcome.clone());
                }
            }
            Outcomes::Each(outcomes) => {
                let mut outcomes = outcomes.into_iter();
                for (slot, delivery) in slots.into_iter().zip(deliveries) {
                    let outcome = outcomes.next().unwrap_or_else(too_few);
                    self.settle(slot, delivery, outcome);
                }
            }
        }
    }

    /// Its handler returned well, which is the same in every mode.
    pub(crate) fn done(&mut self, slot: Slot, delivery: &Delivery) {
        let (id, attempt) = (delivery.id(), delivery.attempt());
        self.release_body(slot, delivery);
        count(&self.stream.counters.handled, 1);
        self.succeeded = true;
        self.stream.tell(&Event::Handled { id, attempt });
        self.leave_lane(slot);
        self.acknowledge(slot, id);
    }

    pub(crate) fn settle(&mut self, slot: Slot, delivery: Delivery, outcome: Outcome) {
        if outcome == Outcome::Done {
            return self.done(slot, &delivery);
        }
        let mode = self.stream.config.acknowledge;
        if outcome.is_stop() && !std::mem::replace(&mut self.stopped_by_handler, true) {
            self.fleet.shutdown.stop_gently();
        }
        let error = swallowed(mode, &outcome);
        let outcome = by_mode(mode, outcome);
        let (id, attempt) = (delivery.id(), delivery.attempt());
        self.release_body(slot, &delivery);
        match self.stream.config.retry.verdict(attempt, &outcome, fastrand::f64()) {
            Verdict::Acknowledge => {
                match error {
                    None => {
                        count(&self.stream.counters.handled, 1);
                        self.succeeded = true;
                        self.stream.tell(&Event::Handled { id, attempt });
                    }
                    Some(reason) => self.stream.given_up(id, &reason),
                }
                self.leave_lane(slot);
                self.acknowledge(slot, id);
            }
            // Whoever owns it now decides; that may be this process, under another slot.
            _ if !mode.is_beforehand() && self.is_lost(slot) => self.forget(slot),
            Verdict::RetryAfter(after) => {
                count(&self.stream.counters.retried, 1);
                self.stream.tell(&Event::Retrying { id, attempt, after });
                if self.stream.config.retry_order == super::config::RetryOrder::Later {
                    self.leave_lane(slot);
                }
                self.stream.book().ledger.set_stage(slot, Stage::Waiting);
                let recount = Recount::new(slot, id, attempt.saturating_add(1));
                self.wait(now() + after, Wake::Recount(recount));
            }
            Verdict::DeadLetter(reason) => self.bury_with(slot, delivery, reason),
            // A start that the handler gave back is not counted.
            _ => self.hand_back(&[(slot, id, attempt.saturating_sub(1))]),
        }
    }

    /// Entries whose payload could not be decoded go to the dead letters at once; the others stay.
    pub(crate) fn bury_undecodable(&mut self, members: Members, undecodable: Vec<(usize, String)>) -> Members {
        let (left, undecodable) = members.without(undecodable);
        for (slot, delivery, error) in undecodable {
            self.bury_delivery(slot, delivery, DeadReason::Undecodable(error));
        }
        left
    }

    pub(crate) fn bury_delivery(&mut self, slot: Slot, delivery: Delivery, reason: DeadReason) {
        self.release_body(slot, &delivery);
        self.bury_with(slot, delivery, reason);
    }

    fn bury_with(&mut self, slot: Slot, delivery: Delivery, reason: DeadReason) {
        self.leave_lane(slot);
        if self.stream.config.acknowledge.is_beforehand() {
            // It is not pending any more, so nothing could be moved; the mode has given it up beforehand.
            self.stream.given_up(delivery.id(), &reason);
            self.stream.book().ledger.remove(slot);
            return;
        }
        let source = &self.stream.source;
        let letter = DeadLetter {
            attempts: delivery.attempt(),
            entry: delivery.entry,
            stream: source.stream.clone(),
            group: self.stream.owner.group.clone(),
            consumer: source.consumer.clone(),
            reason,
            dead_at_ms: wall_ms(),
            redriven: 0,
        };
        self.bury(Burial { unanswered: false, slot, letter, tries: 0 });
    }

    /// Writes a dead letter and acknowledges its entry, in one step.
    pub(crate) fn bury(&mut self, burial: Burial) {
        let stream = Arc::clone(&self.stream);
        // That it is not pending any more once it is written is no loss.
        stream.book().ledger.set_stage(burial.slot, Stage::Settling);
        self.is_over_alone(burial.slot);
        self.send(Box::pin(async move {
            let target = stream.config.dead_letter_of(&stream.owner.key);
            let (layout, bound) = (stream.config.dead_letter_layout, stream.config.dead_letter_max);
            let mut result = stream.link.dead_letter(&stream.owner, &burial.letter, layout, &target, bound).await;
            if burial.unanswered && matches!(result, Ok(false)) {
                // It is pending nowhere if it was a try of ours that has moved it.
                let others = owned_by_others(&stream, &[burial.letter.entry.id()]).await;
                result = others.map(|others| others.is_empty());
            }
            Landed::Buried { burial: Box::new(burial), result }
        }));
    }

    fn buried(&mut self, mut burial: Burial, result: Result<bool, Error>) {
        let id = burial.letter.entry.id();
        match result {
            Ok(true) => {
                count(&self.stream.counters.dead_lettered, 1);
                let (attempts, reason) = (burial.letter.attempts, &burial.letter.reason);
                self.stream.tell(&Event::DeadLettered { id, attempts, reason });
                // It is not remembered as finished: what makes it come back may have taken its letter away as well, and then
                // it has to end in the dead letters once more.
                self.stream.book().ledger.remove(burial.slot);
            }
            Ok(false) => {
                self.stream.lost(burial.slot);
                self.forget(burial.slot);
            }
            Err(error) => {
                // Nothing was acknowledged. The entry is held, others go on, and it is tried again.
                self.stream.tell(&Event::DeadLetterFailed { id, error: &error });
                burial.unanswered |= error.server().is_none();
                let pause = self.stream.config.backoff.delay(burial.tries, fastrand::f64());
                burial.tries += 1;
                // It may be held for long now, and shares its buffer with a whole batch.
                burial.letter.entry.detach();
                self.stream.book().ledger.set_stage(burial.slot, Stage::Waiting);
                self.wait(now() + pause, Wake::Bury(Box::new(burial)));
            }
        }
    }

    /// Gives entries back to the group, each with the number of its starts so far.
    pub(crate) fn hand_back(&mut self, entries: &[(Slot, EntryId, u32)]) {
        if entries.is_empty() {
            return;
        }
        {
            let mut book = self.stream.book();
            for (slot, ..) in entries {
                book.ledger.remove(*slot);
            }
        }
        for (slot, ..) in entries {
            self.leave_lane(*slot);
        }
        if self.stream.config.acknowledge.is_beforehand() {
            return;
        }
        let counts: Vec<_> = entries.iter().map(|(_, id, starts)| (*id, u64::from(*starts))).collect();
        self.send_back(&counts);
    }

    /// Has the server take entries back, each with the number of its starts so far.
    pub(crate) fn send_back(&mut self, counts: &[(EntryId, u64)]) {
        self.handing_back += counts.len() as u64;
        if self.stream.is_stopping() {
            self.given_back.extend(counts.iter().map(|(id, _)| *id));
        }
        for chunk in counts.chunks(250) {
            self.send(Box::pin(give_back(Arc::clone(&self.stream), chunk.to_vec())));
        }
    }

    fn acknowledge(&mut self, slot: Slot, id: EntryId) {
        if self.stream.config.acknowledge.is_beforehand() {
            let mut book = self.stream.book();
            // It is held again only if the group was made anew meanwhile and has delivered it once more.
            if !matches!(book.ledger.lease(slot), Lease::Held(_)) {
                book.finished.insert(id);
                book.ledger.remove(slot);
                return;
            }
        }
        if self.acks.is_empty() {
            self.acks_since = Some(now());
        }
        self.acks.push((slot, id));
        self.acks_settling += 1;
        self.flush |= self.is_over_alone(slot);
    }

    /// Entries that this process had finished are ours once more: they are acknowledged and not run.
    pub(crate) fn recognise(&mut self, entries: Vec<(Slot, EntryId)>) {
        if entries.is_empty() {
            return;
        }
        count(&self.stream.counters.recognised, entries.len() as u64);
        self.acks_settling += entries.len();
        self.acks.extend(entries);
        self.acks_since.get_or_insert_with(now);
    }

    /// Whether more entries may be read beside those whose acknowledgement is awaited. Sixteen times what one stream may hold
    /// for all streams together, and for each its part of that, twice what it may hold at least: one that alone has a backlog
    /// is not held up. Where many have one, the server gets to the reads of each before the acknowledgements of all, which
    /// come over one connection, and what is held would be new memory. A stream that awaits none may read in any case:
    /// nothing would wake it.
    pub(crate) fn may_settle_more(&mut self) -> bool {
        let more = self.acks_settling.wrapping_sub(std::mem::replace(&mut self.settling_told, self.acks_settling));
        let all = self.fleet.settling.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
        let (room, streams) = (self.reading.room(), self.stream.config.streams.len().max(1));
        self.acks_settling == 0
            || (all < room.saturating_mul(16) && self.acks_settling < room.saturating_mul((16 / streams).max(2)))
    }

    /// Writes the acknowledgements that have come together, if it is time to.
    pub(crate) fn flush_if_due(&mut self, now: Instant) {
        if self.acks.is_empty() {
            self.flush = false;
            return;
        }
        if self.acks_in_flight >= MOST_IN_FLIGHT || self.acks_not_before.is_some_and(|not_before| now < not_before) {
            return;
        }
        let idle = self.queue.is_empty() && self.jobs.running() == 0 && !self.reading.is_in_reply();
        let lingered = self.acks_since.is_some_and(|since| now.saturating_duration_since(since) >= LINGER);
        if !(self.flush || idle || lingered || self.acks.len() >= MOST_ACKS) {
            return;
        }
        self.flush = false;
        self.acks_not_before = None;
        self.acks_since = None;
        let mut acks = std::mem::take(&mut self.acks);
        while !acks.is_empty() {
            let rest = acks.split_off(acks.len().min(MOST_ACKS));
            self.send_acks(std::mem::replace(&mut acks, rest), now);
        }
    }

    fn send_acks(&mut self, acks: Vec<(Slot, EntryId)>, now: Instant) {
        let certainty = self.stream.config.lease.certainty(now);
        let delete = self.stream.config.delete_acknowledged;
        let before = acks.len();
        let mut unsure = Vec::new();
        let mut certain = acks;
        let mut oldest = now;
        {
            let mut book = self.stream.book();
            certain.retain(|&(slot, id)| match book.ledger.settling(slot) {
                Lease::Held(at) if certainty.covers(at, now) && !delete => {
                    oldest = oldest.min(at);
                    true
                }
                Lease::Held(_) => {
                    unsure.push((slot, id));
                    false
                }
                Lease::Orphaned => {
                    // Pending nowhere; when it is delivered again, it is recognised.
                    book.finished.insert(id);
                    book.ledger.remove(slot);
                    false
                }
                // Somebody else's now: withheld.
                _ => {
                    book.ledger.remove(slot);
                    false
                }
            });
        }
        self.acks_settling -= before - certain.len() - unsure.len();
        if !certain.is_empty() {
            self.acks_in_flight += 1;
            count(&self.stream.counters.ack_commands, 1);
            let (stream, unanswered) = (Arc::clone(&self.stream), self.acks_unanswered.clone());
            let until = oldest + stream.config.lease.trusted();
            self.send(Box::pin(async move {
                let ids = certain.iter().map(|(_, id)| *id).collect();
                let command = XAck { key: stream.owner.key.clone(), group: stream.owner.group.clone(), ids };
                match stream.link.run_until(&command, until).await {
                    Ok(Some(removed)) => Landed::Acknowledged { entries: certain, result: Ok(removed) },
                    Err(error) => Landed::Acknowledged { entries: certain, result: Err(error) },
                    Ok(None) => acknowledge_checked(&stream, certain, &unanswered).await,
                }
            }));
        }
        if !unsure.is_empty() {
            self.acks_in_flight += 1;
            let (stream, unanswered) = (Arc::clone(&self.stream), self.acks_unanswered.clone());
            self.send(Box::pin(async move { acknowledge_checked(&stream, unsure, &unanswered).await }));
        }
    }

    pub(crate) fn landed(&mut self, landed: Landed) {
        match landed {
            Landed::Acknowledged { entries, result } => {
                self.acks_in_flight -= 1;
                match result {
                    Ok(removed) => {
                        count(&self.stream.counters.acknowledged, removed);
                        let already = (entries.len() as u64).saturating_sub(removed);
                        if already > 0 {
                            count(&self.stream.counters.already_acknowledged, already);
                        }
                        self.finish(entries);
                    }
                    Err(error) => self.acknowledge_again(entries, &error),
                }
            }
            Landed::Checked { entries, result } => {
                self.acks_in_flight -= 1;
                match result {
                    Ok(Checked { lost, before }) => {
                        let (lost, done): (Vec<_>, Vec<_>) =
                            entries.into_iter().partition(|(_, id)| lost.binary_search(id).is_ok());
                        count(&self.stream.counters.acknowledged, done.len() as u64 - before);
                        count(&self.stream.counters.already_acknowledged, before);
                        self.acks_settling -= lost.len();
                        for (slot, id) in lost {
                            self.acks_unanswered.remove(&id);
                            self.stream.lost(slot);
                            self.stream.book().ledger.remove(slot);
                        }
                        self.finish(done);
                    }
                    Err(error) => self.acknowledge_again(entries, &error),
                }
            }
            Landed::Taken { recounts, permits, suspect, at, result } => {
                self.taken(recounts, permits, suspect, at, result);
            }
            Landed::NotTaken { recounts, suspect } => {
                if suspect {
                    self.suspect_under_way = false;
                }
                for recount in recounts {
                    self.line_up(recount);
                }
            }
            Landed::TakenBack => {}
            Landed::Shared { slot, result } => self.shared(slot, result.is_ok()),
            Landed::Buried { burial, result } => self.buried(*burial, result),
            Landed::AcknowledgedFirst { entries, lost } => self.acknowledged_first(entries, lost),
            Landed::LeftByCut { left } => self.give_back_left(&left),
            Landed::HandedBack { number, result } => {
                self.handing_back -= number;
                match result {
                    Ok(back) => {
                        count(&self.stream.counters.handed_back, back.number);
                        self.report.handed_back += back.number;
                        back.deleted.into_iter().for_each(|id| self.stream.deleted(id));
                    }
                    Err(_) => self.report.left_pending += number,
                }
            }
        }
    }

    fn finish(&mut self, entries: Vec<(Slot, EntryId)>) {
        self.acks_refused = 0;
        self.acks_settling -= entries.len();
        let mut book = self.stream.book();
        let book = &mut *book;
        for (slot, id) in entries {
            if !self.acks_unanswered.is_empty() {
                self.acks_unanswered.remove(&id);
            }
            if book.ledger.remove(slot).is_some() {
                book.finished.insert(id);
            }
        }
    }

    /// Whether the server has taken these acknowledgements is not known; they are sent again.
    fn acknowledge_again(&mut self, entries: Vec<(Slot, EntryId)>, error: &Error) {
        // A connection that failed is paced where it is made anew; an answer that refuses is paced here.
        let mut pause = ACK_PAUSE;
        if error.server().is_some() {
            if self.acks_refused == 0 && super::group::is_denied(error) {
                self.stream.degraded("entries are handled but cannot be acknowledged", error);
            }
            pause = pause.max(self.stream.config.backoff.delay(self.acks_refused, fastrand::f64()));
            self.acks_refused = self.acks_refused.saturating_add(1);
        } else {
            self.acks_unanswered.extend(entries.iter().map(|(_, id)| *id));
        }
        self.acks.extend(entries);
        let now = now();
        self.acks_since.get_or_insert(now);
        self.acks_not_before = Some(now + pause);
    }
}

/// What became of acknowledgements with a check of the owner.
pub(crate) struct Checked {
    /// Those that are somebody else's, in ascending order.
    lost: Vec<EntryId>,
    /// How many an acknowledgement of ours had reached before.
    before: u64,
}

/// Acknowledges what is still ours. Where an acknowledgement got no answer before, what is pending nowhere was reached by it.
async fn acknowledge_checked(stream: &Stream, entries: Vec<(Slot, EntryId)>, unanswered: &HashSet<EntryId>) -> Landed {
    let mut ids: Vec<_> = entries.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    let check = async {
        let (lease, delete) = (stream.config.lease.lease(), stream.config.delete_acknowledged);
        let mut lost = stream.link.acknowledge(&stream.owner, &ids, lease, delete).await?;
        lost.sort_unstable();
        let all = lost.len();
        let doubtful: Vec<_> = lost.iter().copied().filter(|id| unanswered.contains(id)).collect();
        // Where that cannot be told, they count as lost, which is said and harms nothing.
        let others = owned_by_others(stream, &doubtful).await.unwrap_or(doubtful);
        lost.retain(|id| !unanswered.contains(id) || others.binary_search(id).is_ok());
        Ok(Checked { before: (all - lost.len()) as u64, lost })
    };
    let result = check.await;
    Landed::Checked { entries, result }
}
