//! What decides with numbers: takeovers, pauses, leases, the search for the dead and reading ahead, by what each promises.
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use stream_core::{
    Backoff, BackoffPolicy, Holder, LeasePolicy, NextStep, ReadAhead, ReadLimits, RetryPolicy, SearchBudget, Takeover,
};

#[derive(Debug, Arbitrary)]
struct Input {
    most: Option<u32>,
    fates: Vec<Fate>,
    deliveries: u64,
    pauses: (u64, u64, Vec<(f64, bool)>),
    lease: (u64, u32, u32, u32),
    search: (u32, Vec<Step>),
    read: (u16, u16, u32, Vec<Read>),
}

/// What becomes of a start.
#[derive(Debug, Arbitrary, Clone, Copy)]
enum Fate {
    Dies,
    /// A suspect that was to be alone, but beside which others ran for very long.
    DiesBesideOthers,
    IsStopped,
}

#[derive(Debug, Arbitrary)]
enum Step {
    Spend(u32, bool),
    Look(Vec<(u8, u32)>),
    Lift,
}

#[derive(Debug, Arbitrary)]
enum Read {
    Want(u16, u32),
    Holds(bool, u16),
    Finished(u16, u16),
    Received(u16, u32),
    Interrupted,
    Completed,
}

fuzz_target!(|input: Input| {
    takeovers(&input);
    pauses(&input);
    leases(&input);
    search(&input);
    read_ahead(&input);
});

/// An entry all of whose owners die or stop is started in order, no oftener than once above the limit, and given up after a
/// start that was the last allowed, at which it was alone.
fn takeovers(input: &Input) {
    let mut retry = RetryPolicy::immediate();
    retry = match input.most {
        Some(most) => retry.max_attempts(most.max(1)),
        None => retry.unlimited(),
    };
    let most = input.most.map(|most| most.max(1));
    let any = Takeover::decide(input.deliveries, &retry);
    assert!(most.is_some() || !matches!(any, Takeover::GiveUp { .. }), "without a limit nothing is given up");
    // The first start is everybody's.
    let (mut count, mut starts) = (Takeover::count(1, most == Some(1), &retry), 1_u32);
    for fate in &input.fates {
        count = match fate {
            Fate::IsStopped => u64::from(Takeover::cut_short(starts, &retry)),
            Fate::Dies | Fate::DiesBesideOthers => count,
        };
        match Takeover::decide(count, &retry) {
            Takeover::GiveUp { attempts } => {
                let most = most.expect("without a limit nothing is given up");
                assert!(!matches!(fate, Fate::IsStopped), "a stop ends nothing");
                assert!(attempts >= most && attempts <= most.saturating_add(1), "{attempts} of {most}");
                assert!(starts >= most && starts <= most.saturating_add(1), "{starts} starts, {most} allowed");
                return;
            }
            Takeover::Start { attempt } => {
                assert!(attempt <= 2, "from the second death on it is a suspect");
                (count, starts) = (Takeover::count(attempt, false, &retry), attempt);
            }
            Takeover::Suspect { attempt, alone } => {
                assert!(attempt >= 2);
                assert!(most.is_none_or(|most| attempt <= most.saturating_add(1)));
                assert!(!alone || most.is_some_and(|most| attempt >= most), "only the last start is alone");
                let alone = alone && !matches!(fate, Fate::DiesBesideOthers);
                (count, starts) = (Takeover::count(attempt, alone, &retry), attempt);
            }
            _ => unreachable!("there is nothing else"),
        }
        assert!(count >= u64::from(starts) && count <= u64::from(starts) + 1);
    }
}

/// Pauses are within their bounds and never shorter than a tenth of the base; the bound doubles and is reset.
fn pauses(input: &Input) {
    let (base, max, draws) = &input.pauses;
    let Ok(policy) = BackoffPolicy::new(Duration::from_millis(*base), Duration::from_millis(*max)) else { return };
    let (mut backoff, mut failures) = (Backoff::new(policy), 0_u32);
    for (random, reset) in draws {
        if *reset {
            backoff.reset();
            failures = 0;
        }
        let delay = backoff.next(*random);
        let bound = policy.base().saturating_mul(2_u32.saturating_pow(failures)).min(policy.max());
        assert!(
            delay >= policy.base() / 10 && delay <= bound,
            "{delay:?} after {failures} failures, at most {bound:?}"
        );
        failures += 1;
        assert_eq!(backoff.attempts(), failures);
    }
}

/// What is certain is trusted, what is trusted is shorter than the lease, and a late answer makes nothing younger.
fn leases(input: &Input) {
    let (lease, asked, took, later) = input.lease;
    let Ok(policy) = LeasePolicy::new(Duration::from_millis(lease)) else { return };
    assert!(policy.trusted() < policy.lease() && policy.renew_from() + policy.renew_every() <= policy.lease() / 2);
    let start = Instant::now();
    let ms = |ms: u32| Duration::from_millis(ms.into());
    let asked = start + ms(asked);
    let now = asked + ms(took);
    let since = policy.delivered_since(asked, Duration::from_secs(5), now);
    assert!(since == asked || since == now);
    assert!(since == asked || now - asked <= policy.lease() - policy.trusted(), "as late as that it says nothing");
    let (certainty, at) = (policy.certainty(now), start + ms(later));
    for then in [now, at, now + Duration::from_millis(5)] {
        if then >= now && certainty.covers(since, then) {
            assert!(policy.is_certain(since, then), "the short way says no more than the long one");
        }
        if policy.is_certain(since, then) {
            assert!(then.saturating_duration_since(since) < policy.lease());
        }
    }
}

/// An ordinary search takes its share and no more steps; one that was lifted goes on.
fn search(input: &Input) {
    let (every, steps) = &input.search;
    let every = Duration::from_millis((*every).into());
    let (mut budget, mut spent, mut looked) = (SearchBudget::new(every), Duration::ZERO, None);
    for step in steps {
        match step {
            Step::Spend(time, found) => {
                let time = Duration::from_micros((*time).into());
                let next = budget.spend(time, *found);
                spent += if *found { Duration::ZERO } else { time };
                let over = spent >= every / 100;
                assert_eq!(next == NextStep::GoOn, !over || budget.is_lifted(), "{spent:?} of {every:?}");
                assert!(next != NextStep::LookAtOwners || looked.is_none(), "owners are looked at once");
            }
            Step::Look(holders) => {
                let holders: Vec<_> = holders
                    .iter()
                    .map(|(pending, idle)| Holder {
                        pending: (*pending).into(),
                        idle: Duration::from_millis((*idle).into()),
                    })
                    .collect();
                let lease = Duration::from_secs(30);
                let dead = holders.iter().any(|holder| holder.pending > 0 && holder.idle >= lease / 2);
                assert_eq!(budget.lift_if(holders, lease), dead);
                looked = Some(dead);
            }
            Step::Lift => {
                budget.lift();
                looked = Some(true);
            }
        }
        assert_eq!(budget.is_lifted(), looked == Some(true));
    }
}

/// What is held and what is asked for are never more than what may be held, in entries, and one read asks for something where
/// nothing is held.
fn read_ahead(input: &Input) {
    let (concurrency, prefetch, prefetch_bytes, steps) = &input.read;
    let limits = ReadLimits {
        concurrency: (*concurrency).into(),
        prefetch: (*prefetch).into(),
        prefetch_bytes: *prefetch_bytes as usize,
    };
    let mut ahead = ReadAhead::new(limits);
    let most = limits.concurrency.max(1) + limits.prefetch;
    let (start, mut now) = (Instant::now(), 0_u64);
    for step in steps {
        let at = |now: u64| start + Duration::from_millis(now);
        match step {
            Read::Want(held, bytes) => {
                let held = usize::from(*held) % (most + 1);
                let bytes = if held == 0 { 0 } else { *bytes as usize };
                let want = ahead.want(held, bytes);
                assert!(held + want <= most, "{held} held, {want} asked for, {most} allowed");
                assert!(held > 0 || want > 0, "it would never read again");
                assert!(held == 0 || want == 0 || want <= ahead.fit(bytes), "{want} of {bytes} bytes");
                assert!(want <= 2_000);
            }
            Read::Holds(any, after) => {
                now += u64::from(*after);
                ahead.holds(*any, at(now));
            }
            Read::Finished(n, after) => {
                now += u64::from(*after);
                ahead.finished((*n).into(), at(now));
            }
            Read::Received(n, bytes) => {
                ahead.received((*n).into(), *bytes as usize);
                let (n, bytes) = (usize::from(*n), *bytes as usize);
                // What came last is not underestimated by more than what rounding takes of each.
                assert!(n == 0 || ahead.bytes_of(n) + n >= bytes, "{} of {bytes}", ahead.bytes_of(n));
            }
            Read::Interrupted => ahead.interrupted(),
            Read::Completed => ahead.completed(),
        }
        assert!(ahead.most_in_turn() >= 1 && ahead.most_in_turn() <= most.div_ceil(2));
        assert_eq!(ahead.limits().prefetch, limits.prefetch);
    }
}
