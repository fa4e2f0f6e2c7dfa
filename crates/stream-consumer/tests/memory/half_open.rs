//! Connections that stay open and on which nothing is answered any more, in the middle of each command: how soon they are left.

use std::time::Duration;

use stream_consumer::{Consumer, Context, Data, Outcome, Shutdown};
use stream_testkit::memory::Fault;
use stream_testkit::{MemoryServer, eventually};
use tokio::time::{Instant, sleep};

use super::support::{Journal, abandoned};

const BLOCK: Duration = Duration::from_secs(1);
/// How long an answer may take.
const RESPONSE: Duration = Duration::from_millis(500);
/// The longest pause before a connection is made anew.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause before an acknowledgement is repeated, and what a look at the condition takes.
const REPEAT: Duration = Duration::from_millis(150);

#[tokio::test(start_paused = true)]
async fn a_connection_half_open_in_any_command_is_left_within_block_and_what_an_answer_may_take() {
    for command in ["XREADGROUP", "XAUTOCLAIM", "EVALSHA RENEW", "XACK", "EVALSHA DEAD_LETTER"] {
        let server = MemoryServer::new();
        server.set_response_timeout(Some(RESPONSE));
        // The first letter makes its script known.
        abandoned(&server, "s", 1, 1);
        server.add("s", [("data", "unwanted")]);
        let (journal, shutdown) = (Journal::default(), Shutdown::new());
        let consumer = Consumer::durable(&server.client())
            .stream("s")
            .group("g")
            .block(BLOCK)
            .lease(Duration::from_secs(6))
            .claim_every(Duration::from_secs(1))
            .backoff(Duration::from_millis(20), PAUSE)
            .build()
            .unwrap();
        let run = tokio::spawn({
            let (journal, shutdown) = (journal.clone(), shutdown.clone());
            async move {
                let handler = move |Data(data): Data, cx: Context| {
                    let noted = journal.done(cx);
                    async move {
                        noted.await;
                        match &data[..] {
                            b"held" => sleep(Duration::from_secs(20)).await,
                            b"unwanted" => return Outcome::reject("not wanted"),
                            _ => {}
                        }
                        Outcome::Done
                    }
                };
                consumer.run_with(&shutdown, handler).await
            }
        });
        // By now the abandoned one was claimed, and leases were renewed.
        sleep(Duration::from_secs(10)).await;
        assert_eq!((server.pending("s", "g").len(), server.len("s:dead")), (0, 1), "{command}");
        server.add("s", [("data", "held")]);
        sleep(Duration::from_millis(100)).await;
        let before = server.count(command);
        server.fail_next(command, Fault::Hang);
        let first = server.entries("s")[0].id();
        if command == "XAUTOCLAIM" {
            // Somebody has read it again and died.
            let id = first.to_string();
            server.command(["XCLAIM", "s", "g", "dead", "0", &id, "IDLE", "60000", "FORCE", "JUSTID"]).unwrap();
        }
        if command.ends_with("DEAD_LETTER") {
            server.add("s", [("data", "unwanted")]);
        }
        if command == "XACK" {
            server.add("s", [("data", "0")]);
        }
        eventually(Duration::from_secs(10), format!("{command} to hang"), || {
            std::future::ready((server.count(command) > before).then_some(()))
        })
        .await;
        let since = Instant::now();
        let next = server.add("s", [("data", "next")]);
        eventually(Duration::from_mins(1), "the next to be handled and acknowledged", || {
            let handled = journal.attempts().contains_key(&next);
            let pending = server.pending("s", "g").iter().any(|(id, ..)| *id == next);
            std::future::ready((handled && !pending).then_some(()))
        })
        .await;
        assert!(since.elapsed() <= BLOCK + RESPONSE + PAUSE + REPEAT, "{command}: {:?}", since.elapsed());
        eventually(Duration::from_mins(5), "all to be settled", || {
            std::future::ready(server.pending("s", "g").is_empty().then_some(()))
        })
        .await;
        let mut attempts = journal.attempts();
        let of_first = attempts.remove(&first).unwrap();
        assert_eq!(of_first.len(), if command == "XAUTOCLAIM" { 2 } else { 1 }, "{command}: {of_first:?}");
        assert!(attempts.values().all(|attempts| *attempts == [1]), "{command}: {attempts:?}");
        shutdown.stop();
        run.await.unwrap().unwrap();
    }
}
