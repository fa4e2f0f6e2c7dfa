//! Where a group begins, and where it begins anew.

use std::time::Duration;

use stream_testkit::ServerOptions;
use streamkeeper::StartFrom;
use streamkeeper_tests::{Ask, Journal, on_each, on_each_own};

use super::{builder, settled, taking};

#[tokio::test(flavor = "multi_thread")]
async fn b11_the_start_policy_decides_what_a_new_group_is_given() {
    on_each(|server| async move {
        let name = server.name().to_owned();
        for (policy, given) in [("beginning", 5), ("end", 2), ("id", 3), ("time", 3)] {
            let key = server.fresh_key("b11");
            for id in ["1000-1", "2000-1", "3000-1"] {
                server.ask(&format!("XADD {key} {id} data x")).await;
            }
            let from = match policy {
                "beginning" => StartFrom::Beginning,
                "end" => StartFrom::End,
                "id" => StartFrom::Id(streamkeeper::EntryId::parse(b"2000-1").unwrap()),
                _ => StartFrom::Time(2_001),
            };
            let journal = Journal::default();
            let running = taking(builder(&server, &key).start(from), &journal, Duration::ZERO);
            server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
            server.publish(&key, 2).await;
            settled(&server, &key, &journal, given).await;
            running.stop().await;
            assert_eq!(journal.starts(), given, "{name}: {policy}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_what_is_published_before_a_lost_group_is_recreated_is_not_skipped() {
    on_each_own(ServerOptions::new(), |server| async move {
        let name = server.name().to_owned();
        let journal = Journal::default();
        // Even with a policy that skips: it is for the first start only.
        let running = taking(builder(&server, "orders").start(StartFrom::End), &journal, Duration::ZERO);
        server.until("it to be ready", || async { running.events.count("Ready") == 1 }).await;
        server.publish("orders", 3).await;
        settled(&server, "orders", &journal, 3).await;
        let mut cli = server.connect().await.unwrap();
        cli.command(&["MULTI"]).await.unwrap();
        cli.command(&["FLUSHALL"]).await.unwrap();
        for n in ["1", "2", "3"] {
            cli.command(&["XADD", "orders", "*", "data", n]).await.unwrap();
        }
        cli.command(&["EXEC"]).await.unwrap();
        settled(&server, "orders", &journal, 6).await;
        running.stop().await;
        assert_eq!(journal.starts(), 6, "{name}: none twice");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_stream_made_anew_with_smaller_ids_is_read_from_its_beginning() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b11"), server.name().to_owned());
        let journal = Journal::default();
        let running = taking(builder(&server, &key), &journal, Duration::ZERO);
        server.ask(&format!("XADD {key} 99999999999999-0 data x")).await;
        settled(&server, &key, &journal, 1).await;
        server.ask(&format!("DEL {key}")).await;
        for id in ["1-1", "1-2", "2-1"] {
            server.ask(&format!("XADD {key} {id} data x")).await;
        }
        settled(&server, &key, &journal, 4).await;
        running.stop().await;
        assert_eq!(journal.starts(), 4, "{name}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b35_a_group_destroyed_and_made_at_once_by_another_goes_on() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b35"), server.name().to_owned());
        let journal = Journal::default();
        let running = taking(builder(&server, &key), &journal, Duration::ZERO);
        server.publish(&key, 3).await;
        settled(&server, &key, &journal, 3).await;
        let mut cli = server.connect().await.unwrap();
        server.ask(&format!("DEL {key}")).await;
        match cli.command(&["XGROUP", "CREATE", &key, "g", "$", "MKSTREAM"]).await {
            // The consumer was quicker.
            Err(error) if error.reply().is_some_and(|reply| reply.code == "BUSYGROUP") => {}
            made => drop(made.unwrap()),
        }
        server.publish(&key, 3).await;
        settled(&server, &key, &journal, 6).await;
        assert_eq!(running.events.count("Reconnecting"), 0, "{name}: {:?}", running.events.all());
        running.stop().await;
    })
    .await;
}
