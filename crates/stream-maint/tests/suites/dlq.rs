//! Dead letters: nothing is lost on the way back, whatever dies in between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stream_core::{ConsumerName, DeadLetter, DeadReason, Entry, EntryId, LetterContent, LetterError};
use stream_maint::{DeadLetters, LetterFilter, LetterId, Redrive};
use stream_redis::command::{Command, XAdd, XRange, run};
use stream_redis::{ErrorKind, Request};
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, eventually};

use crate::support::{Server, group, id, key, on_each};

/// Both ways to keep dead letters.
const LAYOUTS: [Layout; 2] = [Layout::Stream, Layout::Hash];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    Stream,
    Hash,
}

impl Layout {
    /// The command that puts a letter there, and what it names it.
    fn requests(self, letter: &DeadLetter) -> Vec<Request> {
        if self == Self::Stream {
            return vec![XAdd::new(key("dead"), letter.to_fields()).request()];
        }
        // One that was given up twice, by two owners, is two letters.
        let name = format!("{}-{}", letter.entry.id(), letter.stream);
        let hash = key(&format!("dead:{name}"));
        let mut write = Request::new("HSET").key(&hash);
        for (name, value) in letter.to_hash(&name) {
            write.push(name);
            write.push(value);
        }
        vec![write, Request::new("SADD").key(&key("dead")).arg(hash)]
    }

    /// Something in their place that is none.
    fn foreign(self) -> [&'static str; 2] {
        match self {
            Self::Stream => ["XADD dead * data foreign", "PING"],
            Self::Hash => ["HSET dead:foreign data foreign", "SADD dead dead:foreign"],
        }
    }

    fn letters(self, server: &Server) -> DeadLetters {
        match self {
            Self::Stream => DeadLetters::new(&server.client, "dead").unwrap(),
            Self::Hash => DeadLetters::prefect(&server.client, "dead").unwrap(),
        }
    }
}

/// Runs `test` with each layout on each server.
async fn on_each_layout(test: impl AsyncFn(&Server, Layout)) {
    on_each(async |server| {
        for layout in LAYOUTS {
            server.ok("FLUSHALL").await;
            test(server, layout).await;
        }
    })
    .await;
}

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

async fn bury(server: &Server, layout: Layout, letters: impl IntoIterator<Item = DeadLetter>) {
    let connection = server.client.connector().connect(&key("dead")).await.unwrap();
    let adds: Vec<Request> = letters.into_iter().flat_map(|letter| layout.requests(&letter)).collect();
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

#[tokio::test]
async fn letters_are_listed_in_pages_and_by_rule() {
    on_each_layout(async |server, layout| {
        let name = format!("{}, {layout:?}", server.name);
        bury(server, layout, (1..=250).map(exhausted)).await;
        bury(server, layout, [letter("t", 251, DeadReason::OwnerDied)]).await;
        for command in layout.foreign() {
            server.ok(command).await;
        }
        let mut dead = layout.letters(server);
        let check = async |dead: &mut DeadLetters, filter: LetterFilter, expected: usize| {
            let (mut after, mut seen) = (None, std::collections::BTreeSet::new());
            loop {
                let page = dead.list(&filter, after, 7).await.unwrap();
                assert!(page.letters.len() <= 7);
                for letter in page.letters {
                    assert!(seen.insert(letter.id), "{name}: a letter is on two pages");
                }
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(seen.len(), expected, "{name}: {filter:?}");
        };
        check(&mut dead, LetterFilter::all(), 252).await;
        check(&mut dead, LetterFilter::all().stream(key("t")), 1).await;
        check(&mut dead, LetterFilter::all().group(group("none")), 0).await;
        check(&mut dead, LetterFilter::all().reason("exhausted"), 250).await;
        let (since, until) = (Duration::from_secs(3), Duration::from_secs(6));
        check(&mut dead, LetterFilter::all().since(since).until(until), 3).await;

        let totals = dead.totals().await.unwrap();
        assert_eq!((totals.letters, totals.unreadable, totals.oldest_ms), (252, 1, Some(1000)), "{name}");
        let by: Vec<_> = totals.by.into_values().collect();
        assert_eq!(by, [250, 1]);
        let first = LetterFilter::all().until(Duration::from_secs(2));
        let page = dead.list(&first, None, 1).await.unwrap();
        let shown = dead.show(page.letters[0].id.clone()).await.unwrap().unwrap();
        assert_eq!(shown.content, Ok(exhausted(1).into()), "{name}");
        assert_eq!(dead.purge(&LetterFilter::all().stream(key("t"))).await.unwrap(), 1);
        // On a stream the foreign entry is the newest; in a set it does not say when it came.
        assert_eq!(dead.bound(100).await.unwrap(), 151, "{name}");
        assert_eq!(dead.totals().await.unwrap().unreadable, u64::from(layout == Layout::Stream), "{name}");
        assert_eq!(dead.purge(&LetterFilter::all()).await.unwrap(), 100, "{name}");
        assert!(dead.is_empty().await.unwrap());
        assert_eq!(
            server.ok("EXISTS dead dead:200-0-s").await.as_int(),
            Some(i64::from(layout == Layout::Stream)),
            "{name}"
        );
    })
    .await;
}

#[tokio::test]
async fn letters_go_back_with_their_own_fields_and_leave_a_trail() {
    on_each_layout(async |server, layout| {
        let name = format!("{}, {layout:?}", server.name);
        bury(server, layout, [exhausted(1), exhausted(2), letter("gone", 3, DeadReason::OwnerDied)]).await;
        for command in layout.foreign() {
            server.ok(command).await;
        }
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        let mut dead = layout.letters(server);
        let plan = dead.plan_redrive(&Redrive::new()).await.unwrap();
        assert_eq!(plan.to, BTreeMap::from([(key("s"), 2), (key("gone"), 1)]), "{name}");
        assert_eq!((plan.skipped, plan.unreadable), (0, 1));
        let report = dead.redrive(&Redrive::new()).await.unwrap();
        assert_eq!((report.redriven, report.no_stream, report.unreadable), (2, 1, 1), "{name}");
        let back = entries(server, "s").await;
        let same = |entry: &Entry| [1, 2].iter().any(|number| entry.fields().eq(exhausted(*number).entry.fields()));
        assert!(back.len() == 2 && back.iter().all(same), "{name}: {back:?}");
        assert_eq!(dead.len().await.unwrap(), 2, "what could not go back is still there");
        let trail = dead.trail(None, 10).await.unwrap();
        let sent: Vec<EntryId> = trail.iter().map(|line| line.id).collect();
        assert_eq!(sent, back.iter().map(Entry::id).collect::<Vec<_>>());
        let line = trail.iter().find(|line| line.letter.id == Some(id(1))).unwrap();
        assert_eq!((&line.to, &line.letter.stream, line.letter.redriven), (&key("s"), &Some(key("s")), 1), "{name}");
        assert_eq!(line.letter.reason, Some(DeadReason::Exhausted { error: None }), "{name}");
        assert_eq!(dead.trail(Some(trail[0].at), 10).await.unwrap().len(), 1);

        let elsewhere = Redrive::new().to(key("retry")).make_streams().filter(LetterFilter::all().stream(key("gone")));
        let report = dead.redrive(&elsewhere).await.unwrap();
        assert_eq!((report.redriven, report.skipped, server.len("retry").await), (1, 1, 1), "{name}");
        assert_eq!(server.ok("EXISTS gone").await.as_int(), Some(0));
    })
    .await;
}

/// As an entry among the letters it would be one that nobody can read, and on the trail one that nobody looks for.
#[tokio::test]
async fn letters_do_not_go_back_to_where_letters_are_kept() {
    let server = MemoryServer::new();
    server.add("dead", exhausted(1).to_fields());
    let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
    for to in ["dead", "dead:redriven"] {
        let redrive = Redrive::new().to(key(to)).make_streams();
        assert_eq!(dead.plan_redrive(&redrive).await.unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(dead.redrive(&redrive).await.unwrap_err().kind(), ErrorKind::Config);
    }
    assert_eq!(server.entries("dead").len(), 1);
    assert!(dead.list(&LetterFilter::all(), None, 1).await.unwrap().letters[0].content.is_ok());
}

/// Makes so many `XADD` commands fail after the first, which is the entry that goes back: those that follow are the trail.
fn fail_the_trail(server: &MemoryServer, times: usize, fault: Fault) {
    let mut adds = 0;
    server.choose_faults(move |command| {
        adds += usize::from(command == "XADD");
        (command == "XADD" && (2..2 + times).contains(&adds)).then(|| fault.clone())
    });
}

/// Nobody could tell where the entry comes from, whose letter is gone.
#[tokio::test(start_paused = true)]
async fn the_trail_is_written_before_the_letter_is_gone_although_the_connection_breaks() {
    for (times, fault) in [(1, Fault::CutBefore), (2, Fault::CutBefore), (2, Fault::error("LOADING not yet"))] {
        let server = MemoryServer::new();
        server.add("s", [("n", "before")]);
        server.add("dead", exhausted(1).to_fields());
        fail_the_trail(&server, times, fault);
        let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
        assert_eq!(dead.redrive(&Redrive::new()).await.unwrap().redriven, 1);
        assert_eq!((server.len("s"), server.len("dead")), (2, 0));
        let trail = dead.trail(None, 10).await.unwrap();
        assert_eq!(trail.iter().map(|line| line.id).collect::<Vec<_>>(), [server.entries("s")[1].id()]);
    }
}

/// Or each call would send it once more, for as long as the trail cannot be written.
#[tokio::test(start_paused = true)]
async fn a_letter_goes_back_once_although_its_trail_cannot_be_written() {
    let full = "OOM command not allowed when used memory > 'maxmemory'.";
    for fault in [Fault::CutBefore, Fault::error("NOPERM no"), Fault::error(full)] {
        let server = MemoryServer::new();
        server.add("s", [("n", "before")]);
        server.add("dead", exhausted(1).to_fields());
        fail_the_trail(&server, usize::MAX - 2, fault);
        let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
        assert_eq!(dead.redrive(&Redrive::new()).await.unwrap().redriven, 1);
        assert_eq!((server.len("s"), server.len("dead"), server.len("dead:redriven")), (2, 0, 0));
    }
}

/// A trail that cannot be written is no matter to letters that have nowhere to go.
#[tokio::test(start_paused = true)]
async fn where_nothing_is_sent_back_no_trail_is_asked_for() {
    let server = MemoryServer::new();
    server.add("dead", exhausted(1).to_fields());
    let mut dead = DeadLetters::new(&server.client(), "dead").unwrap();
    assert_eq!(dead.redrive(&Redrive::new()).await.unwrap().no_stream, 1);
    // One for the letters, one for their stream.
    assert_eq!(server.count("CONNECT"), 2);
}

#[tokio::test]
async fn a_stream_of_letters_that_does_not_exist_is_empty() {
    on_each_layout(async |server, layout| {
        let mut dead = layout.letters(server);
        assert_eq!(dead.list(&LetterFilter::all(), None, 10).await.unwrap().letters, []);
        assert_eq!(dead.redrive(&Redrive::new()).await.unwrap().redriven, 0);
        assert_eq!(dead.purge(&LetterFilter::all()).await.unwrap(), 0);
        assert_eq!(dead.bound(0).await.unwrap(), 0);
        assert_eq!(dead.totals().await.unwrap().letters, 0);
        assert_eq!(server.ok("EXISTS dead dead:redriven").await.as_int(), Some(0));
    })
    .await;
}

/// What Prefect itself writes, byte for byte.
#[tokio::test]
async fn letters_of_prefect_are_read_and_go_where_they_are_told() {
    on_each(async |server| {
        let json = r#"{"data": "{\"id\": 7}", "attributes": {"kind": "flow"}, "retry_count": 4, "timestamp": "8.5", "message_id": "x"}"#;
        server.args(&["HSET", "dlq:0af3", "data", json]).await;
        server.ok("SADD dlq dlq:0af3 dlq:gone").await;
        let mut dead = DeadLetters::prefect(&server.client, "dlq").unwrap();
        let shown = dead.show(key("dlq:0af3")).await.unwrap().unwrap().content.unwrap();
        assert_eq!((shown.get("data"), shown.attempts), (Some(&br#"{"id": 7}"#[..]), Some(4)), "{}", server.name);
        let gone = dead.show(key("dlq:gone")).await.unwrap().unwrap();
        assert_eq!((gone.id, gone.content), (LetterId::Hash(key("dlq:gone")), Err(LetterError::NoHash)));

        let report = dead.redrive(&Redrive::new()).await.unwrap();
        assert_eq!((report.redriven, report.no_stream, dead.len().await.unwrap()), (0, 1, 1), "{}", server.name);
        server.ok("XGROUP CREATE events g $ MKSTREAM").await;
        let plan = dead.plan_redrive(&Redrive::new()).await.unwrap();
        assert_eq!((plan.to.len(), plan.no_stream), (0, 1), "{}", server.name);
        assert_eq!(dead.redrive(&Redrive::new().to(key("events"))).await.unwrap().redriven, 1, "{}", server.name);
        let back = entries(server, "events").await;
        assert_eq!(back[0].get("attributes"), Some(&br#"{"kind": "flow"}"#[..]), "{}", server.name);
        let trail = dead.trail(None, 10).await.unwrap();
        assert_eq!((trail[0].letter.attempts, &trail[0].letter.stream), (Some(4), &None));
        assert_eq!(server.ok("EXISTS dlq dlq:0af3").await.as_int(), Some(0), "{}", server.name);
    })
    .await;
}

/// A set may name anything; what is purged is never a key of somebody else.
#[tokio::test]
async fn only_keys_of_the_set_are_deleted() {
    on_each(async |server| {
        server.fill("orders", 1).await;
        server.ok("SADD dlq orders dlq:0").await;
        server.ok("SET dlq:0 text").await;
        let mut dead = DeadLetters::prefect(&server.client, "dlq").unwrap();
        assert_eq!(dead.totals().await.unwrap().unreadable, 2, "{}", server.name);
        assert_eq!(dead.purge(&LetterFilter::all()).await.unwrap(), 2, "{}", server.name);
        assert_eq!(server.len("orders").await, 1, "{}", server.name);
    })
    .await;
}

/// Like a process that is killed: whatever was on its way is dropped, three times at another place.
#[tokio::test]
async fn what_is_dropped_on_the_way_back_loses_nothing_and_repeats_a_batch_at_most() {
    const LETTERS: u64 = 1000;
    const BATCH: usize = 50;
    on_each_layout(async |server, layout| {
        // The protocol makes no difference to what is cut off; processes that are killed are in the integration suites.
        if !server.name.ends_with("resp3") {
            return;
        }
        bury(server, layout, (1..=LETTERS).map(exhausted)).await;
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        for kill in 1..=3_i64 {
            let mut dead = layout.letters(server);
            let task = tokio::spawn(async move { dead.redrive(&Redrive::new().batch(BATCH)).await.map(drop) });
            let there = move |length: i64| (length > kill * LETTERS as i64 / 4).then_some(());
            eventually(Duration::from_mins(1), "a part to go back", || async { there(server.len("s").await) }).await;
            task.abort();
            let _ = task.await;
        }
        layout.letters(server).redrive(&Redrive::new().batch(BATCH)).await.unwrap();
        let mut back = BTreeMap::<Vec<u8>, usize>::new();
        for entry in entries(server, "s").await {
            *back.entry(entry.get("n").unwrap().to_vec()).or_default() += 1;
        }
        let twice: usize = back.values().map(|times| times - 1).sum();
        let left = layout.letters(server).len().await.unwrap();
        assert_eq!((back.len() as u64, left), (LETTERS, 0), "{}, {layout:?}", server.name);
        assert!(twice <= 3 * BATCH, "{}, {layout:?}: {twice} twice", server.name);
    })
    .await;
}

/// A target that takes nothing does not hold up the letters of others.
#[tokio::test]
async fn b25_a_letter_that_cannot_go_back_stays_and_others_go() {
    on_each_layout(async |server, layout| {
        server.ok("SET word text").await;
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        let refused = (1..=150).map(|number| letter("word", number, DeadReason::OwnerDied));
        bury(server, layout, refused.chain((151..=300).map(exhausted))).await;
        let mut dead = layout.letters(server);
        let report = dead.redrive(&Redrive::new()).await.unwrap();
        assert_eq!((report.redriven, report.refused), (150, 150), "{}, {layout:?}", server.name);
        assert_eq!((dead.len().await.unwrap(), server.len("s").await), (150, 150), "{}, {layout:?}", server.name);
    })
    .await;
}

/// A stream that has given its last id takes nothing for ever, and is one of many.
#[tokio::test]
async fn a_stream_that_is_exhausted_holds_up_no_letters_of_others() {
    on_each_layout(async |server, layout| {
        server.ok("XADD full 18446744073709551615-18446744073709551615 n 1").await;
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        bury(server, layout, [letter("full", 1, DeadReason::OwnerDied), exhausted(2)]).await;
        let report = layout.letters(server).redrive(&Redrive::new().batch(1)).await.unwrap();
        assert_eq!((report.redriven, report.refused, server.len("s").await), (1, 1, 1), "{}, {layout:?}", server.name);
    })
    .await;
}

#[tokio::test]
async fn letters_that_cannot_go_back_do_not_count_as_sent() {
    on_each_layout(async |server, layout| {
        server.ok("SET word text").await;
        server.ok("XGROUP CREATE s g $ MKSTREAM").await;
        let stay = [letter("gone", 1, DeadReason::OwnerDied), letter("word", 2, DeadReason::OwnerDied)];
        bury(server, layout, stay.into_iter().chain((3..=9).map(exhausted))).await;
        let report = layout.letters(server).redrive(&Redrive::new().batch(2).at_most(5)).await.unwrap();
        assert_eq!((report.redriven, server.len("s").await), (5, 5), "{}, {layout:?}", server.name);
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
    assert_eq!(dead.redrive(&redrive).await.unwrap().refused, 8);
    assert_eq!(lengths(&server), (6, 8));
    server.clear_faults();
    assert_eq!(dead.redrive(&redrive).await.unwrap().redriven, 8);
    assert_eq!(lengths(&server), (14, 0));
}

/// The same in the other layout: between the hash and the set, and before both.
#[tokio::test]
async fn b24_a_hash_that_is_half_deleted_is_seen_and_not_sent_again() {
    let server = MemoryServer::new();
    let connection = server.client().connector().connect(&key("dead")).await.unwrap();
    for number in 1..=10 {
        for reply in connection.send(&Layout::Hash.requests(&exhausted(number))).await.unwrap() {
            reply.unwrap();
        }
    }
    server.command(["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]).unwrap();
    let mut dead = DeadLetters::prefect(&server.client(), "dead").unwrap();
    let redrive = Redrive::new().batch(4);
    server.fail_next("DEL", Fault::CutBefore);
    assert_eq!(dead.redrive(&redrive).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!((server.len("s"), dead.len().await.unwrap()), (4, 10));
    server.fail_next("SREM", Fault::CutBefore);
    assert_eq!(dead.redrive(&redrive).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!((server.len("s"), dead.len().await.unwrap()), (8, 10));
    let report = dead.redrive(&redrive).await.unwrap();
    assert_eq!((report.redriven, report.unreadable), (6, 0));
    assert_eq!((server.len("s"), dead.len().await.unwrap()), (14, 0), "the four are forgotten, not sent again");
    let content = LetterContent::from(exhausted(1));
    assert!(server.entries("s").iter().all(|entry| entry.fields().len() == content.fields.len()));
}

/// A hash that could not be written at first has its name in the set already, and is there at last just when its name is to
/// be forgotten: before the first command that does so, or before one of those that follow.
#[tokio::test]
async fn a_letter_that_is_written_while_its_name_is_forgotten_stays() {
    for number in 1..=3 {
        let server = MemoryServer::new();
        server.command(["SADD", "dead", "dead:1-0-s", "dead:gone"]).unwrap();
        let (mirror, seen) = (server.clone(), AtomicUsize::new(0));
        server.on_command(move |args| {
            let follows = seen.load(Ordering::Relaxed) > 0 || matches!(args[0], b"DEL" | b"SREM");
            if follows && seen.fetch_add(1, Ordering::Relaxed) + 1 == number {
                for request in Layout::Hash.requests(&exhausted(1)) {
                    mirror.command(request.args()).unwrap();
                }
            }
        });
        let mut dead = DeadLetters::prefect(&server.client(), "dead").unwrap();
        dead.redrive(&Redrive::new().make_streams()).await.unwrap();
        let page = dead.list(&LetterFilter::all(), None, 10).await.unwrap();
        let [letter] = page.letters.as_slice() else { panic!("at {number}: {page:?}") };
        assert_eq!(letter.content, Ok(exhausted(1).into()), "at {number}");
    }
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
