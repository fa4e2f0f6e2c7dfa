//! [`Redrive`]: sending dead letters back.
//!
//! Batch by batch: the entries are added to their streams, where they went is written down, the letters are deleted. What
//! was added before a crash and not deleted is added again by the next run: at most one batch twice for each crash, none
//! lost.

mod builder;
mod report;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use stream_core::{EntryId, LetterContent, LetterError, StreamKey};
use stream_redis::command::XAdd;
use stream_redis::{Error, ErrorKind, Recovery};

use super::store::{LetterId, Span, Walk};
use super::trail::trail_key;
use super::{DeadLetters, meant};

pub use builder::Redrive;
pub use report::{RedrivePlan, RedriveReport};

/// Before the trail is tried again: soon, since a broken connection is what it mostly is, and once more.
const TRAIL_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// A letter that goes back.
struct Chosen {
    id: LetterId,
    letter: LetterContent,
    to: StreamKey,
}

impl DeadLetters {
    /// What [`redrive`](Self::redrive) would do now. Reads the letters and changes nothing.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// let plan = dead.plan_redrive(&stream_maint::Redrive::new()).await?;
    /// for (stream, letters) in &plan.to {
    ///     println!("{letters} would go back to {stream}");
    /// }
    /// assert!(plan.to.is_empty());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the letters are to go [to](Redrive::to) where the letters or their trail are. Of the
    /// connection or the server.
    pub async fn plan_redrive(&mut self, redrive: &Redrive) -> Result<RedrivePlan, Error> {
        self.check_target(redrive)?;
        let mut plan = RedrivePlan::default();
        let (mut report, mut left) = (RedriveReport::default(), redrive.at_most);
        let mut walk = self.store.walk(&mut self.link, Span::Present).await?;
        loop {
            let chosen = self.choose(redrive, &mut walk, &mut left, &mut report).await?;
            if chosen.is_empty() {
                break;
            }
            for chosen in chosen {
                *plan.to.entry(chosen.to).or_default() += 1;
            }
        }
        (plan.no_stream, plan.skipped, plan.unreadable) = (report.no_stream, report.skipped, report.unreadable);
        Ok(plan)
    }

    /// Sends letters back, on a stream oldest first: each becomes a new entry of its stream with exactly the fields of the original, and
    /// attempts start anew. All groups of that stream get it, not only the one that gave it up. Where it came from is kept
    /// on the [`trail`](Self::trail), where the server takes that.
    ///
    /// Can be stopped at any time, also by dropping the future, and started again: whoever was stopped in the middle of a
    /// batch leaves up to a batch of entries that are sent again. On a stream, letters that arrive meanwhile are left alone.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = stream_testkit::MemoryServer::new();
    /// # let client = server.client();
    /// # use stream_core::*;
    /// # let letter = DeadLetter { entry: Entry::new(EntryId::new(1, 0), [("item", "apple")])?, stream: StreamKey::new("orders")?,
    /// #     group: GroupName::new("billing")?, consumer: ConsumerName::new("c")?, attempts: 8,
    /// #     reason: DeadReason::Exhausted { error: None }, dead_at_ms: 1_700_000_000_000, redriven: 0 };
    /// # server.add("orders:dead", letter.to_fields());
    /// # server.add("orders", [("item", "before")]);
    /// use stream_maint::{DeadLetters, LetterFilter, Redrive};
    /// let mut dead = DeadLetters::new(&client, "orders:dead")?;
    /// let failed_too_often = Redrive::new().filter(LetterFilter::all().reason("exhausted")).per_second(100);
    /// assert_eq!(dead.redrive(&failed_too_often).await?.redriven, 1);
    /// assert!(dead.is_empty().await?);
    /// # assert_eq!(server.entries("orders")[1].get("item"), Some(&b"apple"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] as of [`plan_redrive`](Self::plan_redrive). Of the connection or the server, for example that
    /// its memory is full. What was sent back until then is done; call it again to go on.
    pub async fn redrive(&mut self, redrive: &Redrive) -> Result<RedriveReport, Error> {
        self.check_target(redrive)?;
        let mut report = RedriveReport::default();
        let mut left = redrive.at_most;
        let mut walk = self.store.walk(&mut self.link, Span::Present).await?;
        loop {
            let chosen = self.choose(redrive, &mut walk, &mut left, &mut report).await?;
            let sent = chosen.len();
            if sent == 0 {
                break;
            }
            let before = report.redriven;
            self.send_back(redrive, chosen, &mut report).await?;
            // What stays where it is has taken no place of those that can go.
            left = left.saturating_add((before + sent as u64).saturating_sub(report.redriven));
            self.finish(&mut walk).await?;
            let more = left > 0 && (walk.place.is_some() || !walk.page.is_empty());
            if let Some(rate) = redrive.per_second.filter(|_| more) {
                tokio::time::sleep(Duration::from_secs(sent as u64) / rate).await;
            }
        }
        self.finish(&mut walk).await?;
        tracing::info!(key = %self.key(), redriven = report.redriven, "sent dead letters back");
        Ok(report)
    }

    /// An entry among the letters is one that nobody can read, and its letter is deleted.
    fn check_target(&self, redrive: &Redrive) -> Result<(), Error> {
        match &redrive.to {
            Some(to) if to == self.key() || *to == trail_key(self.key()) => {
                let message = "dead letters cannot be sent back to where they or their trail are kept: name another stream \
                               with `Redrive::to`, or leave it out to use the original ones";
                Err(Error::new(ErrorKind::Config, message))
            }
            _ => Ok(()),
        }
    }

    /// The letters of the next batch; none at the end.
    async fn choose(
        &mut self,
        redrive: &Redrive,
        walk: &mut Walk,
        left: &mut u64,
        report: &mut RedriveReport,
    ) -> Result<Vec<Chosen>, Error> {
        let limit = redrive.batch.min(redrive.per_second.map_or(usize::MAX, |rate| rate as usize));
        let mut chosen: Vec<Chosen> = Vec::new();
        // A scan over a set that shrinks meanwhile may give a letter twice, before the first is deleted.
        let mut ids = HashSet::new();
        while chosen.len() < limit && *left > 0 {
            let Some(letter) = self.next(walk).await? else { break };
            if !ids.insert(letter.id.clone()) {
                continue;
            }
            let Some(letter) = meant(letter, &redrive.filter) else {
                report.skipped += 1;
                continue;
            };
            match letter.content {
                // An entry cannot be added without fields.
                Ok(content) if !content.fields.is_empty() => match redrive.target(&content) {
                    Some(to) => {
                        *left -= 1;
                        chosen.push(Chosen { id: letter.id, to: to.clone(), letter: content });
                    }
                    None => report.no_stream += 1,
                },
                Err(LetterError::NoHash) => walk.half_deleted.push(letter.id),
                _ => report.unreadable += 1,
            }
        }
        Ok(chosen)
    }

    /// Forgets what is left of letters whose deletion was cut short: they were sent back, or purged, already. One of them may
    /// just be written, so nothing is deleted.
    async fn finish(&mut self, walk: &mut Walk) -> Result<(), Error> {
        if !walk.half_deleted.is_empty() {
            let ids = std::mem::take(&mut walk.half_deleted);
            self.store.forget(&mut self.link, ids).await?;
        }
        Ok(())
    }

    async fn send_back(
        &mut self,
        redrive: &Redrive,
        chosen: Vec<Chosen>,
        report: &mut RedriveReport,
    ) -> Result<(), Error> {
        let mut targets: BTreeMap<StreamKey, Vec<Chosen>> = BTreeMap::new();
        for chosen in chosen {
            targets.entry(chosen.to.clone()).or_default().push(chosen);
        }
        for (target, chosen) in targets {
            let add = |chosen: &Chosen| XAdd {
                no_make: !redrive.make_streams,
                ..XAdd::new(target.clone(), chosen.letter.fields.clone())
            };
            let adds: Vec<_> = chosen.iter().map(add).collect();
            let added = self.run_at(&target, &adds).await?;
            let (mut sent, mut ids, mut failed, mut refused) = (Vec::new(), Vec::new(), None, None);
            for (chosen, added) in chosen.iter().zip(added) {
                match added {
                    Ok(Some(id)) => {
                        sent.push((&chosen.letter, &target, id));
                        ids.push(chosen.id.clone());
                    }
                    Ok(None) => report.no_stream += 1,
                    // A stream that takes nothing must not hold up the letters of others.
                    Err(error) if is_of_the_stream(error.kind()) => {
                        report.refused += 1;
                        refused = Some(error);
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = refused {
                tracing::warn!(to = %target, %error, "dead letters were not taken back and stay");
            }
            self.leave_trail(&sent).await;
            let count = ids.len() as u64;
            let deleted = if ids.is_empty() { 0 } else { self.store.delete(&mut self.link, ids).await? };
            report.redriven += count;
            report.deleted_meanwhile += count.saturating_sub(deleted);
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes down what was sent back, before its letter is gone. A server that does not answer for now is asked again. One
    /// that takes no trail in the end, for example by an old permission or with a full memory, must not make letters go back
    /// twice; where it is gone for good, the letter cannot be deleted either.
    async fn leave_trail(&mut self, sent: &[(&LetterContent, &StreamKey, EntryId)]) {
        if sent.is_empty() {
            return;
        }
        let mut pauses = TRAIL_PAUSES.into_iter();
        while let Err(error) = self.remember(sent).await {
            let passes = matches!(error.recovery(), Recovery::Retry | Recovery::Reconnect);
            let Some(pause) = pauses.next().filter(|_| passes) else {
                return tracing::warn!(%error, "where dead letters went could not be written down");
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether this is wrong with one stream alone.
fn is_of_the_stream(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WrongType | ErrorKind::NoPermission | ErrorKind::Refused)
}
