//! Sizes of entries.

use std::time::Duration;

use streamkeeper_tests::{Journal, on_each};

use super::{builder, settled, taking};

#[tokio::test(flavor = "multi_thread")]
async fn b65_an_entry_larger_than_the_bound_is_handled_alone() {
    on_each(|server| async move {
        let (key, name) = (server.fresh_key("b65"), server.name().to_owned());
        let body = "x".repeat(9 << 20);
        for _ in 0..3 {
            server.cli(&["XADD", &key, "*", "data", &body]).await.unwrap();
        }
        let journal = Journal::default();
        let running = taking(builder(&server, &key).prefetch_bytes(1), &journal, Duration::ZERO);
        settled(&server, &key, &journal, 3).await;
        running.stop().await;
        assert_eq!(journal.starts(), 3, "{name}");
    })
    .await;
}
