//! Masters that sentinels replace.

use std::collections::BTreeSet;

use stream_testkit::{SentinelSetup, ServerBinary};
use streamkeeper::{Client, ErrorKind, Publisher, StreamKey};
use streamkeeper_tests::{Journal, start};

use super::{durable, handled, noting, on_programs, plain, programs, publish, replicated};

async fn goes_on(binary: ServerBinary) {
    let name = binary.name().to_owned();
    let mut setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url()).unwrap();
    let journal = Journal::default();
    let consumers = [(); 2].map(|()| start(durable(&client).stream("orders"), noting(&journal)));
    let publisher = Publisher::builder(&client).stream("orders").build().unwrap();
    let mut published = BTreeSet::new();
    for round in 0..2 {
        published.extend(publish(&publisher, 200).await);
        let master = setup.master().await;
        replicated(&setup.servers[master]).await;
        if round == 1 {
            setup.fail_over().await;
        } else {
            setup.servers[master].kill9().await.unwrap();
            setup.until_other_than(master).await;
            published.extend(publish(&publisher, 200).await);
            handled(&journal, &published, &format!("after kill {round} on {name}")).await;
            setup.servers[master].restart().await.unwrap();
        }
        published.extend(publish(&publisher, 200).await);
        handled(&journal, &published, &format!("after failover {round} on {name}")).await;
        setup.until_watched().await;
    }
    for consumer in consumers {
        assert!(!consumer.is_over(), "{name}");
        consumer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_and_publishers_follow_the_master() {
    on_programs(goes_on).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_sentinel_knows_is_a_clear_end() {
    let Some(binary) = programs().pop() else { return };
    let setup = SentinelSetup::start(&binary, &plain()).await;
    let client = Client::open(&setup.url().replace("/main", "/mian")).unwrap();
    let error = start(durable(&client).stream("orders"), noting(&Journal::default())).ended().await.unwrap_err();
    let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
    assert!(text.contains("all 3 sentinels answer that they know no master `mian`"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_do_not_answer_are_done_without() {
    let Some(binary) = programs().pop() else { return };
    let mut setup = SentinelSetup::start(&binary, &plain()).await;
    let key = StreamKey::new("orders").unwrap();
    let client = Client::open(&setup.url()).unwrap();
    setup.sentinels[0].pause().await.unwrap();
    setup.sentinels[1].kill9().await.unwrap();
    client.connector().connect(&key).await.unwrap();
    setup.sentinels[2].kill9().await.unwrap();
    setup.sentinels[0].resume().await.unwrap();
    client.connector().connect(&key).await.unwrap();
    setup.sentinels[0].kill9().await.unwrap();
    let error = client.connector().connect(&key).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}
