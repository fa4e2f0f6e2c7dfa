//! What is left over is removed, and nothing that lives or holds an entry ever is.

use std::time::Duration;

use stream_core::{ConsumerAction, ConsumerName, ConsumerPolicy, GroupAction, GroupName, GroupPolicy, NamePattern};
use stream_maint::{ConsumerCleaner, GroupCleaner};
use stream_redis::ErrorKind;
use stream_testkit::MemoryServer;
use stream_testkit::memory::Profile;

use crate::support::{Server, group, id, on_each};

const HOUR: Duration = Duration::from_hours(1);
const PROFILES: [Profile; 4] = [Profile::Redis62, Profile::Redis70, Profile::Redis72Plus, Profile::Redis80Plus];

fn names(consumers: &[ConsumerName]) -> Vec<String> {
    consumers.iter().map(ToString::to_string).collect()
}

fn consumers(server: &Server) -> ConsumerCleaner {
    ConsumerCleaner::new(&server.client, "s", "g", ConsumerPolicy::default()).unwrap()
}

fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn policy() -> GroupPolicy {
    GroupPolicy::new(NamePattern::new("tmp-*").unwrap(), HOUR).unwrap()
}

fn remove(names: &[&str]) -> Vec<(ConsumerName, ConsumerAction)> {
    names.iter().map(|name| (consumer(name), ConsumerAction::Remove { idle: Duration::ZERO })).collect()
}

#[tokio::test(start_paused = true)]
async fn b01_what_holds_entries_is_claimed_first() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        for _ in 0..10 {
            server.add("s", [("n", "1")]);
        }
        server.command(["XGROUP", "CREATE", "s", "g", "0"]).unwrap();
        server.command("XREADGROUP GROUP g A COUNT 10 STREAMS s >".split(' ')).unwrap();
        tokio::time::advance(25 * HOUR).await;
        server.command("XGROUP CREATECONSUMER s g B".split(' ')).unwrap();
        let mut cleaner = ConsumerCleaner::new(&server.client(), "s", "g", ConsumerPolicy::default()).unwrap();
        let report = cleaner.run().await.unwrap();
        assert_eq!((names(&report.claim_first), report.kept), (vec!["A".to_owned()], 1), "{profile:?}");
        assert_eq!(server.pending("s", "g").len(), 10);
        server.command("XAUTOCLAIM s g B 0 0 COUNT 100".split(' ')).unwrap();
        let report = cleaner.run().await.unwrap();
        assert_eq!((names(&report.removed), server.pending("s", "g").len()), (vec!["A".to_owned()], 10), "{profile:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn b09_consumers_of_dead_processes_do_not_pile_up() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        server.command("XGROUP CREATE s g 0 MKSTREAM".split(' ')).unwrap();
        for start in 0..1_000 {
            server.command(["XGROUP", "CREATECONSUMER", "s", "g", &format!("pod-{start}")]).unwrap();
            tokio::time::advance(HOUR).await;
        }
        tokio::time::advance(24 * HOUR).await;
        server.command("XGROUP CREATECONSUMER s g alive".split(' ')).unwrap();
        let mut cleaner = ConsumerCleaner::new(&server.client(), "s", "g", ConsumerPolicy::default()).unwrap();
        let report = cleaner.run().await.unwrap();
        assert_eq!(
            (report.removed.len(), server.consumers("s", "g")),
            (1_000, vec!["alive".to_owned()]),
            "{profile:?}"
        );
    }
}

/// The plan is made, then the consumer reads one entry, then the plan is carried out.
#[tokio::test]
async fn a_consumer_that_reads_between_check_and_removal_stays() {
    on_each(async |server| {
        server.ok("XGROUP CREATE s g 0 MKSTREAM").await;
        for name in ["dead", "back"] {
            server.ok(&format!("XGROUP CREATECONSUMER s g {name}")).await;
        }
        server.fill("s", 1).await;
        server.ok("XREADGROUP GROUP g back COUNT 1 STREAMS s >").await;
        let report = consumers(server).carry_out(&remove(&["dead", "back", "unknown"])).await.unwrap();
        assert_eq!(names(&report.removed), ["dead"], "{}", server.name);
        assert_eq!(names(&report.spared), ["back", "unknown"], "{}", server.name);
        let claimed = server.ok("XCLAIM s g other 0 1-0 JUSTID").await;
        assert!(matches!(claimed, stream_redis::Value::Array(ids) if ids.len() == 1), "{}", server.name);
    })
    .await;
}

/// It asked, was given nothing, and waits: without its name the group would look abandoned.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_asks_in_vain_between_check_and_removal_stays() {
    for profile in [Profile::Redis72Plus, Profile::Redis80Plus] {
        let server = MemoryServer::with_profile(profile);
        server.command("XGROUP CREATE s g 0 MKSTREAM".split(' ')).unwrap();
        for name in ["back", "dead"] {
            server.command(["XGROUP", "CREATECONSUMER", "s", "g", name]).unwrap();
        }
        tokio::time::advance(25 * HOUR).await;
        let mut cleaner = ConsumerCleaner::new(&server.client(), "s", "g", ConsumerPolicy::default()).unwrap();
        let plan = cleaner.plan().await.unwrap();
        server.command("XREADGROUP GROUP g back COUNT 1 STREAMS s >".split(' ')).unwrap();
        tokio::time::advance(24 * HOUR).await;
        let report = cleaner.carry_out(&plan).await.unwrap();
        assert_eq!((names(&report.removed), names(&report.spared)), (vec!["dead".into()], vec!["back".into()]));
    }
}

/// One pattern is not the turn of the other.
#[tokio::test(start_paused = true)]
async fn cleaners_of_other_groups_have_turns_of_their_own() {
    let server = MemoryServer::new();
    let last = server.add("s", [("n", "1")]).to_string();
    let mut cleaners = ["tmp-*", "preview-*", "tmp-*"].map(|pattern| {
        let policy = GroupPolicy::new(NamePattern::new(pattern).unwrap(), HOUR).unwrap();
        GroupCleaner::new(&server.client(), "s", policy).unwrap()
    });
    for name in ["tmp-1", "preview-1"] {
        server.command(["XGROUP", "CREATE", "s", name, &last]).unwrap();
    }
    for removed in [0, 1] {
        let mut turns = Vec::new();
        for cleaner in &mut cleaners {
            turns.push(cleaner.run_if_due().await.unwrap().map(|report| report.removed.len()));
        }
        assert_eq!(turns, [Some(removed), Some(removed), None]);
        tokio::time::advance(HOUR).await;
    }
    assert!(server.groups("s").is_empty());
}

#[tokio::test]
async fn nothing_is_removed_where_removal_cannot_be_made_safe() {
    let server = MemoryServer::new();
    server.command("XGROUP CREATE s g 0 MKSTREAM".split(' ')).unwrap();
    server.command("XGROUP CREATECONSUMER s g dead".split(' ')).unwrap();
    server.deny("EVALSHA");
    server.deny("EVAL");
    let mut cleaner = ConsumerCleaner::new(&server.client(), "s", "g", ConsumerPolicy::default()).unwrap();
    let report = cleaner.carry_out(&remove(&["dead"])).await.unwrap();
    assert_eq!((report.spared.len(), server.consumers("s", "g").len()), (1, 1));
    let mut groups = GroupCleaner::new(&server.client(), "s", policy()).unwrap();
    let plan = [(group("g"), GroupAction::Remove { last_delivered: stream_core::EntryId::ZERO })];
    assert_eq!(groups.carry_out(&plan).await.unwrap().spared, [group("g")]);
    server.clear_faults();
    server.deny("XGROUP");
    let mut cleaner = ConsumerCleaner::new(&server.client(), "s", "g", ConsumerPolicy::default()).unwrap();
    let error = cleaner.carry_out(&remove(&["dead"])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoPermission);
    assert_eq!(server.consumers("s", "g").len(), 1);
}

#[tokio::test]
async fn missing_streams_and_groups_are_states() {
    on_each(async |server| {
        let check = async || {
            assert_eq!(consumers(server).run().await.unwrap().kept, 0, "{}", server.name);
            let report = consumers(server).carry_out(&remove(&["a"])).await.unwrap();
            assert_eq!(names(&report.spared), ["a"], "{}", server.name);
            let mut groups = GroupCleaner::new(&server.client, "s", policy()).unwrap();
            assert_eq!(groups.run().await.unwrap().kept, 0, "{}", server.name);
            let plan = [(group("g"), GroupAction::Remove { last_delivered: id(1) })];
            assert_eq!(groups.carry_out(&plan).await.unwrap().spared, [group("g")], "{}", server.name);
        };
        check().await;
        server.fill("s", 1).await;
        check().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn abandoned_groups_go_when_they_were_seen_unchanged_for_long() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        let last = server.add("s", [("n", "1")]).to_string();
        // Read and left; never read; read by others; not named by the pattern; somebody holds an entry.
        for (group, start) in [("tmp-left", last.as_str()), ("tmp-new", "0"), ("tmp-read", &last), ("billing", &last)] {
            server.command(["XGROUP", "CREATE", "s", group, start]).unwrap();
        }
        server.command("XGROUP CREATECONSUMER s tmp-read c".split(' ')).unwrap();
        server.command("XGROUP CREATE s tmp-held 0".split(' ')).unwrap();
        server.command("XREADGROUP GROUP tmp-held c STREAMS s >".split(' ')).unwrap();
        let mut cleaner = GroupCleaner::new(&server.client(), "s", policy()).unwrap();
        assert_eq!(cleaner.run().await.unwrap().kept, 5, "seen for the first time");
        tokio::time::advance(Duration::from_secs(3599)).await;
        assert_eq!(cleaner.run().await.unwrap().kept, 5);
        tokio::time::advance(Duration::from_secs(1)).await;
        let report = cleaner.run().await.unwrap();
        assert_eq!((report.removed, report.kept), (vec![group("tmp-left")], 4), "{profile:?}");
        assert_eq!(server.groups("s"), ["billing", "tmp-held", "tmp-new", "tmp-read"], "{profile:?}");
    }
}

/// The plan says remove; before it is carried out, somebody has joined, read or moved the group.
#[tokio::test]
async fn a_group_that_is_used_between_check_and_removal_stays() {
    on_each(async |server| {
        server.fill("s", 3).await;
        for name in ["tmp-left", "tmp-joined", "tmp-read", "tmp-moved"] {
            server.ok(&format!("XGROUP CREATE s {name} 2-0")).await;
        }
        let groups = ["tmp-left", "tmp-joined", "tmp-read", "tmp-moved", "tmp-unknown"].map(group);
        let plan = groups.map(|name| (name, GroupAction::Remove { last_delivered: id(2) }));
        server.ok("XGROUP CREATECONSUMER s tmp-joined c").await;
        server.ok("XREADGROUP GROUP tmp-read c COUNT 1 STREAMS s >").await;
        server.ok("XGROUP SETID s tmp-moved 1-0").await;
        let mut cleaner = GroupCleaner::new(&server.client, "s", policy()).unwrap();
        let report = cleaner.carry_out(&plan).await.unwrap();
        let text = |groups: &[GroupName]| groups.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&report.removed), ["tmp-left"], "{}", server.name);
        assert_eq!(text(&report.spared), ["tmp-joined", "tmp-read", "tmp-moved", "tmp-unknown"], "{}", server.name);
    })
    .await;
}

/// A consumer that made itself known and waits on a quiet stream for much longer than every limit.
#[tokio::test(start_paused = true)]
async fn b07_a_quiet_group_with_a_live_consumer_is_never_taken() {
    for profile in PROFILES {
        let server = MemoryServer::with_profile(profile);
        let last = server.add("s", [("n", "1")]).to_string();
        server.command(["XGROUP", "CREATE", "s", "tmp-quiet", &last]).unwrap();
        server.command("XGROUP CREATECONSUMER s tmp-quiet alive".split(' ')).unwrap();
        let mut groups = GroupCleaner::new(&server.client(), "s", policy()).unwrap();
        let mut consumers =
            ConsumerCleaner::new(&server.client(), "s", "tmp-quiet", ConsumerPolicy::default()).unwrap();
        for _ in 0..72 {
            // A poll that gives nothing; before 7.2 it leaves no trace.
            server.command("XREADGROUP GROUP tmp-quiet alive COUNT 1 STREAMS s >".split(' ')).unwrap();
            tokio::time::advance(HOUR).await;
            assert!(consumers.run().await.unwrap().removed.is_empty(), "{profile:?}");
            assert!(groups.run().await.unwrap().removed.is_empty(), "{profile:?}");
        }
        assert_eq!(server.consumers("s", "tmp-quiet"), ["alive"], "{profile:?}");
    }
}
