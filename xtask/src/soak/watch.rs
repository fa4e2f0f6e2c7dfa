//! The watcher: how far the group has come, what is trimmed, which letters there are and where they went, as the servers
//! say it while all goes on.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use stream_redis::{Request, Value};
use stream_testkit::history::{Fate, Reason, What};
use streamkeeper::maint::{DeadLetters, LetterContent};
use streamkeeper::{Client, DeadLetter, DeadReason, EntryId, StreamKey};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::log::Log;
use super::plan::Message;
use super::{LETTERS, NAMES};
use crate::Failure;
use crate::asked::{Asked, State, entry_of};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: usize = 1_000;
/// Beside the files of what is cured: when the letters were last looked at to their end, in milliseconds since 1970.
pub(super) const LOOKED: &str = "looked";

/// Looks at the servers, again and again.
#[derive(Debug)]
pub(crate) struct Watcher {
    asked: Vec<Asked>,
    client: Client,
    log: Log,
    cured: PathBuf,
    /// Whether what was seen may be lost by a failover.
    replicated: bool,
    trail: Option<EntryId>,
    letters: Option<EntryId>,
    seen: HashSet<(EntryId, u64)>,
}

impl Watcher {
    pub(crate) fn new(addresses: Vec<String>, client: Client, log: Log, cured: PathBuf, replicated: bool) -> Self {
        let asked = addresses.into_iter().map(|address| Asked::new(address, NAMES)).collect();
        Self { asked, client, log, cured, replicated, trail: None, letters: None, seen: HashSet::new() }
    }

    /// Watches until `over`; what is seen of the group goes to `state` as well.
    pub(crate) async fn run(mut self, state: watch::Sender<Option<State>>, over: watch::Receiver<bool>) -> Self {
        while !*over.borrow() {
            let seen = timeout(PATIENCE, self.look()).await.ok().flatten();
            state.send_replace(seen.map(|(_, seen)| seen));
            // What fails here is looked at again.
            let _ = timeout(PATIENCE, self.letters()).await;
            let _ = timeout(PATIENCE, self.trail()).await;
            sleep(PAUSE).await;
        }
        self
    }

    /// Reads the rest of what was sent back.
    ///
    /// # Errors
    /// It cannot be read to the end, without which nothing can be judged.
    pub(crate) async fn finish(mut self) -> Result<(), Failure> {
        for _ in 0..100 {
            let before = self.trail;
            timeout(PATIENCE, self.trail()).await??;
            if self.trail == before && self.is_replicated().await {
                return Ok(());
            }
        }
        Err("the trail of what was sent back cannot be read to its end".into())
    }

    /// Where the group stands, and who says so; written down.
    async fn look(&self) -> Option<(Asked, State)> {
        for asked in &self.asked {
            let Some(state) = asked.state().await else { continue };
            // With nothing pending, all that was delivered is done with.
            let done = state.oldest_pending.map_or(Some(state.last_delivered), EntryId::predecessor);
            if let Some(entry) = done {
                self.log.write(What::DoneUpTo { entry });
            }
            if let Some(entry) = state.first.or_else(|| state.last_published.successor()) {
                self.log.write(What::TrimmedBelow { entry });
            }
            return Some((asked.clone(), state));
        }
        None
    }

    /// Cures what is in the letters, so that it is handled when it is sent back.
    async fn letters(&mut self) -> Result<(), Failure> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let key = StreamKey::new(LETTERS)?;
        let connection = self.client.connector().connect(&key).await?;
        let from = self.letters.map_or_else(|| "-".to_owned(), |last| format!("({last}"));
        let page = Request::new("XRANGE").key(&key).arg(from).arg("+").arg("COUNT").arg(PAGE.to_string());
        let Value::Array(page) = connection.call(&page).await? else { return Ok(()) };
        for value in &page {
            let entry = entry_of(value)?;
            if let Ok(letter) = DeadLetter::from_entry(&entry)
                && let DeadReason::Exhausted { .. } = letter.reason
                && let Ok(message) = serde_json::from_slice::<Message>(letter.entry.get("data").unwrap_or_default())
            {
                let number = message.number;
                self.log.write(What::Cured { number });
                std::fs::write(self.cured.join(number.to_string()), [])?;
            }
            self.letters = Some(entry.id());
        }
        if page.len() < PAGE {
            std::fs::write(self.cured.join(LOOKED), since_1970.as_millis().to_string())?;
        }
        Ok(())
    }

    /// Writes down which letters went back, and as what.
    async fn trail(&mut self) -> Result<(), Failure> {
        let lines = DeadLetters::new(&self.client, LETTERS)?.trail(self.trail, 1_000).await?;
        if lines.is_empty() || !self.is_replicated().await {
            return Ok(());
        }
        for line in lines {
            self.trail = Some(line.at);
            let Some(letter) = line.letter.id else { continue };
            // A re-drive that was cut short sends the same letter twice.
            if self.seen.insert((letter, line.letter.dead_at_ms.unwrap_or(0))) {
                self.log.write(letter_of(letter, &line.letter));
            }
            self.log.write(What::Redriven { letter, entry: line.id, fate: Fate::Handled });
        }
        Ok(())
    }

    /// Whether the replica has all that was there until now.
    async fn is_replicated(&self) -> bool {
        if !self.replicated {
            return true;
        }
        let Ok(key) = StreamKey::new(super::MARK) else { return false };
        let Ok(connection) = self.client.connector().connect(&key).await else { return false };
        if connection.call(&Request::new("SET").key(&key).arg("1")).await.is_err() {
            return false;
        }
        matches!(connection.call(&Request::new("WAIT").int(1).int(1_000)).await, Ok(Value::Int(1..)))
    }
}

fn letter_of(entry: EntryId, letter: &LetterContent) -> What {
    let reason = letter.reason.as_ref().and_then(Reason::of);
    match (reason, letter.attempts, &letter.consumer) {
        (Some(reason), Some(attempts), Some(consumer)) => {
            What::DeadLettered { entry, number: None, attempts, reason, consumer: consumer.to_string() }
        }
        _ => What::Broken { why: format!("the letter of {entry} does not tell where it comes from") },
    }
}
