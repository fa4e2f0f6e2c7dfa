//! Masters that sentinels replace.

use std::collections::BTreeSet;
use std::time::Duration;

use stream_redis::Value;
use stream_testkit::{RealServer, SentinelSetup, ServerBinary, eventually};
use streamkeeper::{Client, Consumer, DurableBuilder, EntryId, ErrorKind, Publisher, StreamKey};
use streamkeeper_tests::{Ask, Journal, start};
use tokio::time::Instant;

use super::load::{Load, Seen, Times, probe, thorough};
use super::{LIMIT, durable, noting, on_programs, on_some_programs, plain, programs, publish, replicated};

/// Consumption goes on so soon after the new master serves.
const BOUND: Duration = Duration::from_secs(3);

/// With the pauses between attempts that everybody has who sets none.
fn with_default_backoff(client: &Client) -> DurableBuilder {
    durable(client).backoff(Duration::from_secs(1), Duration::from_secs(60)).stream("orders")
}

async fn role(server: &RealServer) -> Option<String> {
    let Value::Array(role) = server.cli(&["ROLE"]).await.ok()? else { return None };
    role[0].as_bytes().map(|role| String::from_utf8_lossy(role).into_owned())
}

fn ids(entries: &[streamkeeper::Entry]) -> BTreeSet<EntryId> {
    entries.iter().map(streamkeeper::Entry::id).collect()
}

async fn goes_on(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url()).unwrap();
    let seen = Seen::default();
    let consumers = [(); 2].map(|()| start(with_default_backoff(&client), seen.handler()));
    let load = Load::on(&client, "orders");
    let (mut failovers, mut delays, mut asked) = (Times::default(), Times::default(), Times::default());
    let rounds = if thorough() { 10 } else { 1 };
    for round in 0..=rounds {
        let before = setup.master().await;
        replicated(&setup.servers[before]).await;
        let began = Instant::now();
        let after = if round == rounds {
            // The last one is not a death: the old master lives, and would serve its clients until the sentinels turn to it.
            setup.fail_over().await
        } else {
            setup.servers[before].kill9().await.unwrap();
            setup.until_other_than(before).await
        };
        let (id, served) = probe(&setup.servers[after], "orders").await;
        if round == rounds { &mut asked } else { &mut failovers }.note(began, served, LIMIT, "the sentinels");
        let handled = seen.first("orders", id).await;
        delays.note(served, handled, BOUND, &format!("after failover {round} on {name}"));
        if round == rounds {
            assert_eq!(role(&setup.servers[before]).await.as_deref(), Some("master"), "nobody was told so on {name}");
        }
        if round < rounds {
            setup.servers[before].restart().await.unwrap();
            setup.until_watched().await;
        }
    }
    let published = load.stop().await;
    let master = &setup.servers[setup.master().await];
    let kept = ids(&master.entries("orders").await);
    seen.all("orders", &kept, &format!("on {name}")).await;
    for consumer in consumers {
        assert!(!consumer.is_over(), "{name}");
        consumer.stop().await;
    }
    eprintln!(
        "{name}: {rounds} masters died: the sentinels took {failovers}; one was replaced by order, and served on: {asked}. Handled after \
         {delays}. {} of {} confirmed entries were lost by the servers, {} runs were repeated",
        published.difference(&kept).count(),
        published.len(),
        seen.repeated(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_and_publishers_follow_the_master_within_three_seconds_of_the_failover() {
    on_programs(goes_on).await;
}

/// Cuts a replica off from its master, so that it lags from now on.
async fn lag(replica: &RealServer) {
    // The master knows no password and refuses whoever comes with one.
    replica.ask("CONFIG SET masterauth nobody").await;
    replica.ask("CLIENT KILL TYPE master").await;
    eventually(LIMIT, "the replica to be cut off", || async {
        let info = replica.ask("INFO replication").await;
        String::from_utf8_lossy(info.as_bytes()?).contains("master_link_status:down").then_some(())
    })
    .await;
}

async fn die_and_promote(setup: &mut SentinelSetup, master: usize) -> usize {
    setup.servers[master].kill9().await.unwrap();
    let after = setup.until_other_than(master).await;
    setup.servers[after].ask("CONFIG SET masterauth ").await;
    after
}

async fn lagging(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url()).unwrap();
    let publisher = Publisher::builder(&client).stream("orders").build().unwrap();
    let master = setup.master().await;
    let known = publish(&publisher, 300).await;
    setup.servers[master].ask("XGROUP CREATE orders g 0").await;
    replicated(&setup.servers[master]).await;
    // The replica has the entries, and will never hear that they were delivered, handled and acknowledged.
    lag(&setup.servers[1 - master]).await;
    let seen = Seen::default();
    let consumers = [(); 2].map(|()| start(with_default_backoff(&client), seen.handler()));
    seen.all("orders", &known, "before").await;
    let load = Load::on(&client, "orders");
    let unknown = publish(&publisher, 300).await;
    seen.all("orders", &unknown, "while the replica lags").await;
    let after = die_and_promote(&mut setup, master).await;
    let (id, served) = probe(&setup.servers[after], "orders").await;
    let handled = seen.first("orders", id).await;
    let mut delays = Times::default();
    delays.note(served, handled, BOUND, &format!("with a replica that lagged on {name}"));
    load.stop().await;
    let kept = ids(&setup.servers[after].entries("orders").await);
    assert!(unknown.is_disjoint(&kept) && known.is_subset(&kept), "the replica lagged, {name}");
    seen.all("orders", &kept, &format!("of what the replica had on {name}")).await;
    eventually(LIMIT, format!("nothing to be pending on {name}"), || async {
        (setup.servers[after].pending("orders", "g").await == 0).then_some(())
    })
    .await;
    assert!(seen.repeated() >= known.len(), "nobody could know that they were handled, {name}");
    for consumer in consumers {
        assert!(!consumer.is_over(), "{name}");
        consumer.stop().await;
    }
    eprintln!(
        "{name}: a replica that lagged: handled after {delays}, {} runs of {} were repeated",
        seen.repeated(),
        seen.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_master_that_lagged_brings_entries_twice_and_nothing_stalls() {
    on_some_programs(lagging).await;
}

async fn without_group(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url()).unwrap();
    let publisher = Publisher::builder(&client).stream("orders").build().unwrap();
    let master = setup.master().await;
    let published = publish(&publisher, 500).await;
    replicated(&setup.servers[master]).await;
    // The replica has the stream, and will never hear of the group.
    lag(&setup.servers[1 - master]).await;
    let seen = Seen::default();
    let builder = Consumer::durable(&client).stream("orders").group("g").block(Duration::from_secs(1));
    let consumer = start(builder.claim_every(Duration::from_millis(200)), seen.handler());
    seen.all("orders", &published, "before the master dies").await;
    let acknowledged = || consumer.stats.get().acknowledged;
    eventually(LIMIT, "the acknowledgements", || std::future::ready((acknowledged() == 500).then_some(()))).await;
    let after = die_and_promote(&mut setup, master).await;
    let (id, served) = probe(&setup.servers[after], "orders").await;
    let handled = seen.first("orders", id).await;
    let mut delays = Times::default();
    delays.note(served, handled, BOUND, &format!("with a new group on {name}"));
    eventually(LIMIT, format!("nothing to be pending on {name}"), || async {
        (setup.servers[after].pending("orders", "g").await == 0).then_some(())
    })
    .await;
    let Value::Array(groups) = setup.servers[after].ask("XINFO GROUPS orders").await else {
        panic!("no list of groups")
    };
    assert_eq!((groups.len(), seen.repeated()), (1, 0), "made anew, and nothing is handled twice on {name}");
    let report = consumer.stop().await;
    assert_eq!(report.stats.groups_created, 2, "{name}");
    eprintln!("{name}: a group that was missing: handled after {delays}, {} recognised", report.stats.recognised);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_the_new_master_never_had_is_made_anew_without_replaying_what_was_finished() {
    on_some_programs(without_group).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_sentinel_knows_is_a_clear_end() {
    let Some(binary) = programs().pop() else { return };
    let setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url().replace("/main", "/mian")).unwrap();
    let error = start(durable(&client).stream("orders"), noting(&Journal::default())).ended().await.unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(text.contains("all 3 sentinels answer that they know no master `mian`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_do_not_answer_are_done_without() {
    let Some(binary) = programs().pop() else { return };
    let mut setup = SentinelSetup::start(&binary, &plain()).await;
    let key = StreamKey::new("orders").unwrap();
    let client = Client::open(&setup.url()).unwrap();
    setup.sentinels[0].pause().await.unwrap();
    setup.sentinels[1].kill9().await.unwrap();
    client.connector().connect(&key).await.unwrap();
    setup.sentinels[2].kill9().await.unwrap();
    setup.sentinels[0].resume().await.unwrap();
    client.connector().connect(&key).await.unwrap();
    setup.sentinels[0].kill9().await.unwrap();
    let error = client.connector().connect(&key).await.err().unwrap();
    // A process that died leaves an address that refuses; with a container the address goes, and nothing answers.
    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Timeout), "{error}");
}
