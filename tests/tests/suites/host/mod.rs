//! Consumers and maintenance in one process, on every server of the matrix.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::{ServerOptions, work_for};
use streamkeeper::host::{Host, HostEvent, MemberEnd};
use streamkeeper::maint::Trimmer;
use streamkeeper::{Client, Consumer, Data, RestartPolicy, Settings, Shutdown};
use streamkeeper_tests::{Ask, Journal, on_each_own};

/// What a host told, as text.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn observer(&self) -> impl Fn(&HostEvent<'_>) + Send + Sync + 'static {
        let told = self.clone();
        move |event| told.0.lock().unwrap().push(format!("{event:?}"))
    }

    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|event| event.starts_with(name)).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_that_may_not_has_no_memory_or_is_cut_off_disturbs_no_consumer_and_is_told_once() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("ACL SETUSER maint on >pw ~* +@all -xtrim").await;
        let consumers = server.client();
        let maint = Client::open(&server.url().replacen("redis://", "redis://maint:pw@", 1)).unwrap();
        let (told, journal) = (Told::default(), Journal::default());
        let seen = journal.clone();
        let trimmer = Trimmer::builder(&maint).stream("s").trim_every(Duration::ZERO).without_lease();
        let host = Host::builder()
            .durable(
                "billing",
                Consumer::durable(&consumers).stream("s").group("g").block(Duration::from_secs(1)),
                move |cx: streamkeeper::Context| {
                    let run = seen.begin(&cx);
                    async move { run.end() }
                },
            )
            .trim("trim", trimmer.build().unwrap())
            .observer(told.observer())
            .build()
            .unwrap();
        let (shutdown, health) = (Shutdown::new(), host.health());
        let switch = shutdown.clone();
        let task = tokio::spawn(async move { host.run_with(&switch).await });
        server.until("it to read", || async { health.is_ready(Duration::from_secs(5)) }).await;

        // Not allowed.
        server.publish("s", 100).await;
        server.until("a hundred", || async { journal.finished() == 100 }).await;
        server.until("the failure", || async { told.count("MaintenanceFailed") == 1 }).await;
        let before = server.calls().await.get("time").copied().unwrap_or(0);
        server
            .until("two more tries", || async { server.calls().await.get("time").copied().unwrap_or(0) >= before + 2 })
            .await;
        assert_eq!((told.count("MaintenanceFailed"), told.count("MaintenanceMended")), (1, 0), "{name}: {:?}", told.0);
        server.ask("ACL SETUSER maint +xtrim").await;
        server.until("it to be mended", || async { told.count("MaintenanceMended") == 1 }).await;
        server.until("a trim", || async { server.len("s").await == 1 }).await;

        // No memory: trimming is what helps, and goes on.
        server.ask("CONFIG SET maxmemory 1").await;
        work_for(Duration::from_secs(2)).await;
        server.ask("CONFIG SET maxmemory 0").await;

        // Cut off, again and again.
        for _ in 0..5 {
            server.ask("CLIENT KILL USER maint").await;
            work_for(Duration::from_millis(300)).await;
        }
        server.publish("s", 100).await;
        server.until("two hundred", || async { journal.finished() == 200 }).await;
        server.until("another trim", || async { server.len("s").await == 1 }).await;
        server
            .until("all troubles to be over", || async {
                told.count("MaintenanceFailed") == told.count("MaintenanceMended")
            })
            .await;
        assert_eq!(journal.starts(), 200, "{name}: none twice");
        shutdown.stop();
        let report = task.await.unwrap().into_result().unwrap();
        let MemberEnd::Durable(drained) = &report.member("billing").unwrap().end else { panic!("{report:?}") };
        assert_eq!((drained.stats.acknowledged, drained.stats.reconnects), (200, 0), "{name}: {report:?}");
        assert_eq!(report.member("billing").unwrap().restarts, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_whose_permission_is_taken_and_given_back_is_started_anew() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("ACL SETUSER app on >pw ~* +@all").await;
        let app = Client::open(&server.url().replacen("redis://", "redis://app:pw@", 1)).unwrap();
        let (told, journal) = (Told::default(), Journal::default());
        let seen = journal.clone();
        let consumer = Consumer::durable(&app).stream("s").group("g").block(Duration::from_millis(200));
        let host = Host::builder()
            .durable("billing", consumer, move |cx: streamkeeper::Context| {
                let run = seen.begin(&cx);
                async move { run.end() }
            })
            .restart(RestartPolicy::on_failure())
            .observer(told.observer())
            .build()
            .unwrap();
        let (shutdown, health) = (Shutdown::new(), host.health());
        let switch = shutdown.clone();
        let task = tokio::spawn(async move { host.run_with(&switch).await });
        server.until("it to read", || async { health.is_ready(Duration::from_secs(5)) }).await;
        server.ask("ACL SETUSER app -xreadgroup").await;
        server.until("a failure", || async { told.count("Restarting") >= 1 }).await;
        server.publish("s", 50).await;
        server.ask("ACL SETUSER app +xreadgroup").await;
        server.until("all", || async { journal.finished() == 50 && server.pending("s", "g").await == 0 }).await;
        assert!(health.is_live(), "{name}");
        shutdown.stop();
        let report = task.await.unwrap().into_result().unwrap();
        assert!(report.member("billing").unwrap().restarts >= 1, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_from_variables_reach_every_server() {
    on_each_own(ServerOptions::new().requirepass("hunter2"), |server| async move {
        let port = server.port().to_string();
        let prefix = streamkeeper::settings::PREFECT_PREFIX;
        let vars = [("HOST", "127.0.0.1"), ("PORT", &port), ("PASSWORD", "hunter2"), ("CONSUMER_BLOCK", "250ms")];
        let settings =
            Settings::from_vars(prefix, vars.map(|(name, value)| (format!("{prefix}{name}"), value))).unwrap();
        let client = settings.client();
        let publisher = settings.publisher(&client, "events").linger(Duration::ZERO).build().unwrap();
        let (told, shutdown) = (Arc::new(Mutex::new(0)), Shutdown::new());
        let (counted, stop) = (Arc::clone(&told), shutdown.clone());
        let consumer = settings.durable(&client, "events", "triggers").build().unwrap();
        for n in 0..20 {
            publisher.publish([("data", n.to_string())]).await.unwrap();
        }
        let report = consumer
            .run_with(&shutdown, move |Data(_): Data| {
                let mut told = counted.lock().unwrap();
                *told += 1;
                if *told == 20 {
                    stop.stop();
                }
                std::future::ready(())
            })
            .await
            .unwrap();
        assert_eq!(report.stats.acknowledged, 20, "{}", server.name());
        let mut trimmer = settings.trimmer(&client, "events").build().unwrap();
        trimmer.run().await.unwrap();
        assert_eq!(settings.dead_letters(&client, "events").unwrap().len().await.unwrap(), 0);
    })
    .await;
}
