//! Servers that lack something, and streams of several that cannot be read.

use std::time::Duration;

use stream_testkit::ServerOptions;
use streamkeeper_tests::{Ask, Journal, on_each_own};

use super::{builder, settled, taking};

#[tokio::test(flavor = "multi_thread")]
async fn b68_a_server_without_xautoclaim_is_consumed_from_and_what_that_costs_is_said_once() {
    let without = ServerOptions::new().args(["--rename-command", "XAUTOCLAIM", "XAUTOCLAIM-IS-NOT-THERE"]);
    on_each_own(without, |server| async move {
        let name = server.name().to_owned();
        let journal = Journal::default();
        let running = taking(builder(&server, "s").claim_every(Duration::from_millis(100)), &journal, Duration::ZERO);
        server.publish("s", 50).await;
        settled(&server, "s", &journal, 50).await;
        server.until("it to be said", || async { running.events.count("Degraded") >= 1 }).await;
        server.publish("s", 50).await;
        settled(&server, "s", &journal, 100).await;
        let told = running.events.named("Degraded");
        assert!(told.len() == 1 && told[0].text.contains("are not taken over"), "{name}: {told:?}");
        assert_eq!(running.events.count("Reconnecting"), 0, "{name}");
        running.stop().await;
        assert_eq!(journal.starts(), 100, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b52_one_bad_stream_of_a_group_is_named_and_does_not_stop_the_others() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        server.ask("SET bad x").await;
        let journal = Journal::default();
        let several = builder(&server, "s").stream("bad").stream("missing");
        let several = several.backoff(Duration::from_millis(50), Duration::from_millis(500));
        let running = taking(several, &journal, Duration::ZERO);
        server.publish("s", 50).await;
        settled(&server, "s", &journal, 50).await;
        // A group is made where there is no stream.
        server.publish("missing", 50).await;
        settled(&server, "missing", &journal, 100).await;
        server.until("the bad one to be told", || async { running.events.count("StreamFailed") >= 1 }).await;
        let told = running.events.named("StreamFailed");
        assert!(told[0].text.contains("WRONGTYPE") && told[0].text.contains("bad"), "{name}: {}", told[0].text);
        server.ask("DEL bad").await;
        server.publish("bad", 5).await;
        settled(&server, "bad", &journal, 105).await;
        running.stop().await;
        assert_eq!(journal.starts(), 105, "{name}");
    })
    .await;
}
