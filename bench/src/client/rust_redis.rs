//! What one writes on the `redis` crate by hand: a typed loop, and one that runs handlers at the same time behind a
//! semaphore. Neither renews leases, retries or recovers anything.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands, AsyncConnectionConfig, Value};
use tokio::sync::{Semaphore, mpsc};

use super::report::Watch;
use super::{SLOW, Task};
use crate::Failure;

/// Reads 1,000, looks at each, acknowledges them, and so on.
pub(super) async fn typed(task: &Task, watch: &Watch) -> Result<(), Failure> {
    let mut connection = connect(task).await?;
    let options = options(task);
    while watch.seen() < task.expect {
        for key in read(&mut connection, task, &options).await?.keys {
            let mut ids = Vec::with_capacity(key.ids.len());
            for entry in key.ids {
                if let Some(Value::BulkString(data)) = entry.map.get("data") {
                    watch.see(data);
                }
                ids.push(entry.id);
            }
            let _: u64 = connection.xack(&task.stream, &task.group, &ids).await?;
        }
    }
    watch.report();
    Ok(())
}

/// 100 tasks at a time that sleep for 5 ms each; what has ended is acknowledged together.
pub(super) async fn semaphore(task: &Task, watch: &Watch) -> Result<(), Failure> {
    let mut connection = connect(task).await?;
    let options = options(task);
    let permits = Arc::new(Semaphore::new(100));
    let (done, receive) = mpsc::unbounded_channel::<String>();
    let acker = tokio::spawn(acknowledge(connect(task).await?, task.clone(), receive));
    while watch.seen() < task.expect {
        for entry in read(&mut connection, task, &options).await?.keys.into_iter().flat_map(|key| key.ids) {
            let permit = Arc::clone(&permits).acquire_owned().await?;
            let (done, watch) = (done.clone(), watch.clone());
            if let Some(Value::BulkString(data)) = entry.map.get("data") {
                watch.see(data);
            }
            tokio::spawn(async move {
                tokio::time::sleep(SLOW).await;
                let _ = done.send(entry.id);
                drop(permit);
            });
        }
    }
    drop(done);
    acker.await??;
    watch.report();
    Ok(())
}

async fn acknowledge(
    mut connection: MultiplexedConnection,
    task: Task,
    mut done: mpsc::UnboundedReceiver<String>,
) -> Result<(), Failure> {
    let mut ids = Vec::new();
    while done.recv_many(&mut ids, 1_000).await > 0 {
        let _: u64 = connection.xack(&task.stream, &task.group, &ids).await?;
        ids.clear();
    }
    Ok(())
}

async fn connect(task: &Task) -> Result<MultiplexedConnection, Failure> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(redis::Client::open(task.url())?.get_multiplexed_async_connection_with_config(&config).await?)
}

fn options(task: &Task) -> StreamReadOptions {
    let options = StreamReadOptions::default().group(&task.group, "typed").count(1_000);
    if task.live { options.block(1_000) } else { options }
}

async fn read(
    connection: &mut MultiplexedConnection,
    task: &Task,
    options: &StreamReadOptions,
) -> Result<StreamReadReply, Failure> {
    let reply: Option<StreamReadReply> = connection.xread_options(&[&task.stream], &[">"], options).await?;
    Ok(reply.unwrap_or_default())
}
