//! [`ReadAhead`]: how many entries the next read may ask for.
//!
//! Reading ahead hides the round trip to the server, but an entry that is read too early waits here while another process
//! could run it. So the lookahead follows the speed of the handlers: about what they finish in a tenth of a second, never
//! more than the limit in entries and in bytes. What is held plus what is asked for never exceeds concurrency plus
//! prefetch.

use std::time::{Duration, Instant};

/// Lookahead is what is finished in this time at the present rate.
const HORIZON: Duration = Duration::from_millis(100);
/// A sample of the rate ends after this time at the latest.
const SAMPLE: Duration = Duration::from_millis(100);
/// The most that one read asks for: more holds up the server's other clients for milliseconds and gains nothing.
const MOST_PER_READ: usize = 2_000;
/// What an entry is taken to be before one was seen, in bytes.
const FIRST_SIZE: usize = 64 * 1024;

/// A reply of about so many bytes is read in one piece.
const ONE_PIECE: usize = 224 * 1024;
/// What an entry takes in a reply beside its body.
const FRAMING: usize = 40;
/// So many entries are worth a reply in pieces: fewer cost more for their round trip.
const WORTH_PIECES: usize = 500;

/// What a consumer may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Entries handled at the same time; 0 counts as 1.
    pub concurrency: usize,
    /// Entries held beyond that, at most. With 0 a read never asks for more than there are free slots.
    pub prefetch: usize,
    /// Bytes of entries held, about: the size of entries to come is an estimate, and one entry is always asked for when
    /// nothing is held.
    pub prefetch_bytes: usize,
}

/// Decides the COUNT of reads from how fast entries are handled and how large they are.
#[derive(Debug, Clone)]
pub struct ReadAhead {
    limits: ReadLimits,
    /// Entries finished per second, once a sample was taken.
    rate: Option<f64>,
    /// The sample under way: when it began, and entries finished since.
    sample: Option<(Instant, usize)>,
    /// Since when there is nothing that handlers could finish.
    idle: Option<Instant>,
    /// Bytes of an entry, once one was seen.
    size: Option<f64>,
    /// The most that is asked for at once, lowered after interrupted replies.
    cap: usize,
}

impl ReadAhead {
    /// Nothing known yet: the first reads ask for as many entries as there are free slots.
    pub fn new(limits: ReadLimits) -> Self {
        let limits = ReadLimits { concurrency: limits.concurrency.max(1), ..limits };
        let cap = limits.concurrency.saturating_add(limits.prefetch).min(MOST_PER_READ);
        Self { limits, rate: None, sample: None, idle: None, size: None, cap }
    }

    /// The limits it was made with.
    pub fn limits(&self) -> ReadLimits {
        self.limits
    }

    /// How many entries the next read may ask for, `held` being those that run or are queued (not those that wait for a
    /// retry) and `held_bytes` their size. 0 means: not now, ask again when something has finished.
    ///
    /// It is never 0 when nothing is held or a slot is free that the bytes allow to fill. While all slots are taken, a read
    /// is put off until it is worth its round trip: a quarter of what may be held at most.
    pub fn want(&self, held: usize, held_bytes: usize) -> usize {
        let target = self.target();
        let room = target.saturating_sub(held);
        let room = room.min(self.fit(held_bytes)).min(self.cap);
        if held == 0 {
            return room.max(1);
        }
        let most = target.min(self.fit(0)).min(self.cap);
        let put_off = held >= self.limits.concurrency && room < most.div_ceil(4);
        if put_off { 0 } else { room }
    }

    /// Whether anything is held, `now`. While nothing is, handlers are not slow: there is nothing to do, or it is the turn of
    /// another of many streams.
    pub fn holds(&mut self, any: bool, now: Instant) {
        if !any {
            self.idle.get_or_insert(now);
        } else if let Some(since) = self.idle.take()
            && let Some((began, _)) = &mut self.sample
        {
            *began += now.saturating_duration_since(since.max(*began));
        }
    }

    /// `n` entries were finished, `now`.
    pub fn finished(&mut self, n: usize, now: Instant) {
        let Some((since, before)) = self.sample else {
            self.sample = Some((now, 0));
            return;
        };
        let finished = before.saturating_add(n);
        let elapsed = now.saturating_duration_since(since);
        // Handlers that were started together end together, however long they took. Twice as many ends as there are slots
        // contain whole runs, so that a burst of ends is not mistaken for speed.
        if finished < self.limits.concurrency.saturating_mul(2) && elapsed < SAMPLE {
            self.sample = Some((since, finished));
            return;
        }
        // What is beyond the limits says nothing more, and would be remembered for long once handlers become slow.
        let most = 2.0 * self.limits.concurrency.saturating_add(self.limits.prefetch) as f64 / HORIZON.as_secs_f64();
        let rate = (finished as f64 / elapsed.as_secs_f64().max(1e-6)).min(most);
        self.rate = Some(self.rate.map_or(rate, |known| f64::midpoint(known, rate)));
        self.sample = Some((now, 0));
    }

    /// A read brought `n` entries of `bytes` together. Larger ones count at once, and smaller ones by and by, so that what
    /// is asked for too much is what was asked for before the first large ones came.
    pub fn received(&mut self, n: usize, bytes: usize) {
        if n > 0 {
            let size = bytes as f64 / n as f64;
            self.size = Some(self.size.map_or(size, |known| f64::midpoint(known, size).max(size)));
        }
    }

    /// What `entries` that were asked for and have not come are taken to be, in bytes: to be counted as held.
    pub fn bytes_of(&self, entries: usize) -> usize {
        entries.saturating_mul(self.entry_size())
    }

    /// The most that one read asks for where the next goes on after its last entry and can only be sent then: half of what may
    /// be held, so that the next is under way while its entries are handled; and what comes in one piece, since the last entry
    /// of a longer reply is known late, but 500 in any case, for which a round trip is worth it.
    pub fn most_in_turn(&self) -> usize {
        let may_be_held = self.limits.concurrency.saturating_add(self.limits.prefetch);
        let in_one_piece = ONE_PIECE / self.entry_size().saturating_add(FRAMING);
        may_be_held.div_ceil(2).min(in_one_piece.max(WORTH_PIECES))
    }

    /// How many entries more the bytes allow to be held beside `held_bytes`.
    pub fn fit(&self, held_bytes: usize) -> usize {
        self.limits.prefetch_bytes.saturating_sub(held_bytes) / self.entry_size()
    }

    /// The connection died in the middle of a reply: reads ask for half as much, down to one entry, so that a reply that
    /// is too much for the way or the time limit becomes small enough.
    pub fn interrupted(&mut self) {
        self.cap = (self.cap.min(self.want(0, 0)) / 2).max(1);
    }

    /// A reply was complete: reads may ask for twice as much again, up to the limits.
    pub fn completed(&mut self) {
        let most = self.limits.concurrency.saturating_add(self.limits.prefetch).min(MOST_PER_READ);
        self.cap = self.cap.saturating_mul(2).min(most);
    }

    /// What may be held at the present rate.
    fn target(&self) -> usize {
        let lookahead = (self.rate.unwrap_or(0.0) * HORIZON.as_secs_f64()) as usize;
        self.limits.concurrency.saturating_add(lookahead.min(self.limits.prefetch))
    }

    fn entry_size(&self) -> usize {
        self.size.map_or(FIRST_SIZE, |size| size as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: usize = 1024 * 1024;

    #[expect(clippy::disallowed_methods, reason = "an instant can only be had from the clock; tests count from it")]
    fn start() -> Instant {
        Instant::now()
    }

    fn ahead(concurrency: usize, prefetch: usize) -> ReadAhead {
        ReadAhead::new(ReadLimits { concurrency, prefetch, prefetch_bytes: 16 * MIB })
    }

    #[test]
    fn a_fast_handler_is_read_ahead_for_within_a_few_reads() {
        for (concurrency, prefetch) in [(64, 1000), (1, 1000), (500, 500), (4, 100)] {
            let mut ahead = ahead(concurrency, prefetch);
            let mut now = start();
            let mut reads = 0;
            while ahead.want(0, 0) < concurrency + prefetch {
                let count = ahead.want(0, 0);
                ahead.received(count, count * 100);
                ahead.completed();
                now += Duration::from_micros(100);
                ahead.finished(count, now);
                reads += 1;
                assert!(reads <= 5, "concurrency {concurrency}, prefetch {prefetch}: still at {count}");
            }
        }
    }

    #[test]
    fn slow_handlers_hoard_nothing() {
        let mut ahead = ahead(64, 1000);
        ahead.received(64, 6400);
        let mut now = start();
        for _ in 0..20 {
            // All 64 were started together and end within a millisecond, after ten seconds.
            now += Duration::from_secs(10);
            for _ in 0..64 {
                now += Duration::from_micros(15);
                ahead.finished(1, now);
                assert!(ahead.want(0, 0) <= 64 + 1, "{ahead:?}");
            }
        }
    }

    #[test]
    fn a_handler_that_became_slow_is_no_longer_read_ahead_for() {
        let mut ahead = ahead(4, 1000);
        let mut now = start();
        for _ in 0..10 {
            now += Duration::from_millis(1);
            ahead.received(1000, 1000);
            ahead.finished(1000, now);
        }
        assert_eq!(ahead.want(0, 0), 1004);
        for _ in 0..20 {
            now += Duration::from_secs(1);
            ahead.finished(4, now);
        }
        assert_eq!(ahead.want(0, 0), 4);
    }

    #[test]
    fn waiting_for_entries_is_not_the_handlers_time() {
        let mut ahead = ahead(1, 1000);
        let mut now = start();
        let mut most = 0;
        for _ in 0..10 {
            // A read of what is asked for, handled at 100,000 a second, and then nothing for a second.
            let read = ahead.want(0, 0);
            ahead.received(read, read * 100);
            ahead.holds(true, now);
            for _ in 0..read {
                now += Duration::from_micros(10);
                ahead.finished(1, now);
            }
            ahead.holds(false, now);
            now += Duration::from_secs(1);
            ahead.holds(false, now);
            most = most.max(read);
        }
        assert_eq!((most, ahead.want(0, 0)), (1001, 1001));
    }

    #[test]
    fn without_prefetch_a_read_asks_for_free_slots_only() {
        let mut ahead = ahead(8, 0);
        ahead.received(1, 10);
        let now = start();
        ahead.finished(1, now);
        ahead.finished(100_000, now + Duration::from_millis(1));
        let wanted: Vec<usize> = (0..=9).map(|held| ahead.want(held, 0)).collect();
        assert_eq!(wanted, [8, 7, 6, 5, 4, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn reads_come_in_batches_while_all_slots_are_taken() {
        let mut ahead = ahead(10, 90);
        ahead.received(1, 10);
        let now = start();
        ahead.finished(1, now);
        ahead.finished(100_000, now + Duration::from_millis(1));
        assert_eq!([0, 9, 10, 75, 76, 99, 100].map(|held| ahead.want(held, 0)), [100, 91, 90, 25, 0, 0, 0]);
    }

    #[test]
    fn a_read_that_the_next_one_waits_for_comes_in_one_piece() {
        let most = |limit: usize, size: Option<usize>| {
            let mut ahead = ahead(limit, 0);
            if let Some(size) = size {
                ahead.received(1, size);
            }
            ahead.most_in_turn()
        };
        assert_eq!(most(2_001, Some(216)), 896, "224 KiB of 256 bytes each");
        assert_eq!(most(2_001, Some(20)), 1_001, "half of what may be held");
        assert_eq!([Some(1_100), Some(100_000), None].map(|size| most(2_001, size)), [500; 3], "worth more pieces");
        assert_eq!([most(1, Some(216)), most(11, None)], [1, 6]);
    }

    #[test]
    fn large_entries_are_bounded_by_their_bytes() {
        let mut ahead = ahead(64, 1000);
        assert_eq!(ahead.want(0, 0), 64, "unknown entries count as 64 KiB");
        ahead.received(10, 40 * MIB);
        assert_eq!([0, 1, 3, 4].map(|held| ahead.want(held, held * 4 * MIB)), [4, 3, 1, 0]);
        ahead.received(1, 4096 * MIB);
        assert_eq!(ahead.want(0, 0), 1, "one is always asked for");
    }

    #[test]
    fn large_entries_after_many_small_ones_are_bounded_from_the_next_read_on() {
        let mut ahead = ahead(1000, 0);
        for _ in 0..50 {
            ahead.received(1000, 100_000);
        }
        assert_eq!(ahead.want(0, 0), 1000);
        ahead.received(1000, 1000 * MIB);
        assert_eq!(ahead.want(0, 0), 16, "16 MiB of 1 MiB each");
        // Small ones are trusted again only after a while.
        ahead.received(16, 1_600);
        assert!(ahead.want(0, 0) <= 32);
    }

    #[test]
    fn what_is_on_its_way_takes_room_in_bytes_as_well() {
        let mut ahead = ahead(64, 1000);
        ahead.received(4, 4 * MIB);
        let first = ahead.want(0, 0);
        assert_eq!((first, ahead.want(first, ahead.bytes_of(first))), (16, 0));
    }

    #[test]
    fn interrupted_replies_halve_what_is_asked_for_and_complete_ones_double_it() {
        let mut ahead = ahead(64, 1000);
        let mut counts = Vec::new();
        for _ in 0..8 {
            ahead.interrupted();
            counts.push(ahead.want(0, 0));
        }
        assert_eq!(counts, [32, 16, 8, 4, 2, 1, 1, 1]);
        ahead.completed();
        assert_eq!(ahead.want(0, 0), 2);
        (0..6).for_each(|_| ahead.completed());
        assert_eq!(ahead.want(0, 0), 64);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Finished(usize, u64),
        Received(usize, usize),
        Interrupted,
        Completed,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0_usize..5000, 0_u64..3_000_000).prop_map(|(n, micros)| Step::Finished(n, micros)),
            3 => (0_usize..2000, 0_usize..100_000_000).prop_map(|(n, bytes)| Step::Received(n, bytes)),
            1 => Just(Step::Interrupted),
            1 => Just(Step::Completed),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn the_limits_hold_whatever_happens(
            concurrency in 0_usize..200,
            prefetch in 0_usize..2000,
            prefetch_bytes in 0_usize..100_000_000,
            steps in steps(),
            held in proptest::collection::vec((0_usize..2500, 0_usize..100_000_000), 1..10),
        ) {
            let mut ahead = ReadAhead::new(ReadLimits { concurrency, prefetch, prefetch_bytes });
            let concurrency = concurrency.max(1);
            let mut now = start();
            for step in steps {
                let before = ahead.want(0, 0);
                match step {
                    Step::Finished(n, micros) => {
                        now += Duration::from_micros(micros);
                        ahead.finished(n, now);
                    }
                    Step::Received(n, bytes) => ahead.received(n, bytes),
                    Step::Interrupted => {
                        ahead.interrupted();
                        prop_assert_eq!(ahead.want(0, 0), (before / 2).max(1));
                    }
                    Step::Completed => {
                        ahead.completed();
                        prop_assert!((before..=before * 2).contains(&ahead.want(0, 0)));
                    }
                }
                prop_assert!(ahead.want(0, 0) > 0);
                for (held, bytes) in &held {
                    let want = ahead.want(*held, *bytes);
                    prop_assert!(want == 0 || held + want <= concurrency + prefetch);
                    prop_assert!(want <= ahead.want(0, 0));
                    prop_assert!(*held == 0 || want * ahead.entry_size() <= prefetch_bytes.saturating_sub(*bytes));
                    if *held < concurrency && *held > 0 {
                        let bytes_allow = prefetch_bytes.saturating_sub(*bytes) >= ahead.entry_size();
                        prop_assert_eq!(want > 0, bytes_allow, "a free slot is filled");
                    }
                }
            }
        }

        #[test]
        fn extreme_limits_do_not_overflow(n: usize, bytes: usize, held: usize, held_bytes: usize) {
            let mut ahead =
                ReadAhead::new(ReadLimits { concurrency: usize::MAX, prefetch: usize::MAX, prefetch_bytes: usize::MAX });
            let now = start();
            ahead.finished(n, now);
            ahead.finished(n, now);
            ahead.finished(n, now + Duration::from_secs(1));
            ahead.received(n, bytes);
            ahead.completed();
            prop_assert!(held > 0 || ahead.want(held, held_bytes) > 0);
        }
    }
}
