//! The library without a group: an ephemeral consumer that drains a stream, and the publisher.

use std::sync::Arc;
use std::time::Duration;

use streamkeeper::{Client, Consumer, Data, Publisher, Shutdown, StartFrom};

use super::Task;
use super::report::Watch;
use crate::Failure;

pub(super) async fn follow(task: &Task, watch: Watch) -> Result<(), Failure> {
    let client = Client::open(&task.url())?;
    let consumer = Consumer::ephemeral(&client).stream(&task.stream).start(StartFrom::Beginning).build()?;
    let shutdown = Shutdown::new();
    let stop = Arc::new(shutdown.clone());
    let expect = task.expect;
    let handler = move |Data(data): Data| {
        if watch.see(&data) == expect {
            watch.report();
            stop.stop();
        }
        async {}
    };
    let report = consumer.run_with(&shutdown, handler).await?;
    eprintln!("{:?}", report.stats);
    Ok(())
}

/// `batch`: entries in one write; `None` for the default.
pub(super) async fn publish(task: &Task, batch: Option<usize>, watch: &Watch) -> Result<(), Failure> {
    let client = Client::open(&task.url())?;
    let builder = Publisher::builder(&client).stream(&task.stream);
    let publisher = match batch {
        Some(entries) => builder.batch(entries).build()?,
        None => builder.build()?,
    };
    let payload = vec![b'x'; task.size];
    watch.begin();
    for _ in 0..task.expect {
        // Whether all were taken is seen at the stream in the end.
        drop(publisher.enqueue([(&task.field, &payload)]).await?);
    }
    publisher.flush().await;
    watch.report();
    let left = publisher.close(Duration::from_secs(10)).await;
    if left.is_empty() { Ok(()) } else { Err(format!("{} entries were not confirmed", left.len()).into()) }
}
