//! The report that started all this, on every server of the matrix with RESP2 and RESP3 at the same time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::{ServerOptions, Warnings, work_for};
use streamkeeper::host::{Host, HostEvent, MemberEnd};
use streamkeeper::maint::Trimmer;
use streamkeeper::{Client, Event, RunState, Shutdown, StreamKey};
use streamkeeper_tests::{Ask, Events, on_each_own};

use super::{Seen, ephemeral};

const BLOCK: Duration = Duration::from_secs(1);

/// How many seconds the stream is missing: 10, or what `STREAMKEEPER_SILENCE` says.
fn silence() -> u64 {
    std::env::var("STREAMKEEPER_SILENCE").ok().map_or(10, |text| text.parse().expect("STREAMKEEPER_SILENCE is seconds"))
}

/// An ephemeral consumer on a stream that does not exist, with trimming on and no pause between trims. All of it on one
/// thread, so that whatever is logged is seen.
#[tokio::test]
async fn a_missing_stream_is_waited_for_in_silence_while_trimming_is_on() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    tokio::join!(with("resp2"), with("resp3"));
    assert_eq!(warnings.lines(), [] as [String; 0]);
}

async fn with(protocol: &'static str) {
    on_each_own(ServerOptions::new(), move |server| async move {
        let name = format!("{} with {protocol}", server.name());
        let client = Client::open(&format!("{}?protocol={protocol}", server.url())).unwrap();
        let (seen, events, told) = (Seen::default(), Events::default(), Arc::new(Mutex::new(Vec::new())));
        let (heard, noted) = (events.clone(), Arc::clone(&told));
        let consumer = ephemeral(&client, "s").block(BLOCK).observer(move |_: &StreamKey, event: &Event<'_>| {
            heard.add(event);
        });
        let trimmer = Trimmer::builder(&client).stream("s").trim_every(Duration::ZERO).build().unwrap();
        let host = Host::builder()
            .ephemeral("log", consumer, seen.handler())
            .trim("trim", trimmer)
            .observer(move |event: &HostEvent<'_>| noted.lock().unwrap().push(format!("{event:?}")))
            .build()
            .unwrap();
        let (health, shutdown) = (host.health(), Shutdown::new());
        let switch = shutdown.clone();
        let task = tokio::spawn(async move { host.run_with(&switch).await });
        server.until("ready", || std::future::ready(events.count("Ready") == 1)).await;
        server.until("a trim", || async { server.calls().await.contains_key("time") }).await;

        let began = tokio::time::Instant::now();
        let before = server.calls().await;
        work_for(Duration::from_secs(silence())).await;
        let after = server.calls().await;
        let count = |name: &str| after.get(name).copied().unwrap_or(0) - before.get(name).copied().unwrap_or(0);
        // A period cannot be shorter than it was asked to be; on a loaded machine there are fewer.
        let most = began.elapsed().as_secs() + 2;
        assert!((1..=most).contains(&count("xread")), "{} reads in {:?} on {name}", count("xread"), began.elapsed());
        assert!(count("time") >= 1, "trimming is on");
        // Each question of ours is a connection; those are not greeted.
        assert_eq!((count("hello"), count("auth"), count("xgroup|create")), (0, 0, 0), "{name}: {after:?}");
        assert_eq!(events.all().len(), 1, "{name}: nothing but that it is ready: {:?}", events.all());

        let ids = server.publish("s", 1).await;
        server.until("the first entry", || std::future::ready(seen.len() == 1)).await;
        assert_eq!(seen.ids(), ids, "{name}");
        let seen_by_probe = health.get()[0].1.clone();
        assert_eq!((seen_by_probe.state, seen_by_probe.reconnects), (RunState::Running, 0), "{name}");
        shutdown.stop();
        let report = task.await.unwrap().into_result().unwrap();
        let MemberEnd::Maintenance(trims) = report.member("trim").unwrap().end else { panic!("{report:?}") };
        assert!(trims.failures == 0 && trims.runs > 0, "{name}: {trims:?}");
        assert_eq!(told.lock().unwrap().as_slice(), [] as [String; 0], "{name}");
    })
    .await;
}
