//! Starting handlers: in place while they are known to be quick, else as tasks; retries and entries of dead owners only
//! after their count was set on the server; suspects alone.

use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use stream_core::{DeadReason, Lease, Slot, Takeover};
use stream_redis::{Recovery, Taken};
use tokio::sync::OwnedSemaphorePermit;

use super::config::Acknowledge;
use super::flight::{PAUSE, Places, take, take_back};
use super::held::{InLane, Ready, Recount, TakenOver};
use super::job::{Ended, Members, panicked, poll_in_place, span_of};
use super::reading::Undelivered;
use super::stream::now;
use super::suspects::Alone;
use super::worker::Worker;
use crate::delivery::Delivery;
use crate::guard::guarded;
use crate::observe::{Event, count};
use crate::work::{Begun, Outcomes, Work};

/// So many handlers are started before the loop looks at its events again, and no longer than a twelfth of the lease.
const BURST: usize = 1_024;

impl<W: Work> Worker<W> {
    /// Starts what is ready, as far as there are free places.
    pub(crate) fn start_ready(&mut self) {
        let limit = self.work.batch();
        let mut finished = 0;
        // One look at the clock for each handler: the end of one is the beginning of the next.
        let mut clock = now();
        let until = clock + self.stream.config.lease.renew_every() / 4;
        for _ in 0..BURST {
            if self.queue.is_empty() || clock >= until || (self.stopped_by_handler && !self.owes) {
                break;
            }
            let Some(permit) = self.permit() else { break };
            if limit == 1 && self.inline.allowed() {
                match self.next_ours(clock) {
                    Some(next) => finished += self.start_single(next, permit, &mut clock),
                    None => self.spare = Some(permit),
                }
                continue;
            }
            let Some(members) = self.gather(limit, clock) else {
                self.spare = Some(permit);
                continue;
            };
            finished += self.start(members, smallvec![permit], &mut clock);
        }
        // What has come up while these were started: the next of a key, or one whose lease is not certain any more.
        let suspects = !self.suspects.is_empty() && !self.suspect_under_way;
        let recounts = !self.recounts.is_empty() && !self.recounting && !self.full;
        self.again = suspects || ((recounts || !self.queue.is_empty()) && !self.starved);
        if finished > 0 {
            self.reading.finished(finished, clock);
        }
    }

    /// A place to run a handler in; if there is none, the loop waits for one.
    fn permit(&mut self) -> Option<OwnedSemaphorePermit> {
        let permit = self.spare.take().or_else(|| Arc::clone(&self.fleet.permits).try_acquire_owned().ok());
        self.starved = permit.is_none();
        permit
    }

    /// The next deliveries to start together, without those that are no longer ours. `None` if none is left.
    fn gather(&mut self, limit: usize, now: Instant) -> Option<Members> {
        let mut members: Option<Members> = None;
        while members.as_ref().is_none_or(|members| members.slots.len() < limit) {
            let Some(ready) = self.queue.pop_front() else { break };
            let Some(since) = self.still_ours(&ready, now) else { continue };
            let members = members.get_or_insert_with(|| {
                let most = limit.min(self.queue.len() + 1);
                Members { slots: SmallVec::with_capacity(most), deliveries: SmallVec::with_capacity(most), since }
            });
            members.since = members.since.min(since);
            members.slots.push(ready.slot);
            members.deliveries.push(ready.delivery);
        }
        members
    }

    /// Since when the lease is certain; `None` if it is not, and then the entry goes another way.
    pub(crate) fn still_ours(&mut self, ready: &Ready, now: Instant) -> Option<Instant> {
        let lease = self.stream.config.lease;
        if self.stream.config.acknowledge.is_beforehand() {
            return Some(ready.since);
        }
        if !self.certainty.covers(ready.since, now) {
            self.certainty = lease.certainty(now);
        }
        let certain = self.certainty.covers(ready.since, now) || lease.is_certain(ready.since, now);
        if certain && !self.stream.is_disturbed() {
            return Some(ready.since);
        }
        let (state, id) = {
            let book = self.stream.book();
            (book.ledger.lease(ready.slot), ready.delivery.id())
        };
        match state {
            Lease::Held(at) if lease.is_certain(at, now) => Some(at),
            Lease::Held(_) => {
                // This process was frozen or cut off: ask before starting. The attempt is not counted twice.
                self.release_body(ready.slot, &ready.delivery);
                let attempt = ready.delivery.attempt();
                self.recounts.push_back(Recount::new(ready.slot, id, attempt));
                None
            }
            _ => {
                // Lost, or in a group that is gone: whoever gets it next runs it.
                self.release_body(ready.slot, &ready.delivery);
                self.forget(ready.slot);
                None
            }
        }
    }

    /// Starts a handler at the time on the `clock`, and sets that on. Returns how many entries it finished at its first poll.
    fn start(&mut self, members: Members, permits: Places, clock: &mut Instant) -> usize {
        let started = members.slots.len();
        count(&self.stream.counters.started, started as u64);
        for delivery in &members.deliveries {
            self.stream.tell(&Event::Started { id: delivery.id(), attempt: delivery.attempt() });
        }
        let span = span_of(&members.deliveries[0]);
        let Begun { future, undecodable } = match guarded(|| self.work.begin(&members.deliveries)) {
            Ok(begun) => begun,
            Err(panic) => {
                *clock = now();
                self.settle_all(members, Outcomes::All(panicked(&panic)));
                return started;
            }
        };
        let members = self.bury_undecodable(members, undecodable);
        let Some(future) = future else {
            *clock = now();
            return started;
        };
        let mut future = Box::pin(Some(future));
        if self.inline.allowed() {
            let poll = poll_in_place(future, &span);
            let begin = std::mem::replace(clock, now());
            self.inline.polled(clock.saturating_duration_since(begin));
            match poll {
                Ok(outcomes) => {
                    // Those of a suspect are more than one place, and are given back at once.
                    if self.spare.is_none() && permits.len() == 1 {
                        self.spare = permits.into_iter().next();
                    }
                    self.settle_all(members, outcomes);
                    return started;
                }
                Err(goes_on) => future = goes_on,
            }
        }
        *clock = now();
        self.register_tokens(&members);
        self.jobs.spawn(members, future, self.work.limit(self.stream.config.timeout), span, permits);
        0
    }

    /// Where a handler has asked for its token, the ledger gets it, so that a lost lease can be told.
    pub(crate) fn register_tokens(&self, members: &Members) {
        if members.deliveries.iter().all(|delivery| delivery.token().is_none()) {
            return;
        }
        let mut book = self.stream.book();
        for (slot, delivery) in members.slots.iter().zip(&members.deliveries) {
            if let (Some(token), lost) = (delivery.token(), book.ledger.lease(*slot) == Lease::Lost) {
                if lost {
                    token.cancel();
                }
                if let Some(tag) = book.ledger.tag_mut(*slot) {
                    *tag = Some(token.clone());
                }
            }
        }
    }

    pub(crate) fn ended(&mut self, ended: Ended<W>) {
        self.inline.polled(ended.longest_poll);
        self.reading.finished(ended.members.slots.len(), now());
        self.settle_all(ended.members, ended.outcomes);
    }

    /// Entries that had been delivered to nobody: their attempt was not started, so it is not counted again. Those that were
    /// claimed are taken over.
    pub(crate) fn take_up_undelivered(&mut self, undelivered: Vec<Undelivered>) {
        let now = now();
        let stream = Arc::clone(&self.stream);
        let mut book = stream.book();
        let (mut taken_over, mut recognised) = (Vec::new(), Vec::new());
        for Undelivered { id, deliveries, claimed } in undelivered {
            if !claimed {
                book.read_to = book.read_to.max(id);
            }
            book.uncounted.remove(&id);
            if !book.ledger.is_new(id) && book.ledger.find(id).is_some() {
                // Its lease was over as well, and the steward has claimed it meanwhile.
                continue;
            }
            let slot = book.ledger.insert(id, now, None);
            if book.recognises(id) {
                recognised.push((slot, id));
            } else if claimed {
                taken_over.push((slot, id, deliveries));
            } else {
                self.recounts.push_back(Recount::new(slot, id, 1));
            }
        }
        drop(book);
        self.recognise(recognised);
        if !taken_over.is_empty() {
            count(&stream.counters.taken_over, taken_over.len() as u64);
            stream.tell(&Event::TakenOver { count: taken_over.len() });
            self.take_over(TakenOver::Counted(taken_over));
        }
    }

    /// Entries of owners that died or stopped.
    pub(crate) fn take_over(&mut self, entries: TakenOver) {
        match entries {
            TakenOver::Counted(entries) => {
                let first = self.stream.config.acknowledge == Acknowledge::First;
                for (slot, id, deliveries) in entries {
                    if first {
                        // What is pending was not acknowledged, so whoever died had not started it.
                        let attempt = u32::try_from(deliveries.saturating_add(1)).unwrap_or(u32::MAX);
                        self.recounts.push_back(Recount::new(slot, id, attempt));
                        continue;
                    }
                    match Takeover::decide(deliveries, &self.stream.config.retry) {
                        Takeover::Suspect { attempt, alone } => {
                            self.suspects.push_back(Recount {
                                suspect: true,
                                alone,
                                ..Recount::new(slot, id, attempt)
                            });
                        }
                        Takeover::GiveUp { attempts } => {
                            let recount = Recount { alone: true, give_up: true, ..Recount::new(slot, id, attempts) };
                            self.recounts.push_back(recount);
                        }
                        Takeover::Start { attempt } => self.recounts.push_back(Recount::new(slot, id, attempt)),
                        _ => {}
                    }
                }
            }
            TakenOver::Finished(entries) => self.recognise(entries),
            TakenOver::Whole(since, entries) => {
                let mut before_start = Vec::new();
                for (slot, entry) in entries {
                    self.held_bytes += entry.size();
                    let delivery = Delivery::new(entry, 2, Arc::clone(&self.stream.source));
                    let ready = Ready { slot, delivery, since };
                    if self.stream.config.acknowledge == Acknowledge::First {
                        before_start.push(ready);
                    } else {
                        self.enqueue(ready);
                    }
                }
                self.acknowledge_first(before_start);
            }
        }
    }

    /// Has counts set on the server for as many entries as can start right away and as the bytes allow; half of the places
    /// at most, so that new entries are not held up by failing ones.
    pub(crate) fn start_recounts(&mut self) {
        self.full = false;
        if let Some(at) = self.takes_not_before {
            let line = std::mem::take(&mut self.recounts);
            return self.take_again(line, at);
        }
        if self.recounting || self.recounts.is_empty() {
            return;
        }
        let fit = self.fit();
        self.full = fit == 0 && self.oversize.is_some();
        if self.full {
            return;
        }
        let mut permits = Places::new();
        let wanted = if self.stream.link.is_troubled() {
            // Nobody knows when the node answers again, and the streams of others need the places: one entry is asked for
            // without, and the rest once there was an answer.
            1
        } else {
            let free = self.fleet.permits.available_permits() + usize::from(self.spare.is_some());
            let share = if self.queue.is_empty() { free } else { free.min(self.stream.config.concurrency.div_ceil(2)) };
            let wanted = share.min(self.recounts.len()).min(100).min(fit.max(1));
            while permits.len() < wanted
                && let Some(permit) = self.permit()
            {
                permits.push(permit);
            }
            if permits.is_empty() {
                self.starved = true;
                return;
            }
            permits.len()
        };
        let mut recounts = Vec::with_capacity(wanted);
        while recounts.len() < wanted
            && let Some(recount) = self.recounts.pop_front()
        {
            if self.is_lost(recount.slot) {
                self.forget(recount.slot);
            } else {
                recounts.push(recount);
            }
        }
        permits.truncate(recounts.len());
        if recounts.is_empty() {
            return;
        }
        self.recounting = true;
        if fit == 0 {
            self.oversize = recounts.first().map(|recount| recount.slot);
        }
        let stream = Arc::clone(&self.stream);
        self.send(Box::pin(take(stream, recounts, permits)));
    }

    /// How many bodies the bytes allow to be fetched. What waits for others of its key does not count: that may be what it
    /// waits for.
    fn fit(&mut self) -> usize {
        let in_lanes: usize =
            self.lanes.iter_mut().filter_map(InLane::ready).map(|ready| ready.delivery.entry().size()).sum();
        self.reading.fit(self.held_bytes.saturating_sub(in_lanes))
    }

    /// The body of an entry is not kept any more.
    pub(crate) fn release_body(&mut self, slot: Slot, delivery: &Delivery) {
        self.held_bytes = self.held_bytes.saturating_sub(delivery.entry().size());
        self.oversize.take_if(|oversize| *oversize == slot);
    }

    /// The counts are set and the bodies are here, or not.
    pub(crate) fn taken(
        &mut self,
        recounts: Vec<Recount>,
        mut permits: Places,
        suspect: bool,
        at: Instant,
        result: Result<Vec<Taken>, stream_redis::Error>,
    ) {
        *(if suspect { &mut self.suspect_under_way } else { &mut self.recounting }) = false;
        let oversize = self.oversize.take_if(|slot| recounts.iter().any(|recount| recount.slot == *slot));
        let answers = match result {
            Ok(answers) if answers.len() == recounts.len() => answers,
            Err(error) if super::group::is_denied(&error) => {
                // Without the permission to count, an entry comes back through its lease.
                if self.stream.set_uncounted() {
                    self.stream.degraded("retries come back only after their lease, and are not counted", &error);
                }
                for recount in recounts {
                    self.forget(recount.slot);
                }
                return;
            }
            result => {
                let Err(error) = result else { return self.pause_takes(recounts, now() + PAUSE) };
                // Whatever it is, they stay ours and are tried again, ever more seldom.
                if self.takes_failed == 0 && error.recovery() == Recovery::Fatal {
                    self.stream
                        .degraded("what is tried again or was taken over cannot be counted, nor started", &error);
                }
                let pause = self.stream.config.backoff.delay(self.takes_failed, fastrand::f64()).max(PAUSE);
                self.takes_failed = self.takes_failed.saturating_add(1);
                return self.pause_takes(recounts, now() + pause);
            }
        };
        self.takes_failed = 0;
        let sizes = answers.iter().filter_map(|answer| match answer {
            Taken::Entry(entry) => Some(entry.size()),
            _ => None,
        });
        let (bodies, bytes) = sizes.fold((0, 0), |(bodies, bytes), size| (bodies + 1, bytes + size));
        self.reading.received(bodies, bytes);
        for (recount, answer) in recounts.into_iter().zip(answers) {
            if self.is_lost(recount.slot) {
                // It was lost while the command was under way. If it is ours again by now, it came back as another delivery,
                // which runs for itself.
                self.forget(recount.slot);
                continue;
            }
            match answer {
                // The answer came so late that somebody else may own it by now: asked once more, for the same count.
                Taken::Entry(_) if self.is_stale(recount, at) => {
                    permits.pop();
                    self.take_again([recount], now());
                }
                Taken::Entry(entry) => {
                    let permit =
                        if suspect { std::mem::take(&mut permits) } else { permits.pop().into_iter().collect() };
                    self.stream.book().ledger.confirm(recount.slot, at);
                    let delivery = Delivery::new(entry, recount.attempt, Arc::clone(&self.stream.source));
                    self.held_bytes += delivery.entry().size();
                    self.oversize = oversize.filter(|slot| *slot == recount.slot).or(self.oversize);
                    if recount.give_up {
                        self.bury_delivery(recount.slot, delivery, DeadReason::OwnerDied);
                        continue;
                    }
                    let ready = Ready { slot: recount.slot, delivery, since: at };
                    if self.stream.config.acknowledge == Acknowledge::First {
                        self.acknowledge_first(vec![ready]);
                    } else {
                        self.begin_taken(ready, recount, permit, suspect);
                    }
                }
                Taken::Deleted => {
                    self.stream.deleted(recount.id);
                    self.forget(recount.slot);
                }
                _ => {
                    self.stream.lost(recount.slot);
                    self.forget(recount.slot);
                }
            }
        }
    }

    /// Starts an entry, unless another of its key runs or its place was given back.
    fn begin_taken(&mut self, ready: Ready, recount: Recount, mut permits: Places, suspect: bool) {
        let Some(ready) = self.enter_lane(ready, suspect.then_some(recount)) else {
            self.oversize = self.oversize.filter(|slot| *slot != recount.slot);
            if suspect {
                // It did not start, and others run before it does: its count must say neither that it did nor that it was
                // alone, or their deaths would be blamed on it.
                self.send(Box::pin(take_back(Arc::clone(&self.stream), recount, permits, self.fleet.shutdown.clone())));
            }
            return;
        };
        if permits.is_empty() || self.fleet.shutdown.is_stopping() {
            return self.queue.push_back(ready);
        }
        if recount.alone {
            // They outlast the handler.
            self.alone = Some(Alone::new(recount, std::mem::take(&mut permits), self.stream.config.lease.lease()));
        }
        let members =
            Members { slots: smallvec![ready.slot], deliveries: smallvec![ready.delivery], since: ready.since };
        let mut clock = now();
        let finished = self.start(members, permits, &mut clock);
        if finished > 0 {
            self.reading.finished(finished, clock);
        }
    }

    /// Whether an entry that is to start was taken too long ago to be certainly ours.
    fn is_stale(&self, recount: Recount, taken: Instant) -> bool {
        let config = &self.stream.config;
        let checked_later = recount.give_up || config.acknowledge == Acknowledge::First;
        !checked_later && !config.lease.is_certain(taken, now())
    }

    /// Holds an entry no longer. It stays pending on the server.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.stream.book().ledger.remove(slot);
        self.leave_lane(slot);
    }
}
