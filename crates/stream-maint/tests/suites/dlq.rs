//! Dead letters: nothing is lost on the way back, whatever dies in between.

use std::collections::BTreeMap;
use std::time::Duration;

use stream_core::{ConsumerName, DeadLetter, DeadReason, Entry, EntryId};
use stream_maint::{DeadLetters, LetterFilter, Redrive};
use stream_redis::command::{Command, XAdd, XRange, run};
use stream_redis::{ErrorKind, Request};
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, eventually};

use crate::support::{Server, group, id, key, on_each};

fn letter(stream: &str, number: u64, reason: DeadReason) -> DeadLetter {
    let fields = [("stream", "not ours".to_owned()), ("n", number.to_string()), ("n", "again".to_owned())];
    DeadLetter {
        entry: Entry::new(id(number), fields).unwrap(),
        stream: key(stream),
        group: group("g"),
        consumer: ConsumerName::new("c").unwrap(),
        attempts: 3,
        reason,
        dead_at_ms: 1000 * number,
        redriven: 0,
    }
}

fn exhausted(number: u64) -> DeadLetter {
    letter("s", number, DeadReason::Exhausted { error: None })
}

async fn bury(server: &Server, letters: impl IntoIterator<Item = DeadLetter>) {
    let connection = server.client.connector().connect(&key("dead")).await.unwrap();
    let adds: Vec<Request> =
        letters.into_iter().map(|letter| XAdd::new(key("dead"), letter.to_fields()).request()).collect();
    for adds in adds.chunks(1000) {
        for added in connection.send(adds).await.unwrap() {
            added.unwrap();
        }
    }
}

async fn entries(server: &Server, stream: &str) -> Vec<Entry> {
    let connection = server.client.connector().connect(&key(stream)).await.unwrap();
    run(&*connection, &XRange { key: key(stream), from: EntryId::ZERO, to: EntryId::MAX, count: 1_000_000 })
        .await
        .unwrap()
}

fn dead(server: &Server) -> DeadLetters {
    DeadLetters::new(&server.client, "dead").unwrap()
}

#[tokio::test]
async fn letters_are_listed_in_pages_and_by_rule() {
    on_each(async |server| {
        bury(server, (1..=250).map(exhausted)).await;
        bury(server, [letter("t", 251, DeadReason::OwnerDied)]).await;
        server.ok("XADD dead * data foreign").await;
        let mut dead = dead(server);
        let check = async |dead: &mut DeadLetters, filter: LetterFilter, expected: usize| {
            let (mut after, mut seen) = (None, 0);
            loop {
                let page = dead.list(&filter, after, 7).await.unwrap();
                assert!(page.letters.len() <= 7);
                seen += page.letters.len();
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen, expected, "{}: {filter:?}", server.name);
        };
        check(&mut dead, LetterFilter::all(), 252).await;
        check(&mut dead, LetterFilter::all().stream(key("t")), 1).await;
        check(&mut dead, LetterFilter::all().group(group("none")), 0).await;
        check(&mut dead, LetterFilter::all().reason("exhausted"), 250).await;
        let (since, until) = (Duration::from_secs(3), Duration::from_secs(6));
        check(&mut dead, LetterFilter::all().since(since).until(until), 3).await;

        let totals = dead.totals().await.unwrap();
        assert_eq!((totals.letters, totals.unreadable, totals.oldest_ms), (252, 1, Some(1000)));
        let by: Vec<_> = totals.by.into_values().collect();
        assert_eq!(by, [250, 1]);
        let page = dead.list(&LetterFilter::all(), None, 1).await.unwrap();
        let shown = dead.show(page.letters[0].id).await.unwrap().unwrap();
        assert_eq!(shown.content, Ok(exhausted(1)));
        assert_eq!(dead.purge(&LetterFilter::all().stream(key("t"))).await.unwrap(), 1);
        assert_eq!(dead.bound(100).await.unwrap(), 151, "{}", server.name);
        assert_eq!(dead.purge(&LetterFilter::all()).await.unwrap(), 100, "{}", server.name);
        assert!(dead.is_empty().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn letters_go_back_with_their_own_fields_and_leave_a_trail() {
    on_each(async |server| {
        bury(server, [exhausted(1), exhausted(2), letter("gone", 3, DeadReason::OwnerDied)]).await;
        server.ok("XADD dead * data foreign").await;
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        let mut dead = dead(server);
        let plan = dead.plan_redrive(&Redrive::new()).await.unwrap();
        assert_eq!(plan.to, BTreeMap::from([(key("s"), 2), (key("gone"), 1)]), "{}", server.name);
        assert_eq!((plan.skipped, plan.unreadable), (0, 1));
        let report = dead.redrive(&Redrive::new()).await.unwrap();
        assert_eq!((report.redriven, report.no_stream, report.unreadable), (2, 1, 1), "{}", server.name);
        let back = entries(server, "s").await;
        assert!(back.iter().zip([1, 2]).all(|(entry, number)| entry.fields().eq(exhausted(number).entry.fields())));
        assert_eq!(dead.len().await.unwrap(), 2, "what could not go back is still there");
        let trail = dead.trail(None, 10).await.unwrap();
        assert_eq!(
            trail.iter().map(|line| line.id).collect::<Vec<_>>(),
            back.iter().map(Entry::id).collect::<Vec<_>>()
        );
        let first = &trail[0];
        assert_eq!((&first.to, first.letter.entry.id(), first.letter.redriven), (&key("s"), id(1), 1));
        assert_eq!(dead.trail(Some(first.at), 10).await.unwrap().len(), 1);

        let elsewhere = Redrive::new().to(key("retry")).make_streams().filter(LetterFilter::all().stream(key("gone")));
        let report = dead.redrive(&elsewhere).await.unwrap();
        assert_eq!((report.redriven, report.skipped, server.len("retry").await), (1, 1, 1), "{}", server.name);
        assert_eq!(server.ok("EXISTS gone").await.as_int(), Some(0));
    })
    .await;
}

#[tokio::test]
async fn a_stream_of_letters_that_does_not_exist_is_empty() {
    on_each(async |server| {
        let mut dead = dead(server);
        assert_eq!(dead.list(&LetterFilter::all(), None, 10).await.unwrap().letters, []);
        assert_eq!(dead.redrive(&Redrive::new()).await.unwrap().redriven, 0);
        assert_eq!(dead.purge(&LetterFilter::all()).await.unwrap(), 0);
        assert_eq!(dead.bound(0).await.unwrap(), 0);
        assert_eq!(dead.totals().await.unwrap().letters, 0);
        assert_eq!(server.ok("EXISTS dead dead:redriven").await.as_int(), Some(0));
    })
    .await;
}

/// Like a process that is killed: whatever was on its way is dropped, three times at another place.
#[tokio::test]
async fn what_is_killed_on_the_way_back_loses_nothing_and_repeats_a_batch_at_most() {
    const LETTERS: u64 = 5000;
    const BATCH: usize = 50;
    on_each(async |server| {
        if server.name.starts_with("memory") {
            return;
        }
        bury(server, (1..=LETTERS).map(exhausted)).await;
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        for kill in 1..=3_i64 {
            let mut dead = dead(server);
            let task = tokio::spawn(async move { dead.redrive(&Redrive::new().batch(BATCH)).await.map(drop) });
            let there = move |length: i64| (length > kill * LETTERS as i64 / 4).then_some(());
            eventually(Duration::from_mins(1), "a part to go back", || async { there(server.len("s").await) }).await;
            task.abort();
            let _ = task.await;
        }
        dead(server).redrive(&Redrive::new().batch(BATCH)).await.unwrap();
        let mut back = BTreeMap::<Vec<u8>, usize>::new();
        for entry in entries(server, "s").await {
            *back.entry(entry.get("n").unwrap().to_vec()).or_default() += 1;
        }
        let twice: usize = back.values().map(|times| times - 1).sum();
        assert_eq!((back.len() as u64, server.len("dead").await), (LETTERS, 0), "{}", server.name);
        assert!(twice <= 3 * BATCH, "{}: {twice} twice", server.name);
    })
    .await;
}

#[tokio::test]
async fn b24_an_entry_is_added_before_its_letter_is_deleted() {
    let server = MemoryServer::new();
    for number in 1..=10 {
        server.add("dead", exhausted(number).to_fields());
    }
    server.command(["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]).unwrap();
    let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
    let redrive = Redrive::new().batch(4);
    let lengths = |server: &MemoryServer| (server.len("s"), server.len("dead"));

    server.fail_next("XDEL", Fault::CutBefore);
    assert_eq!(dead.redrive(&redrive).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(lengths(&server), (4, 10));
    // A full memory in the middle of a batch: what was added is deleted, the rest stays.
    for _ in 0..2 {
        server.fail_next("XADD", Fault::error("OOM command not allowed when used memory > 'maxmemory'."));
    }
    assert_eq!(dead.redrive(&redrive).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(lengths(&server), (6, 8));
    server.deny("XADD");
    assert_eq!(dead.redrive(&redrive).await.unwrap_err().kind(), ErrorKind::NoPermission);
    assert_eq!(lengths(&server), (6, 8));
    server.clear_faults();
    assert_eq!(dead.redrive(&redrive).await.unwrap().redriven, 8);
    assert_eq!(lengths(&server), (14, 0));
}

#[tokio::test(start_paused = true)]
async fn letters_go_back_at_the_rate_that_was_asked_for() {
    let server = MemoryServer::new();
    for number in 1..=30 {
        server.add("dead", exhausted(number).to_fields());
    }
    let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
    let started = tokio::time::Instant::now();
    let report = dead.redrive(&Redrive::new().make_streams().per_second(10).at_most(25)).await.unwrap();
    assert_eq!((report.redriven, server.len("dead")), (25, 5));
    assert_eq!(started.elapsed().as_secs(), 2, "ten, a second, ten, a second, five");
}

#[tokio::test]
async fn what_dies_again_at_once_is_left_for_the_next_run() {
    let server = MemoryServer::new();
    server.add("dead", exhausted(1).to_fields());
    let mirror = server.clone();
    server.on_command(move |args| {
        if args[0] == b"XDEL" {
            mirror.add("dead", exhausted(1).to_fields());
        }
    });
    let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
    let report = dead.redrive(&Redrive::new().make_streams()).await.unwrap();
    assert_eq!((report.redriven, server.len("dead"), server.len("s")), (1, 1, 1));
}
