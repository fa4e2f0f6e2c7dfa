//! What a read brings: taken into the ledger and queued, and copied out of the read buffer when it is held for long.

use std::sync::Arc;
use std::time::Instant;

use super::config::Acknowledge;
use super::held::{InLane, Ready};
use super::stream::now;
use super::worker::Worker;
use crate::delivery::Delivery;
use crate::observe::count;
use crate::spare;
use crate::work::Work;

impl<W: Work> Worker<W> {
    /// Entries that a read has brought.
    pub(super) fn take_up_read(&mut self) {
        spare::borrow(&mut self.queue);
        let mut batch = std::mem::take(&mut self.batch);
        for id in batch.deleted.drain(..) {
            self.stream.deleted(id);
        }
        // From when on they are surely ours: not from when this process woke up to look.
        let now = self.reading.delivered_since(now());
        let received = batch.entries.len();
        let (mut bytes, mut recognised, mut after_book) = (0, Vec::new(), Vec::new());
        let first = self.stream.config.acknowledge == Acknowledge::First;
        let no_ack = self.stream.config.acknowledge == Acknowledge::NoAck;
        // Keys are made by code of the user, which is not called while the book is open.
        let later = first || self.stream.config.lane_of.is_some();
        let stream = Arc::clone(&self.stream);
        {
            let mut book = stream.book();
            for entry in batch.entries.drain(..) {
                let id = entry.id();
                bytes += entry.size();
                if !book.ledger.is_new(id) {
                    if let Some(slot) = book.ledger.find(id) {
                        // Delivered again because the group was made anew; it is held already and now owned again.
                        book.ledger.confirm(slot, now);
                        continue;
                    } else if book.recognises(id) {
                        recognised.push((book.ledger.insert(id, now, None), id));
                        continue;
                    }
                }
                let slot = book.ledger.insert(id, now, None);
                if no_ack {
                    book.ledger.orphan(slot);
                }
                self.held_bytes += entry.size();
                let delivery = Delivery::new(entry, 1, Arc::clone(&stream.source));
                let ready = Ready { slot, delivery, since: now };
                if later {
                    after_book.push(ready)
                } else {
                    self.enqueue(ready)
                }
                book.read_to = book.read_to.max(id);
            }
        }
        spare::give_back(&mut batch);
        self.batch = batch;
        self.reading.received(received, bytes);
        count(&self.stream.counters.received, received as u64);
        self.recognise(recognised);
        if first {
            self.acknowledge_first(after_book);
        } else {
            for ready in after_book {
                self.enqueue(ready);
            }
        }
    }

    pub(super) fn next_sweep(&self) -> Instant {
        self.last_sweep + self.stream.config.lease.renew_every()
    }

    /// Copies what has been held for long out of the read buffers that it shares with whole batches.
    pub(super) fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep() {
            return;
        }
        self.last_sweep = now;
        let old = |since: Instant| now.saturating_duration_since(since) >= self.stream.config.lease.renew_from();
        let in_line = self.lanes.iter_mut().filter_map(InLane::ready).chain(&mut self.line.waiting);
        for ready in self.queue.iter_mut().chain(in_line).filter(|ready| old(ready.since)) {
            ready.delivery.entry.detach();
        }
        self.jobs.detach_older_than(now, self.stream.config.lease.renew_from());
        self.jobs.keep_one_place(now, self.stream.config.lease.lease());
    }
}
