//! Groups that are lost where they cannot be made anew at once.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Shutdown, StartFrom};
use stream_testkit::MemoryServer;
use stream_testkit::memory::Fault;
use tokio::time::sleep;

use super::support::{Journal, publish, settled};

/// What begins at the end begins there once: whatever comes after a loss was published while the consumer was there.
#[tokio::test(start_paused = true)]
async fn a_new_stream_is_read_from_its_beginning_although_its_group_had_to_wait_for_memory() {
    let server = MemoryServer::new();
    publish(&server, "s", 5);
    let journal = Journal::default();
    let shutdown = Shutdown::new();
    let consumer = Consumer::durable(&server.client()).stream("s").group("g").start(StartFrom::End).build().unwrap();
    let run = tokio::spawn({
        let (journal, shutdown) = (journal.clone(), shutdown.clone());
        async move { consumer.run_with(&shutdown, move |cx: Context| journal.done(cx)).await }
    });
    sleep(Duration::from_secs(1)).await;
    publish(&server, "s", 10);
    settled(&server, "s", "g", 10, &journal).await;
    server.fail_always("XGROUP CREATE", Fault::error("OOM command not allowed when used memory > 'maxmemory'."));
    server.command(["DEL", "s"]).unwrap();
    sleep(Duration::from_mins(1)).await;
    publish(&server, "s", 20);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(journal.attempts().len(), 10);
    server.clear_faults();
    settled(&server, "s", "g", 30, &journal).await;
    assert!(journal.attempts().values().all(|attempts| *attempts == [1]), "{:?}", journal.attempts());
    shutdown.stop();
    assert_eq!(run.await.unwrap().unwrap().stats.groups_created, 2);
}
