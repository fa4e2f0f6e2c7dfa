//! Entries that somebody trims before a group was given them: the server keeps no trace of it, and the consumer tells.

use std::time::Duration;

use stream_testkit::{MemoryServer, work_for};
use streamkeeper::maint::Trimmer;
use streamkeeper_tests::{Ask, Journal, on_each};

use super::{builder, settled, taking};
use crate::memory::{self, until};

fn gap(after: &str, before: &str, missed: &str) -> String {
    format!("Gap {{ after: {after}, before: {before}, missed: {missed} }}")
}

#[tokio::test(flavor = "multi_thread")]
async fn b03_entries_cut_before_the_group_was_given_them_are_told() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b03"), server.name().to_owned());
        server.ask(&format!("XGROUP CREATE {key} g 0 MKSTREAM")).await;
        for n in 1..=4 {
            server.ask(&format!("XADD {key} {n}-0 data x")).await;
        }
        server.ask(&format!("XTRIM {key} MAXLEN 1")).await;
        let journal = Journal::default();
        let running = taking(builder(&server, &key), &journal, Duration::ZERO);
        settled(&server, &key, &journal, 1).await;
        let told: Vec<_> = running.events.named("Gap").into_iter().map(|told| told.text).collect();
        let counts = !name.contains("6.2");
        // Redis 6.2 does not count, and nobody has seen what is gone.
        let expected = if counts { vec![gap("0-0", "4-0", "Some(3)")] } else { Vec::new() };
        assert_eq!(told, expected, "{name}");
        let stats = running.stats.get();
        assert_eq!((stats.gaps, stats.missed), if counts { (1, 3) } else { (0, 0) }, "{name}");
        running.stop().await;
        // A group that is made by the consumer begins with what is there.
        let journal = Journal::default();
        let fresh = taking(builder(&server, &key).group("fresh"), &journal, Duration::ZERO);
        server.until("the fresh group to be given it", || async { journal.finished() == 1 }).await;
        assert_eq!(fresh.events.count("Gap"), 0, "{name}: {:?}", fresh.events.named("Gap"));
        fresh.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b03_entries_cut_under_a_slow_group_are_told() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b03"), server.name().to_owned());
        for n in 1..=40 {
            server.ask(&format!("XADD {key} {n}-0 data x")).await;
        }
        let journal = Journal::default();
        let slow = builder(&server, &key).concurrency(2).prefetch(0).claim_every(Duration::from_secs(1));
        let running = taking(slow, &journal, Duration::from_mins(10));
        server.until("two handlers to run", || async { journal.starts() == 2 }).await;
        server.ask(&format!("XTRIM {key} MAXLEN 5")).await;
        server.ask(&format!("XADD {key} 41-0 data x")).await;
        // By its count, or because the last entry of before is gone: it was seen at the start.
        let counts = !name.contains("6.2");
        if counts {
            server.until("the gap to be told", || async { running.events.count("Gap") == 1 }).await;
            // Redis 7.0 does not count what a group skips, so that the gap may begin further back.
            let after = if name.contains("7.0") { "0-18446744073709551615" } else { "2-0" };
            assert_eq!(running.events.named("Gap")[0].text, gap(after, "36-0", "Some(33)"), "{name}");
        }
        server.ask(&format!("XTRIM {key} MAXLEN 1")).await;
        let cuts = if counts { 2 } else { 1 };
        server.until("the next to be told", || async { running.events.count("Gap") == cuts }).await;
        let told = running.events.named("Gap").pop().unwrap().text;
        let after = if counts { "35-18446744073709551615" } else { "2-0" };
        assert_eq!(told, gap(after, "41-0", if counts { "Some(5)" } else { "None" }), "{name}");
        running.crash().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b03_what_the_librarys_own_trimming_takes_is_no_gap() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b03"), server.name().to_owned());
        let journal = Journal::default();
        let often = builder(&server, &key).concurrency(3).claim_every(Duration::from_secs(1));
        let running = taking(often, &journal, Duration::from_millis(5));
        server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
        let mut trimmer = Trimmer::builder(&server.client()).stream(&key).without_lease().build().unwrap();
        for round in 1..=5 {
            server.publish(&key, 100).await;
            trimmer.run().await.unwrap();
            settled(&server, &key, &journal, 100 * round).await;
            trimmer.run().await.unwrap();
            let looks = running.stats.get().gaps;
            assert_eq!(looks, 0, "{name}: {:?}", running.events.named("Gap"));
        }
        running.stop().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn b03_what_is_cut_under_slow_handlers_is_told_at_the_next_look() {
    let server = MemoryServer::new();
    memory::publish(&server, "s", 40);
    let ids: Vec<_> = server.entries("s").iter().map(streamkeeper::Entry::id).collect();
    let journal = Journal::default();
    let slow = memory::builder(&server).concurrency(2).prefetch(0);
    let running = taking(slow, &journal, Duration::from_mins(10));
    until("two handlers to run", || journal.starts() == 2).await;
    server.command(["XTRIM", "s", "MAXLEN", "5"]).unwrap();
    // A third of the lease, and a tenth of that.
    work_for(Duration::from_secs(12)).await;
    let told: Vec<_> = running.events.named("Gap").into_iter().map(|told| told.text).collect();
    assert_eq!(told, [gap(&ids[1].to_string(), &ids[35].to_string(), "Some(33)")]);
    work_for(Duration::from_mins(2)).await;
    assert_eq!((running.stats.get().gaps, running.stats.get().missed), (1, 33), "once");
    running.crash().await;
}

#[tokio::test(start_paused = true)]
async fn b03_what_was_cut_while_the_consumer_was_away_is_told_when_it_is_back() {
    let server = MemoryServer::new();
    let journal = Journal::default();
    let running = taking(memory::builder(&server), &journal, Duration::ZERO);
    memory::publish(&server, "s", 10);
    until("all to be handled", || journal.finished() == 10).await;
    server.kill_connections();
    server.set_down(true);
    memory::publish(&server, "s", 10);
    server.command(["XTRIM", "s", "MAXLEN", "3"]).unwrap();
    server.set_down(false);
    until("the rest to be handled", || journal.finished() == 13).await;
    assert_eq!((running.stats.get().gaps, running.stats.get().missed), (1, 7), "{:?}", running.events.all());
    running.stop().await;
}
