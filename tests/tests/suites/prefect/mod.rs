//! Prefect's messaging as its own tests describe it, and the weaknesses that were shown in it, each as a test in which the
//! right thing happens. On every server; `docs/migrating.md` lists which test stands for which.

mod messaging;
mod weaknesses;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stream_testkit::RealServer;
use streamkeeper::{
    Consumer, DrainReport, DurableBuilder, Handler, PrefectMessage, PrefectPublisher, RetryPolicy, Shutdown,
};
use streamkeeper_tests::Ask;

/// What handlers were given, in the order of their starts. Clones are the same list.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<PrefectMessage>>>);

impl Seen {
    /// Notes a message; its place in the list.
    fn add(&self, message: PrefectMessage) -> usize {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(message);
        seen.len() - 1
    }

    fn all(&self) -> Vec<PrefectMessage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn texts(&self) -> Vec<String> {
        self.all().iter().map(|message| message.text().unwrap().to_owned()).collect()
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A consumer as Prefect's defaults make one: the first and three more attempts, one message at a time. Its pauses are
/// short, since a renewal that is not answered in time costs the connection, and the lease runs on meanwhile.
fn builder(server: &RealServer, topic: &str) -> DurableBuilder {
    Consumer::durable(&server.client())
        .stream(topic)
        .group("g")
        .concurrency(1)
        .block(Duration::from_secs(1))
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
        .retry(RetryPolicy::immediate().max_attempts(4))
}

fn publisher(server: &RealServer, topic: &str) -> PrefectPublisher {
    PrefectPublisher::builder(&server.client()).topic(topic).build().unwrap()
}

/// Publishes texts with their number as an attribute.
async fn publish<T: AsRef<str>>(server: &RealServer, topic: &str, texts: impl IntoIterator<Item = T>) {
    let publisher = publisher(server, topic);
    for (n, text) in texts.into_iter().enumerate() {
        publisher.publish(text.as_ref(), [("n", n)]).await.unwrap().unwrap();
    }
}

/// Runs a consumer until its handler stops it.
async fn run_to_stop<H, A>(builder: DurableBuilder, handler: H) -> DrainReport
where
    H: Handler<A>,
    A: 'static,
{
    let shutdown = Shutdown::new();
    let run = builder.build().unwrap().run_with(&shutdown, handler);
    tokio::time::timeout(Duration::from_secs(20), run).await.expect("the handler stops the consumer").unwrap()
}
