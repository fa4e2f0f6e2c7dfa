//! How far groups are: never a made-up number.

use stream_core::{EntryId, Need, Pin};
use stream_maint::{ConsumerHealth, Lag, LagMonitor, StreamLag, WhyUnknown};

use crate::support::{Server, group, id, on_each};

async fn look(server: &Server) -> StreamLag {
    LagMonitor::new(&server.client, "s").unwrap().look().await.unwrap().unwrap()
}

fn counts(server: &Server) -> bool {
    !server.name.contains("6.2") && !server.name.contains("Redis62")
}

#[tokio::test]
async fn b61_a_lag_that_nobody_knows_is_unknown() {
    on_each(async |server| {
        server.fill("s", 3).await;
        server.group("s", "deleted", 1, &[1]).await;
        server.ok("XGROUP CREATE s middle 2-0").await;
        server.ok("XGROUP CREATE s end $").await;
        server.ok("XGROUP CREATE s new 0").await;
        server.ok("XGROUP CREATE s ahead 9-0").await;
        let check = async |name: &str, expected: &[Lag]| {
            let report = look(server).await;
            let lag = report.groups.iter().find(|lag| lag.name == group(name)).unwrap().lag;
            assert!(expected.contains(&lag), "{}: {name} {lag:?}", server.name);
        };
        check("end", &[Lag::Known(0)]).await;
        check("new", &[Lag::Known(3)]).await;
        check("ahead", &[Lag::Unknown(WhyUnknown::AheadOfStream)]).await;
        let unknown = Lag::Unknown(if counts(server) { WhyUnknown::CountLost } else { WhyUnknown::NotCounted });
        check("deleted", &[if counts(server) { Lag::Known(2) } else { unknown }]).await;
        check("middle", &[unknown, Lag::Known(1)]).await;
        server.ok("XDEL s 2-0").await;
        check("deleted", &[unknown]).await;
        // What is cut away is not waited for, whatever the server counts.
        server.ok("XTRIM s MAXLEN 1").await;
        check("deleted", &[Lag::Known(1)]).await;
        check("new", &[Lag::Known(1)]).await;
        server.ok("XTRIM s MAXLEN 0").await;
        check("new", &[Lag::Known(0)]).await;
    })
    .await;
}

#[tokio::test]
async fn pending_entries_consumers_and_pins_are_reported() {
    on_each(async |server| {
        server.fill("s", 5).await;
        server.group("s", "g", 4, &[2, 3]).await;
        server.ok("XGROUP CREATECONSUMER s g idle").await;
        let report = look(server).await;
        let pin = Pin::Group { name: group("g"), need: Need::Pending(id(2)), pending: 2, unchanged: None };
        assert_eq!((report.length, report.first, &report.pinned_by), (5, Some(id(1)), &pin), "{}", server.name);
        let [lag] = report.groups.as_slice() else { panic!("{report:?}") };
        assert_eq!((lag.pending, lag.last_delivered, lag.distance.as_millis()), (2, id(4), 1));
        let oldest = lag.oldest.as_ref().unwrap();
        assert_eq!((oldest.id, oldest.deliveries), (id(2), 1));
        assert_eq!(oldest.consumer.as_ref().unwrap().as_bytes(), b"c");
        let states: Vec<_> = lag.consumers.iter().map(|one| (one.pending, one.state)).collect();
        assert_eq!(states, [(2, ConsumerHealth::Active), (0, ConsumerHealth::Active)], "{}", server.name);
        let mut strict = LagMonitor::new(&server.client, "s").unwrap().quiet_after(std::time::Duration::ZERO);
        let report = strict.look().await.unwrap().unwrap();
        let states: Vec<_> = report.groups[0].consumers.iter().map(|one| one.state).collect();
        assert_eq!(states, [ConsumerHealth::Holding, ConsumerHealth::Quiet], "{}", server.name);
    })
    .await;
}

#[tokio::test]
async fn a_missing_stream_and_one_without_groups_are_states() {
    on_each(async |server| {
        let mut monitor = LagMonitor::new(&server.client, "s").unwrap();
        assert_eq!(monitor.look().await.unwrap(), None, "{}", server.name);
        server.fill("s", 1).await;
        let report = monitor.look().await.unwrap().unwrap();
        assert_eq!((report.groups.len(), report.pinned_by), (0, Pin::NoGroup), "{}", server.name);
        assert_eq!(report.last_generated, EntryId::new(1, 0));
    })
    .await;
}
