//! What a trimmer takes and what it leaves, and that its trouble stays its own.

use std::time::Duration;

use stream_core::{NamePattern, Need, Pin, TrimPolicy};
use stream_maint::{LagMonitor, TrimReport, Trimmed, Trimmer};
use stream_redis::ErrorKind;
use stream_testkit::MemoryServer;
use stream_testkit::memory::{Fault, Profile};

use crate::support::{Server, group, id, key, on_each};

async fn report(trimmer: &mut Trimmer) -> TrimReport {
    match trimmer.run().await.unwrap() {
        Trimmed::Stream(report) => report,
        other => panic!("{other:?}"),
    }
}

fn trimmer(server: &Server, policy: TrimPolicy) -> Trimmer {
    Trimmer::builder(&server.client).stream("s").policy(policy).build().unwrap()
}

#[tokio::test]
async fn b03_entries_that_a_slow_group_has_not_read_stay() {
    on_each(async |server| {
        server.fill("s", 4).await;
        server.group("s", "slow", 0, &[]).await;
        server.group("s", "fast", 4, &[]).await;
        let report = report(&mut trimmer(server, TrimPolicy::new().longer_than(1))).await;
        assert_eq!((report.removed, server.len("s").await), (0, 4), "{}", server.name);
        let Pin::Group { name, need, .. } = report.plan.pinned_by else { panic!("{:?}", report.plan) };
        assert_eq!((name, need), (group("slow"), Need::Everything));
    })
    .await;
}

#[tokio::test]
async fn b04_the_floor_minds_pending_entries_and_new_groups() {
    on_each(async |server| {
        server.fill("s", 20).await;
        server.group("s", "g1", 20, &[5, 9]).await;
        server.group("s", "g2", 0, &[]).await;
        let mut trimmer = trimmer(server, TrimPolicy::new());
        assert_eq!(report(&mut trimmer).await.removed, 0, "{}", server.name);
        server.ok("XREADGROUP GROUP g2 c NOACK COUNT 100 STREAMS s >").await;
        let report = report(&mut trimmer).await;
        assert_eq!((report.removed, report.plan.min_id), (4, Some(id(5))), "{}", server.name);
        let Pin::Group { name, need, pending, .. } = report.plan.pinned_by else { panic!("{:?}", report.plan) };
        assert_eq!((name, need, pending), (group("g1"), Need::Pending(id(5)), 2));
        assert!(report.pinned_age.is_some());
        let claimed = server.ok("XCLAIM s g1 other 0 5-0 9-0").await;
        assert!(matches!(claimed, stream_redis::Value::Array(entries) if entries.len() == 2), "{}", server.name);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn b05_a_stale_group_pins_the_floor_until_the_policy_names_it() {
    let server = MemoryServer::new();
    let client = server.client();
    for _ in 0..10 {
        server.add("s", [("n", "1")]);
    }
    for group in ["dead-1", "live"] {
        server.command(["XGROUP", "CREATE", "s", group, "0"]).unwrap();
    }
    server.command("XREADGROUP GROUP dead-1 c COUNT 1 STREAMS s >".split(' ')).unwrap();
    server.command("XREADGROUP GROUP live c NOACK COUNT 10 STREAMS s >".split(' ')).unwrap();
    let mut careful = Trimmer::builder(&client).stream("s").build().unwrap();
    let pinned = report(&mut careful).await;
    assert!(matches!(pinned.plan.pinned_by, Pin::Group { name, .. } if name == group("dead-1")));
    assert_eq!(pinned.excluded, []);

    let stale = TrimPolicy::new().exclude_stale(NamePattern::new("dead-*").unwrap(), Duration::from_mins(10));
    let mut loud = Trimmer::builder(&client).stream("s").policy(stale).build().unwrap();
    assert_eq!(report(&mut loud).await.removed, 0, "it was seen for the first time");
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(report(&mut loud).await.removed, 0);
    tokio::time::advance(Duration::from_secs(1)).await;
    let report = report(&mut loud).await;
    assert_eq!((report.removed, server.len("s")), (9, 1));
    let [lost] = report.excluded.as_slice() else { panic!("{report:?}") };
    assert_eq!((&lost.group.name, lost.group.pending, lost.lag), (&group("dead-1"), 1, Some(9)));
    assert!(lost.lost_from.is_some());
}

/// One entry takes its handler hours, and its lease is renewed all the while.
#[tokio::test(start_paused = true)]
async fn a_group_whose_consumer_is_alive_is_never_stale() {
    for profile in [Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus] {
        let server = MemoryServer::with_profile(profile);
        let held = server.add("s", [("n", "1")]).to_string();
        server.add("s", [("n", "2")]);
        server.command(["XGROUP", "CREATE", "s", "slow", "0"]).unwrap();
        server.command(["XGROUP", "CREATE", "s", "done", "$"]).unwrap();
        server.command("XREADGROUP GROUP slow c COUNT 10 STREAMS s >".split(' ')).unwrap();
        let stale = TrimPolicy::new().exclude_stale(NamePattern::new("slow*").unwrap(), Duration::from_mins(10));
        let mut trimmer = Trimmer::builder(&server.client()).stream("s").policy(stale).build().unwrap();
        for _ in 0..60 {
            tokio::time::advance(Duration::from_mins(1)).await;
            server.command(["XCLAIM", "s", "slow", "c", "0", &held, "JUSTID"]).unwrap();
            let report = report(&mut trimmer).await;
            assert_eq!((report.removed, report.excluded), (0, Vec::new()), "{profile:?}");
        }
        tokio::time::advance(Duration::from_mins(10)).await;
        let report = report(&mut trimmer).await;
        assert_eq!((report.removed, report.excluded.len()), (1, 1), "{profile:?}");
    }
}

#[tokio::test]
async fn b62_exact_is_exact_and_never_beyond_the_last_entry() {
    on_each(async |server| {
        server.fill("s", 50).await;
        server.group("s", "g", 39, &[]).await;
        let about = report(&mut trimmer(server, TrimPolicy::new().approximate())).await;
        assert_eq!((about.removed, server.len("s").await), (0, 50), "{}: one block is not touched", server.name);
        let exact = report(&mut trimmer(server, TrimPolicy::new())).await;
        assert_eq!((exact.removed, server.len("s").await), (39, 11), "{}", server.name);
        server.ok("XREADGROUP GROUP g c NOACK COUNT 100 STREAMS s >").await;
        let last = report(&mut trimmer(server, TrimPolicy::new())).await;
        assert_eq!((last.removed, server.len("s").await), (10, 1), "{}", server.name);
        assert_eq!(last.plan.pinned_by, Pin::Newest);
        // An early id and then those of a clock: once a server took the newer ones.
        server.ok("DEL s").await;
        server.ok("XADD s 10-1 n 0").await;
        for n in 0..120 {
            server.ok(&format!("XADD s {}-0 n {n}", 1_700_000_000_000_u64 + n)).await;
        }
        server.ok("XGROUP CREATE s g 1700000000099-0").await;
        let mixed = report(&mut trimmer(server, TrimPolicy::new())).await;
        assert_eq!((mixed.removed, server.len("s").await), (101, 20), "{}", server.name);
        let rest = server.ok("XRANGE s - + COUNT 1").await;
        assert!(format!("{rest:?}").contains("1700000000100-0"), "{}: {rest:?}", server.name);
    })
    .await;
}

/// Acknowledging frees nothing of the stream, and what is not acknowledged can be seen to pile up.
#[tokio::test]
async fn b63_what_all_have_acknowledged_is_gone_in_steps_with_its_memory() {
    on_each(async |server| {
        if !server.name.ends_with("resp3") {
            return;
        }
        let memory = async || server.ok("MEMORY USAGE s").await.as_int().unwrap();
        let add = "for i = 1, 100000 do redis.call('XADD', KEYS[1], i .. '-0', 'n', i) end";
        server.args(&["EVAL", add, "1", "s"]).await;
        server.group("s", "g", 0, &[]).await;
        server.ok("XREADGROUP GROUP g failing COUNT 100000 STREAMS s >").await;
        let held = report(&mut trimmer(server, TrimPolicy::new())).await;
        let pin = Pin::Group {
            name: group("g"),
            need: Need::Pending(id(1)),
            pending: 100_000,
            unchanged: Some(Duration::ZERO),
        };
        assert_eq!((held.removed, &held.plan.pinned_by), (0, &pin), "{}", server.name);
        let lag = LagMonitor::new(&server.client, "s").unwrap().look().await.unwrap().unwrap();
        let (oldest, holder) = (lag.groups[0].oldest.as_ref().unwrap(), &lag.groups[0].consumers[0]);
        assert_eq!((lag.groups[0].pending, holder.pending), (100_000, 100_000), "{}: what an alarm sees", server.name);
        assert_eq!((oldest.id, oldest.deliveries), (id(1), 1), "{}", server.name);

        let acknowledge = "for i = 1, 100000 do redis.call('XACK', KEYS[1], 'g', i .. '-0') end";
        server.args(&["EVAL", acknowledge, "1", "s"]).await;
        let before = memory().await;
        assert_eq!(server.len("s").await, 100_000, "{}: acknowledged and still there", server.name);
        let report = report(&mut trimmer(server, TrimPolicy::new())).await;
        assert_eq!((report.removed, server.len("s").await), (99_999, 1), "{}", server.name);
        let after = memory().await;
        assert!(before > 500_000 && after < 50_000, "{}: {before} B, then {after} B", server.name);
    })
    .await;
}

#[tokio::test]
async fn a_missing_stream_is_a_state() {
    on_each(async |server| {
        let mut trimmer = trimmer(server, TrimPolicy::new().longer_than(1));
        assert_eq!(trimmer.run().await.unwrap(), Trimmed::NoStream, "{}", server.name);
        assert_eq!(trimmer.plan().await.unwrap(), None);
        assert_eq!(server.ok("EXISTS s").await.as_int(), Some(0));
    })
    .await;
}

#[tokio::test]
async fn a_group_that_comes_later_is_waited_for() {
    on_each(async |server| {
        server.fill("s", 3).await;
        server.group("s", "now", 3, &[]).await;
        let mut trimmer = Trimmer::builder(&server.client).stream("s").protect("later").build().unwrap();
        let report = report(&mut trimmer).await;
        assert_eq!(report.removed, 0, "{}", server.name);
        assert!(matches!(report.plan.pinned_by, Pin::Group { name, .. } if name == group("later")));
        server.group("s", "later", 2, &[]).await;
        assert_eq!(self::report(&mut trimmer).await.removed, 2, "{}", server.name);
    })
    .await;
}

#[tokio::test]
async fn readers_without_a_group_are_spared_once_they_tell_their_place() {
    on_each(async |server| {
        server.fill("s", 9).await;
        server.group("s", "g", 9, &[]).await;
        let mut trimmer = trimmer(server, TrimPolicy::new());
        let (readers, name) = (trimmer.readers(), group("dashboard"));
        readers.set(&name, id(3));
        assert_eq!(report(&mut trimmer).await.removed, 3, "{}", server.name);
        readers.forget(&name);
        assert_eq!(report(&mut trimmer).await.removed, 5, "{}", server.name);
    })
    .await;
}

#[tokio::test]
async fn entries_go_by_number_only_as_far_as_groups_allow() {
    on_each(async |server| {
        server.fill("s", 450).await;
        let check = async |policy: TrimPolicy, removed: u64, pin: Pin| {
            let report = report(&mut trimmer(server, policy)).await;
            assert_eq!((report.removed, report.plan.pinned_by), (removed, pin), "{}", server.name);
        };
        check(TrimPolicy::new().longer_than(300), 150, Pin::Length).await;
        check(TrimPolicy::new().longer_than(1000), 0, Pin::Length).await;
        server.ok("XGROUP CREATE s g 199-0").await;
        let need = Need::Undelivered(stream_core::EntryId::new(199, 1));
        let unchanged = Some(Duration::ZERO);
        let pin = Pin::Group { name: group("g"), need, pending: 0, unchanged };
        check(TrimPolicy::new().longer_than(10), 49, pin).await;
        check(TrimPolicy::new().older_than(Duration::from_mins(1)).longer_than(251), 0, Pin::Length).await;
    })
    .await;
}

/// What is too many is counted before the walk over it; another trimmer, or an `XDEL`, takes entries in between.
#[tokio::test(start_paused = true)]
async fn what_goes_meanwhile_is_not_cut_from_the_newest() {
    // How many are kept, what the group has finished, and what is deleted: nothing where another trimmer is what cuts. In
    // the last case it is the group's floor that ends the walk.
    let cases = [(300, None, 0..0), (300, Some(400), 0..0), (300, None, 1..101), (100, Some(140), 200..441)];
    for (keep, finished, deleted) in cases {
        let server = MemoryServer::new();
        for n in 1..=450 {
            server.command(["XADD", "s", &format!("{n}-0"), "n", "1"]).unwrap();
        }
        if let Some(last) = finished {
            server.command(["XGROUP", "CREATE", "s", "g", &format!("{last}-0")]).unwrap();
        }
        let newest = || {
            let policy = TrimPolicy::new().longer_than(keep);
            Trimmer::builder(&server.client()).stream("s").policy(policy).build().unwrap()
        };
        let (mut late, mut early) = (newest(), newest());
        server.fail_next("XINFO STREAM", Fault::Delay(Duration::from_secs(1)));
        let (held, left) = tokio::join!(report(&mut late), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if deleted.is_empty() {
                assert_eq!(report(&mut early).await.removed, 150);
            }
            for n in deleted.clone() {
                server.command(["XDEL", "s", &format!("{n}-0")]).unwrap();
            }
            server.len("s") as u64
        });
        let case = format!("{keep} {finished:?} {deleted:?}");
        assert_eq!((held.removed, held.plan.pinned_by, server.len("s") as u64), (0, Pin::Length, left), "{case}");
        // The next time it is counted as it is.
        late.run().await.unwrap();
        assert_eq!(server.len("s") as u64, keep, "{case}");
    }
}

#[tokio::test]
async fn one_of_the_fleet_trims_in_each_period() {
    on_each(async |server| {
        server.fill("s", 2).await;
        let (mut here, mut there) = (trimmer(server, TrimPolicy::new()), trimmer(server, TrimPolicy::new()));
        assert!(matches!(here.run_if_due().await.unwrap(), Trimmed::Stream(_)), "{}", server.name);
        assert_eq!(there.run_if_due().await.unwrap(), Trimmed::NotDue, "{}", server.name);
        assert_eq!(here.run_if_due().await.unwrap(), Trimmed::NotDue, "{}", server.name);
        let left = server.ok("DEL {s}:streamkeeper:trim").await;
        assert_eq!(left.as_int(), Some(1), "{}", server.name);
        assert!(matches!(there.run_if_due().await.unwrap(), Trimmed::Stream(_)), "{}", server.name);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_period_is_a_period_of_the_fleet() {
    let server = MemoryServer::new();
    server.add("s", [("n", "1")]);
    let run = async |server: &MemoryServer| {
        let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
        trimmer.run_every(tokio::time::sleep(Duration::from_secs(599)), |_| {}).await
    };
    let (here, there) = tokio::join!(run(&server), run(&server));
    assert_eq!(here.runs + there.runs, 10, "ten minutes at the default of one each");
    assert_eq!(here.failures + there.failures, 0);
}

#[tokio::test(start_paused = true)]
async fn trouble_is_counted_and_heals_with_a_new_connection() {
    let server = MemoryServer::new();
    for _ in 0..3 {
        server.add("s", [("n", "1")]);
    }
    server.command(["XGROUP", "CREATE", "s", "g", "$"]).unwrap();
    server.deny("XTRIM");
    let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
    let mut seen = Vec::new();
    let totals = trimmer
        .run_every(tokio::time::sleep(Duration::from_secs(359)), |result| {
            seen.push(result.as_ref().err().map(stream_redis::Error::kind));
            match seen.len() {
                2 => {
                    server.clear_faults();
                    server.fail_next("XINFO GROUPS", Fault::CutBefore);
                }
                3 => server.kill_connections(),
                4 => server.set_down(true),
                5 => server.set_down(false),
                _ => {}
            }
        })
        .await;
    let (denied, cut) = (Some(ErrorKind::NoPermission), Some(ErrorKind::Io));
    assert_eq!(seen[..3], [denied, denied, cut]);
    assert_eq!(seen.last(), Some(&None), "{seen:?}");
    assert_eq!((totals.removed, server.len("s")), (2, 1));
    assert_eq!(totals.failures, seen.iter().flatten().count() as u64);
}

/// A group that is destroyed, and made anew at the beginning, between the look at the groups and the cut.
#[tokio::test(start_paused = true)]
async fn a_group_that_is_made_anew_while_its_stream_is_trimmed_loses_nothing() {
    for made_anew in ["0", "3-0"] {
        let server = MemoryServer::new();
        for n in 1..=9 {
            server.command(["XADD", "s", &format!("{n}-0"), "n", "1"]).unwrap();
        }
        server.command(["XGROUP", "CREATE", "s", "g", "$"]).unwrap();
        server.fail_next("XPENDING", Fault::Delay(Duration::from_secs(1)));
        let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
        let (report, ()) = tokio::join!(report(&mut trimmer), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            server.destroy_group("s", "g");
            server.command(["XGROUP", "CREATE", "s", "g", made_anew]).unwrap();
        });
        assert_eq!((report.removed, server.len("s")), (0, 9), "made anew at {made_anew}");
        // The next time it is seen as it is.
        trimmer.run().await.unwrap();
        assert_eq!(server.len("s"), if made_anew == "0" { 9 } else { 6 });
    }
}

/// Destroyed by mistake, or lost by a failover, while its consumers pause: they make it anew where it was.
#[tokio::test(start_paused = true)]
async fn a_group_that_has_just_gone_still_holds_what_it_needed() {
    let server = MemoryServer::new();
    for n in 1..=9 {
        server.command(["XADD", "s", &format!("{n}-0"), "n", "1"]).unwrap();
    }
    server.command("XGROUP CREATE s fast 9-0".split(' ')).unwrap();
    server.command("XGROUP CREATE s slow 3-0".split(' ')).unwrap();
    let build = || Trimmer::builder(&server.client()).stream("s").build().unwrap();
    let (mut trimmer, mut idle) = (build(), build());
    assert!(matches!(trimmer.run_if_due().await.unwrap(), Trimmed::Stream(report) if report.removed == 3));
    // Whose turn it is not has seen the groups as well, and may be the one to trim next.
    assert_eq!(idle.run_if_due().await.unwrap(), Trimmed::NotDue);
    server.destroy_group("s", "slow");
    for trimmer in [&mut trimmer, &mut idle] {
        for passed in [0, 599] {
            tokio::time::advance(Duration::from_secs(passed)).await;
            let held = report(trimmer).await;
            let Pin::Group { name, need, .. } = held.plan.pinned_by else { panic!("{:?}", held.plan) };
            assert_eq!((held.removed, name), (0, group("slow")), "after {passed} s");
            assert_eq!(need, Need::Undelivered(stream_core::EntryId::new(3, 1)));
        }
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(report(&mut trimmer).await.removed, 5, "it was meant to go");
    assert_eq!(server.len("s"), 1);
}

/// A stream that is gone leaves nothing that its groups could need.
#[tokio::test(start_paused = true)]
async fn groups_that_went_with_their_stream_hold_nothing() {
    let server = MemoryServer::new();
    let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
    server.add("s", [("n", "1")]);
    server.command("XGROUP CREATE s slow 0".split(' ')).unwrap();
    trimmer.run().await.unwrap();
    server.command(["DEL", "s"]).unwrap();
    assert_eq!(trimmer.run().await.unwrap(), Trimmed::NoStream);
    for _ in 0..3 {
        server.add("s", [("n", "1")]);
    }
    server.command("XGROUP CREATE s fast $".split(' ')).unwrap();
    assert_eq!(report(&mut trimmer).await.removed, 2);
}

#[tokio::test]
async fn who_may_not_write_the_lease_or_has_no_memory_left_trims_all_the_same() {
    let server = MemoryServer::new();
    server.add("s", [("n", "1")]);
    let mut trimmer = Trimmer::builder(&server.client()).stream("s").build().unwrap();
    server.fail_next("SET", Fault::error("OOM command not allowed when used memory > 'maxmemory'."));
    assert!(matches!(trimmer.run_if_due().await.unwrap(), Trimmed::Stream(_)));
    server.deny("SET");
    assert!(matches!(trimmer.run_if_due().await.unwrap(), Trimmed::Stream(_)));
    server.clear_faults();
    server.set_string("t");
    let mut wrong = Trimmer::builder(&server.client()).stream("t").build().unwrap();
    let error = wrong.run().await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(&key("t"))));
}
