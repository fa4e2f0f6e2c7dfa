//! A worker process for the suites that freeze or kill one: it consumes, and writes down what its handlers did, a line each.
//!
//! `test-worker URL STREAM GROUP NAME JOURNAL LEASE_MS deaf|listening WORK`: a listening handler ends when its token is
//! cancelled, a deaf one after its work, and both say that they were done. WORK is a number of milliseconds, or the path of
//! a file: the work is done when that is there. An empty NAME is the default one. Ends at SIGTERM.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::{eventually, work_for};
use streamkeeper::{Client, Consumer, Context, Event, StreamKey, shutdown_signal};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, stream, group, name, journal, lease, ears, work] = args.as_slice() else {
        return Err("usage: test-worker URL STREAM GROUP NAME JOURNAL LEASE_MS deaf|listening WORK".into());
    };
    let journal = Arc::new(Mutex::new(File::create(journal)?));
    let note = move |line: String| {
        let mut journal = journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // One write a line, so that whoever reads along sees whole lines.
        journal.write_all(format!("{line}\n").as_bytes()).expect("the journal can be written");
    };
    let (lease, work) = (Duration::from_millis(lease.parse()?), work.clone());
    let deaf = ears == "deaf";
    let told = note.clone();
    let builder = Consumer::durable(&Client::open(url)?).stream(stream).group(group);
    let consumer = if name.is_empty() { builder } else { builder.consumer(name) }
        .lease(lease)
        .observer(move |_: &StreamKey, event: &Event<'_>| {
            if matches!(event, Event::Ready | Event::LeaseLost { .. }) {
                told(format!("{event:?}"));
            }
        })
        .build()?;
    let report = consumer
        .run_until(shutdown_signal()?, move |cx: Context| {
            let (note, work) = (note.clone(), work.clone());
            async move {
                note(format!("start {} {}", cx.id(), cx.attempt()));
                if deaf {
                    done(&work).await;
                } else {
                    tokio::select! {
                        () = cx.cancelled() => note(format!("cancelled {}", cx.id())),
                        () = done(&work) => {}
                    }
                }
                note(format!("done {}", cx.id()));
            }
        })
        .await?;
    println!("{report:?}");
    Ok(())
}

/// The end of the work.
async fn done(work: &str) {
    if let Ok(millis) = work.parse() {
        work_for(Duration::from_millis(millis)).await;
    } else {
        let there = || std::future::ready(Path::new(work).exists().then_some(()));
        eventually(Duration::from_mins(10), work, there).await;
    }
}
