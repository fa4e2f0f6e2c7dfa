//! Maintenance that fails beside a consumer: the consumer notices nothing, and each kind of failure is logged once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::{RealServer, ServerOptions, Warnings, eventually};
use streamkeeper::maint::{ConsumerCleaner, ConsumerPolicy, GroupCleaner, GroupPolicy, NamePattern, Trimmer};
use streamkeeper::{Client, Consumer, Context, ErrorKind};
use streamkeeper_tests::{Ask, Journal, on_each_own, start};
use tracing::instrument::WithSubscriber;

type Results = Arc<Mutex<Vec<Option<ErrorKind>>>>;

async fn results(results: &Results, what: &str, enough: impl Fn(&[Option<ErrorKind>]) -> bool) {
    eventually(Duration::from_secs(30), what.to_owned(), || {
        std::future::ready(enough(&results.lock().unwrap()).then_some(()))
    })
    .await;
}

async fn undisturbed(server: RealServer) {
    let name = server.name().to_owned();
    server.ask("ACL SETUSER keeper on >word ~* +@all -xtrim -xinfo").await;
    let journal = Journal::default();
    let seen = journal.clone();
    let consumer = start(
        Consumer::durable(&server.client()).stream("s").group("g").block(Duration::from_secs(1)),
        move |cx: Context| {
            let run = seen.begin(&cx);
            async move { run.end() }
        },
    );
    let mut published = 0;
    let mut work = async |what: &str| {
        published += 20;
        server.publish("s", 20).await;
        let what = format!("the consumer to go on: {what}");
        server.until(&what, || async { journal.finished() == published && server.pending("s", "g").await == 0 }).await;
    };
    let client = Client::open(&server.url().replace("redis://", "redis://keeper:word@")).unwrap();
    let every = Duration::from_secs(1);
    let told = Results::default();
    let sink = told.clone();
    let mut trimmer = Trimmer::builder(&client).stream("s").trim_every(every).build().unwrap();
    let log = Warnings::default();
    let trimming = async move {
        let note = |kind| sink.lock().unwrap().push(kind);
        trimmer
            .run_every(std::future::pending::<()>(), |result| {
                note(result.as_ref().err().map(stream_redis::Error::kind))
            })
            .await
    };
    let trimming = tokio::spawn(trimming.with_subscriber(log.clone()));
    let policy = GroupPolicy::new(NamePattern::new("*").unwrap(), Duration::from_mins(1)).unwrap();
    let mut groups = GroupCleaner::new(&client, "s", policy).unwrap().every(every);
    let mut consumers = ConsumerCleaner::new(&client, "s", "g", ConsumerPolicy::default()).unwrap().every(every);
    let cleaning = async move {
        let (never, as_well) = (std::future::pending::<()>(), std::future::pending::<()>());
        tokio::join!(groups.run_every(never, |_| {}), consumers.run_every(as_well, |_| {}))
    };
    let cleaning = tokio::spawn(cleaning.with_subscriber(log.clone()));

    let refused = |count: usize| {
        move |told: &[Option<ErrorKind>]| {
            told.iter().filter(|one| **one == Some(ErrorKind::NoPermission)).count() >= count
        }
    };
    let trims = || log.lines().iter().filter(|line| line.starts_with("trimming failed")).count();

    work("before").await;
    results(&told, "three refusals", refused(3)).await;
    work("while everything is refused").await;
    server.ask("ACL SETUSER keeper +xinfo").await;
    work("while trimming alone is refused").await;
    assert_eq!((trims(), log.count("NOPERM")), (1, 3), "{name}: once for each task: {:#?}", log.lines());
    server.ask("ACL SETUSER keeper +xtrim").await;
    results(&told, "trimming to heal by itself", |told| told.last() == Some(&None)).await;

    // No memory left: publishing is refused, but reading, acknowledging and trimming are what helps.
    server.publish("s", 20).await;
    published += 20;
    let count = told.lock().unwrap().len();
    server.ask("CONFIG SET maxmemory 1").await;
    results(&told, "runs on a full server", |told| told.len() >= count + 3).await;
    server.ask("CONFIG SET maxmemory 0").await;
    assert!(told.lock().unwrap()[count..].iter().all(Option::is_none), "{name}: {:?}", told.lock().unwrap());
    assert_eq!(log.lines().len(), 3, "{name}: nothing is told of that: {:#?}", log.lines());

    let count = told.lock().unwrap().len();
    // The connections of maintenance alone.
    let clients = server.ask("CLIENT LIST").await;
    let clients = String::from_utf8_lossy(clients.as_bytes().unwrap()).into_owned();
    for line in clients.lines().filter(|line| line.contains("user=keeper")) {
        let id = line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap();
        server.ask(&format!("CLIENT KILL ID {id}")).await;
    }
    results(&told, "trimming on a new connection", |told| told.len() >= count + 3 && told.last() == Some(&None)).await;
    server.until("what was finished to be trimmed", || async { server.len("s").await == 1 }).await;
    let broke = told.lock().unwrap()[count..].iter().flatten().count();
    assert_eq!((broke, trims()), (1, 2), "{name}: one round, and one line: {:#?}", log.lines());

    // The same trouble once more is news.
    server.ask("ACL SETUSER keeper -xtrim").await;
    let count = told.lock().unwrap().iter().filter(|one| **one == Some(ErrorKind::NoPermission)).count();
    server.publish("s", 20).await;
    published += 20;
    results(&told, "three more refusals", refused(count + 3)).await;
    assert_eq!(trims(), 3, "{name}: {:#?}", log.lines());
    trimming.abort();
    cleaning.abort();
    server.publish("s", 20).await;
    server.until("the consumer to go on", || async { journal.finished() == published + 20 }).await;
    for event in ["Reconnecting", "Degraded", "LeaseLost", "DeletedWhilePending"] {
        assert_eq!(consumer.events.count(event), 0, "{name}: {event}");
    }
    let starts = journal.starts();
    assert_eq!(starts, published + 20, "{name}: nothing ran twice");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_in_maintenance_is_not_noticed_by_consumers() {
    on_each_own(ServerOptions::new(), undisturbed).await;
}
