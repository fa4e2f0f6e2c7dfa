//! Cleans up in a process of its own, with the shortest limits that are accepted, once a second: `test-cleaner URL STREAM
//! GROUP JOURNAL`. Groups of any name may go. Writes down what it removed, a line each. Ends at SIGTERM.

use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use streamkeeper::maint::{ConsumerCleaner, ConsumerPolicy, GroupCleaner, GroupPolicy, NamePattern, Trimmer};
use streamkeeper::{Client, shutdown_signal};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LIMIT: Duration = Duration::from_mins(1);
const EVERY: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, stream, group, journal] = args.as_slice() else {
        return Err("usage: test-cleaner URL STREAM GROUP JOURNAL".into());
    };
    let journal = Mutex::new(std::fs::File::create(journal)?);
    let note = |line: String| {
        let mut journal = journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        journal.write_all(format!("{line}\n").as_bytes()).expect("the journal can be written");
    };
    let client = Client::open(url)?;
    let mut consumers = ConsumerCleaner::new(&client, stream, group, ConsumerPolicy::new(LIMIT)?)?.every(EVERY);
    let mut groups = GroupCleaner::new(&client, stream, GroupPolicy::new(NamePattern::new("*")?, LIMIT)?)?.every(EVERY);
    let mut trimmer = Trimmer::builder(&client).stream(stream).trim_every(EVERY).build()?;
    let work = async {
        tokio::join!(
            consumers.run_every(std::future::pending::<()>(), |result| match result {
                Ok(Some(report)) => {
                    report.removed.iter().for_each(|name| note(format!("consumer {name}")));
                    note("run".to_owned());
                }
                Ok(None) => {}
                Err(error) => note(format!("error {error}")),
            }),
            groups.run_every(std::future::pending::<()>(), |result| match result {
                Ok(Some(report)) => report.removed.iter().for_each(|name| note(format!("group {name}"))),
                Ok(None) => {}
                Err(error) => note(format!("error {error}")),
            }),
            trimmer.run_every(std::future::pending::<()>(), |result| {
                if let Err(error) = result {
                    note(format!("error {error}"));
                }
            }),
        );
    };
    tokio::select! {
        () = work => {}
        () = shutdown_signal()? => {}
    }
    Ok(())
}
