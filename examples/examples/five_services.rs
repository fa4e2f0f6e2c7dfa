//! How do I run all the services of a product on one stream of events, in one process?
//!
//! Five shapes, as an orchestration server like Prefect has them on its stream `events`: triggers that react to events and
//! order actions, the actions themselves on a stream of their own, a persister that writes in batches and acknowledges what
//! is written, a recorder that keeps the order of each task run, and a logger that follows the live tail and leaves nothing
//! on the server. Trimming and clean-up run beside them.
//!
//! `cargo run -p streamkeeper-examples --example five_services`, with a server at `REDIS_URL` or on the default port. It
//! publishes `EVENTS` events (200) of its own, waits until every service is through with them, stops and reports; Ctrl-C
//! ends it sooner. What it leaves are two streams, `five-services:events` and `five-services:actions`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use streamkeeper::host::{Host, MemberEnd};
use streamkeeper::maint::{ConsumerCleaner, ConsumerPolicy, TrimPolicy, Trimmer};
use streamkeeper::{Client, Consumer, Data, Json, Publisher, RestartPolicy, Shutdown};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Event {
    run: u64,
    step: u64,
    state: String,
}

/// What the services have done; in a product this is a database.
#[derive(Debug, Default)]
struct World {
    ordered: AtomicU64,
    acted: AtomicU64,
    written: AtomicU64,
    batches: AtomicU64,
    logged: AtomicU64,
    /// The last step of each run.
    runs: Mutex<HashMap<u64, u64>>,
    out_of_order: AtomicU64,
}

/// Reacts to a failed run by ordering an action. Where the order cannot be placed, the event is tried again later.
async fn trigger(event: Event, actions: Arc<Publisher>, world: Arc<World>) -> Result<(), Failure> {
    if event.state == "failed" {
        let order = serde_json::to_vec(&event)?;
        actions.publish([(&b"data"[..], order.as_slice())]).await?;
        world.ordered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let number: u64 = std::env::var("EVENTS").map_or(Ok(200), |text| text.parse())?;
    let client = Client::open(&url)?;
    let (events, actions) = ("five-services:events", "five-services:actions");
    let world = Arc::new(World::default());

    let durable = |stream: &str, group: &str| Consumer::durable(&client).stream(stream).group(group);
    let orders = Arc::new(Publisher::builder(&client).stream(actions).build()?);
    let (triggers, acting, persister, recorder, logger) =
        (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
    // The logger has no group that trimming could wait for: it has a minute to read what all groups are done with.
    let trimmer = Trimmer::builder(&client)
        .stream(events)
        .policy(TrimPolicy::new().older_than(Duration::from_mins(1)))
        .trim_every(Duration::from_secs(1))
        .build()?;
    let host = Host::builder()
        .durable("reactive-triggers", durable(events, "reactive-triggers"), move |Json(event): Json<Event>| {
            trigger(event, Arc::clone(&orders), Arc::clone(&triggers))
        })
        .durable("actions", durable(actions, "actions"), move |Json(order): Json<Event>| {
            println!("starting run {} again", order.run);
            acting.acted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        })
        // What is acknowledged has been written: the handler returns after the flush.
        .durable_batches(
            "event-persister",
            durable(events, "event-persister").concurrency(1),
            100,
            move |rows: Vec<Data>| {
                persister.batches.fetch_add(1, Ordering::Relaxed);
                persister.written.fetch_add(rows.len() as u64, Ordering::Relaxed);
                std::future::ready(())
            },
        )
        .durable(
            "task-run-recorder",
            durable(events, "task-run-recorder").order_by(|event: &Event| event.run),
            move |Json(event): Json<Event>| {
                let before = recorder.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(event.run, event.step);
                if before.is_some_and(|before| before > event.step) {
                    recorder.out_of_order.fetch_add(1, Ordering::Relaxed);
                }
                std::future::ready(())
            },
        )
        .ephemeral("event-logger", Consumer::ephemeral(&client).stream(events), move |Data(_): Data| {
            logger.logged.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        })
        .trim("trim", trimmer)
        .clean_consumers(
            "clean up",
            ConsumerCleaner::new(&client, events, "event-persister", ConsumerPolicy::default())?,
        )
        .restart(RestartPolicy::on_failure())
        .build()?;

    let (health, shutdown) = (host.health(), Shutdown::on_signals()?);
    let switch = shutdown.clone();
    let running = tokio::spawn(async move { host.run_with(&switch).await });
    wait(&shutdown, || health.is_ready(Duration::from_secs(15))).await;

    let publisher = Publisher::builder(&client).stream(events).build()?;
    let mut receipts = Vec::new();
    let mut failed = 0;
    for number in 0..number {
        if shutdown.is_stopping() {
            break;
        }
        let state = if number % 10 == 9 { "failed" } else { "running" };
        failed += u64::from(state == "failed");
        let event = Event { run: number % 7, step: number, state: state.to_owned() };
        receipts.push(publisher.enqueue([(&b"data"[..], serde_json::to_vec(&event)?.as_slice())]).await?);
    }
    for receipt in receipts {
        receipt.confirmed().await?;
    }
    let done = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    wait(&shutdown, || {
        let recorded = world.runs.lock().unwrap_or_else(PoisonError::into_inner).values().max().copied();
        done(&world.acted) >= failed
            && done(&world.written) >= number
            && done(&world.logged) >= number
            && (number == 0 || recorded == Some(number - 1))
    })
    .await;
    shutdown.stop();

    let report = running.await?.into_result()?;
    for member in &report.members {
        match &member.end {
            MemberEnd::Durable(report) => println!("{}: {} acknowledged", member.name, report.stats.acknowledged),
            MemberEnd::Ephemeral(report) => println!("{}: {} handled", member.name, report.stats.handled),
            end => println!("{}: {end:?}", member.name),
        }
    }
    println!(
        "{} events written in {} batches, {} actions ordered and {} started, {} events out of order",
        done(&world.written),
        done(&world.batches),
        done(&world.ordered),
        done(&world.acted),
        done(&world.out_of_order),
    );
    Ok(())
}

/// Until something holds, or a stop is asked for.
async fn wait(shutdown: &Shutdown, holds: impl Fn() -> bool) {
    while !holds() && !shutdown.is_stopping() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
