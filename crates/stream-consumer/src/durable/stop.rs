//! Stopping: read no more, hand back what was not started, let what runs finish, flush, leave.

use std::sync::Arc;
use std::time::Duration;

use stream_core::{DeadReason, EntryId, Lease, Slot, Takeover};

use super::flight::Landed;
use super::held::{InLane, Recount, TakenOver, Wake};
use super::reading::{Undelivered, undelivered};
use super::stream::Stream;
use super::worker::Worker;
use crate::observe::Stats;
use crate::work::Work;

/// How long the last commands may take once nothing runs any more.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The same where the server does not answer anyway, and for what is only polite: handing back a cut read, removing the
/// own consumer.
const POLITENESS: Duration = Duration::from_millis(500);

/// How long the last commands of a loop may take after the `grace` period.
pub(crate) fn last_words(grace: Duration) -> Duration {
    LAST_WORDS.min(grace.max(POLITENESS)) + POLITENESS
}

/// How a consumer stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainReport {
    /// What it did in its life, over all streams.
    pub stats: Stats,
    /// Entries that it held when it was told to stop and gave back: others take them over at once.
    pub handed_back: u64,
    /// Handlers that were still running at the end of the grace period, or at an immediate stop, and were aborted.
    pub aborted: u64,
    /// Entries that were handled, but whose acknowledgement the server has not confirmed. They may run again elsewhere.
    pub unconfirmed: u64,
    /// Entries that could not be given back, because the server did not answer: others take them over after the lease.
    pub left_pending: u64,
    /// Streams whose run loop did not end, since a handler (or a decoder, or the key of an order) blocks the thread that it
    /// was called on and cannot be aborted. Whatever was held of such a stream counts as `left_pending`, or as
    /// `unconfirmed` where its acknowledgement was under way.
    pub stuck: u64,
    /// Whether this consumer holds nothing any more and was removed from the group, on every stream.
    pub consumer_removed: bool,
}

impl DrainReport {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.handed_back += other.handed_back;
        self.aborted += other.aborted;
        self.unconfirmed += other.unconfirmed;
        self.left_pending += other.left_pending;
        self.stuck += other.stuck;
        self.consumer_removed &= other.consumer_removed;
    }

    /// Of a stream whose loop did not end.
    pub(crate) fn of_stuck(stream: &Stream) -> Self {
        let (unconfirmed, left_pending) = stream.pending();
        Self { stuck: 1, unconfirmed, left_pending, ..Self::default() }
    }
}

fn given_up(stream: &Stream, id: EntryId) {
    let error = "the consumer stopped before its turn came".to_owned();
    stream.given_up(id, &DeadReason::Exhausted { error: Some(error) });
}

impl<W: Work> Worker<W> {
    /// Stops within the grace period and what the last commands take.
    pub(crate) async fn drain(&mut self) {
        let cut = self.reading.close();
        self.stream.set_stopping();
        self.stream.pulse.stopping();
        self.flush = true;
        // What handlers had given back in their time is another matter.
        (self.report.handed_back, self.report.left_pending) = (0, 0);
        self.hand_back_unstarted();
        self.look_for_cut(cut);
        self.flush_if_due(super::stream::now());

        let shutdown = self.fleet.shutdown.clone();
        let end = tokio::time::sleep(self.stream.config.grace);
        let grace_ends = end.deadline();
        tokio::pin!(end);
        let mut aborting = false;
        let mut aborted = false;
        loop {
            // What came back from the server meanwhile is not started any more.
            self.hand_back_unstarted();
            if self.jobs.running() == 0 && (!self.owes || self.queue.is_empty()) {
                if self.acks.is_empty() && !self.is_sending() && !self.has_happened() {
                    break;
                }
                if !aborting {
                    aborting = true;
                    // However little is left of the grace period, what is done is acknowledged.
                    let now = tokio::time::Instant::now();
                    let last = (now + self.last_words()).min(grace_ends.max(now + POLITENESS));
                    end.as_mut().reset(last);
                }
            } else if aborting && !aborted {
                // What was acknowledged just now has started after all.
                aborting = false;
                end.as_mut().reset(grace_ends);
            }
            tokio::select! {
                biased;
                () = shutdown.immediate(), if !aborted => {}
                () = &mut end => {
                    if aborting {
                        break;
                    }
                }
                () = self.settle_next() => continue,
            }
            (aborting, aborted) = (true, true);
            self.abort_running();
            end.as_mut()
                .reset(tokio::time::Instant::now() + self.last_words().min(self.stream.config.grace.max(POLITENESS)));
        }
        self.report.unconfirmed = self.acks_settling as u64;
        // What is still on its way back, and whatever else a command was about that got no answer.
        let (settling, others) = self.stream.pending();
        let others = (settling + others).saturating_sub(self.report.unconfirmed);
        self.report.left_pending += self.handing_back + others;
        self.give_up_answers();
        let leave = self.leave(cut);
        let removed = tokio::time::timeout(POLITENESS, leave).await.unwrap_or(false);
        self.report.consumer_removed = removed;
    }

    /// How long to wait for answers: not for long from a server that does not give any.
    fn last_words(&self) -> Duration {
        if self.stream.link.is_troubled() { POLITENESS } else { LAST_WORDS }
    }

    /// Gives back whatever is held and does not run, with the number of its starts so far.
    fn hand_back_unstarted(&mut self) {
        let mut unstarted: Vec<(Slot, EntryId, u32)> = Vec::new();
        let before = |attempt: u32| attempt.saturating_sub(1);
        let recount = |recount: Recount| {
            // What is to be given up keeps the count that says so.
            let starts = if recount.give_up { recount.attempt.saturating_add(1) } else { before(recount.attempt) };
            (recount.slot, recount.id, starts)
        };
        if !self.owes {
            for waits in self.queue.drain(..).map(InLane::Ready).chain(self.lanes.drain()) {
                unstarted.push(match waits {
                    InLane::Ready(ready) => {
                        self.held_bytes = self.held_bytes.saturating_sub(ready.delivery.entry().size());
                        (ready.slot, ready.delivery.id(), before(ready.delivery.attempt()))
                    }
                    InLane::Suspect(suspect) => recount(suspect),
                });
            }
        }
        unstarted.extend(self.recounts.drain(..).map(recount));
        unstarted.extend(self.suspects.drain(..).map(recount));
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.wake {
                Wake::Recount(waiting) => unstarted.push(recount(waiting)),
                Wake::Bury(burial) => {
                    // Whoever gets it next finds its attempts used up, or buries it for the same reason as here.
                    let attempts = burial.letter.attempts;
                    let used_up = u32::from(self.stream.config.retry.is_last(attempts));
                    unstarted.push((burial.slot, burial.letter.entry.id(), attempts + used_up));
                }
            }
        }
        while let Some(entries) = self.taken_over_now() {
            match entries {
                TakenOver::Counted(entries) => unstarted.extend(
                    entries.into_iter().map(|(slot, id, starts)| (slot, id, u32::try_from(starts).unwrap_or(u32::MAX))),
                ),
                TakenOver::Finished(entries) => self.recognise(entries),
                TakenOver::Whole(_, entries) => {
                    unstarted.extend(entries.into_iter().map(|(slot, entry)| (slot, entry.id(), 1)));
                }
            }
        }
        if self.stream.config.acknowledge.is_beforehand() {
            // It was acknowledged and comes to nobody else, so at least it does not vanish in silence.
            let gone = unstarted.extract_if(.., |(slot, ..)| self.stream.book().ledger.lease(*slot) == Lease::Orphaned);
            for (_, id, _) in gone {
                given_up(&self.stream, id);
            }
        }
        unstarted.retain(|(slot, ..)| matches!(self.stream.book().ledger.lease(*slot), Lease::Held(_)));
        self.hand_back(&unstarted);
    }

    /// Ends what still runs. Its starts count. What has returned by now is settled by its outcome.
    fn abort_running(&mut self) {
        while let Some(ended) = self.jobs.ended_now() {
            self.ended(ended);
        }
        if std::mem::take(&mut self.owes) {
            for waits in self.queue.drain(..).map(InLane::Ready).chain(self.lanes.drain()) {
                let id = match waits {
                    InLane::Ready(ready) => ready.delivery.id(),
                    InLane::Suspect(suspect) => suspect.id,
                };
                given_up(&self.stream, id);
            }
        }
        let mut aborted = Vec::new();
        for members in self.jobs.abort_all() {
            self.report.aborted += 1;
            for (slot, delivery) in members.slots.into_iter().zip(members.deliveries) {
                if let Some(token) = delivery.token() {
                    token.cancel();
                }
                let starts = Takeover::cut_short(delivery.attempt(), &self.stream.config.retry);
                aborted.push((slot, delivery.id(), starts));
            }
        }
        aborted.retain(|(slot, ..)| matches!(self.stream.book().ledger.lease(*slot), Lease::Held(_)));
        self.hand_back(&aborted);
    }

    /// Looks for what a cut read may have brought to nobody: now, since nothing renews it while the handlers end.
    fn look_for_cut(&mut self, cut: Option<EntryId>) {
        let Some(before) = cut.filter(|_| self.stream.config.acknowledge != super::Acknowledge::NoAck) else { return };
        let stream = Arc::clone(&self.stream);
        self.send(Box::pin(async move {
            match tokio::time::timeout(POLITENESS, undelivered(&stream, before)).await {
                Ok(Ok(left)) => Landed::LeftByCut { left },
                // It is looked for again in the end.
                _ => Landed::LeftByCut { left: Vec::new() },
            }
        }));
    }

    /// Gives back what a cut read has brought to nobody.
    pub(crate) fn give_back_left(&mut self, left: &[Undelivered]) {
        let counts = self.counts_of(left);
        self.send_back(&counts);
    }

    /// The counts with which what is left goes back, but for what is held or was given back by now: that is still pending for
    /// us, with a count that is right.
    fn counts_of(&self, left: &[Undelivered]) -> Vec<(EntryId, u64)> {
        let book = self.stream.book();
        let held = |id| !book.ledger.is_new(id) && book.ledger.find(id).is_some();
        left.iter()
            .filter(|left| !self.given_back.contains(&left.id) && !held(left.id))
            .map(|left| (left.id, left.deliveries.saturating_sub(u64::from(!left.claimed))))
            .collect()
    }

    /// Gives back what is left of a cut read, and removes the own consumer if it holds nothing.
    async fn leave(&mut self, cut: Option<EntryId>) -> bool {
        if let Some(before) = cut
            && self.stream.config.acknowledge != super::Acknowledge::NoAck
            && let Ok(left) = undelivered(&self.stream, before).await
        {
            for chunk in self.counts_of(&left).chunks(250) {
                let back = self.stream.link.hand_back(&self.stream.owner, chunk).await;
                let back = back.unwrap_or_default();
                self.report.handed_back += back.number;
                back.deleted.into_iter().for_each(|id| self.stream.deleted(id));
            }
        }
        self.stream.link.remove_consumer(&self.stream.owner).await.unwrap_or(false)
    }
}
