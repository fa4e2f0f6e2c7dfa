//! The modes that acknowledge beforehand or not at all: whatever they give up, a process that lives loses nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_consumer::{Acknowledge, Consumer, Context, Data, DurableBuilder, Event, Outcome, Shutdown};
use stream_core::StreamKey;
use stream_testkit::MemoryServer;
use tokio::time::sleep;

use super::support::{Journal, publish};

const BEFOREHAND: [Acknowledge; 2] = [Acknowledge::First, Acknowledge::NoAck];

#[tokio::test(start_paused = true)]
async fn an_error_is_an_event_in_every_mode() {
    for mode in [Acknowledge::Always, Acknowledge::First, Acknowledge::NoAck] {
        let server = MemoryServer::new();
        publish(&server, "s", 3);
        let given_up = Arc::new(Mutex::new(Vec::new()));
        let shutdown = Shutdown::new();
        let consumer = Consumer::durable(&server.client())
            .stream("s")
            .group("g")
            .acknowledge(mode)
            .observer({
                let given_up = Arc::clone(&given_up);
                move |_: &StreamKey, event: &Event<'_>| {
                    if let Event::GivenUp { reason, .. } = event {
                        given_up.lock().unwrap().push(reason.detail().map(str::to_owned));
                    }
                }
            })
            .build()
            .unwrap();
        let run = tokio::spawn({
            let shutdown = shutdown.clone();
            async move {
                let handler = |Data(data): Data| async move {
                    if data == "1" { Outcome::failed("no such order") } else { Outcome::Done }
                };
                consumer.run_with(&shutdown, handler).await
            }
        });
        sleep(Duration::from_secs(1)).await;
        shutdown.stop();
        let report = run.await.unwrap().unwrap();
        assert_eq!(*given_up.lock().unwrap(), [Some("no such order".to_owned())], "{mode:?}");
        assert_eq!((report.stats.started, report.stats.handled), (3, 2), "{mode:?}");
        assert!(server.pending("s", "g").is_empty());
    }
}
