//! An ephemeral consumer in a process of its own, to be killed: `test-tail URL STREAM - - JOURNAL` follows the
//! stream in a host and writes a line for each entry to the journal.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex};

use streamkeeper::{Client, Consumer, Context, Event, Host, Shutdown, StreamKey};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, stream, _, _, journal] = args.as_slice() else {
        return Err("usage: test-tail URL STREAM - - JOURNAL".into());
    };
    let journal = Arc::new(Mutex::new(File::create(journal)?));
    let note = move |line: String| {
        let mut journal = journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // One write a line, so that whoever reads along sees whole lines.
        journal.write_all(format!("{line}\n").as_bytes()).expect("the journal can be written");
    };
    let told = note.clone();
    let tail =
        Consumer::ephemeral(&Client::open(url)?).stream(stream).observer(move |_: &StreamKey, event: &Event<'_>| {
            if matches!(event, Event::Ready) {
                told("ready".to_owned());
            }
        });
    let host = Host::builder()
        .ephemeral("tail", tail, move |cx: Context| {
            note(format!("start {}", cx.id()));
            std::future::ready(())
        })
        .build()?;
    host.run_with(&Shutdown::on_signals()?).await.into_result()?;
    Ok(())
}
