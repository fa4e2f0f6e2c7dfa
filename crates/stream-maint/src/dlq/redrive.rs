//! [`Redrive`]: sending dead letters back.
//!
//! Batch by batch: the entries are added to their streams, where they went is written down, the letters are deleted. What
//! was added before a crash and not deleted is added again by the next run: at most one batch twice for each crash, none
//! lost.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use stream_core::{LetterContent, LetterError, StreamKey};
use stream_redis::command::XAdd;
use stream_redis::{Error, ErrorKind};

use super::store::{LetterId, Span, Walk};
use super::{DeadLetters, LetterFilter, PAGE, meant};

/// Which dead letters are sent back, where to, and how fast. By default all, to the streams they came from, as fast as the
/// server takes them.
///
/// ```
/// use stream_core::StreamKey;
/// use stream_maint::{LetterFilter, Redrive};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redrive = Redrive::new()
///     .filter(LetterFilter::all().reason("exhausted"))
///     .to(StreamKey::new("orders:retry")?) // instead of the original
///     .per_second(50) // so that handlers keep up
///     .at_most(1000);
/// # let _ = redrive;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "describes only; pass it to `DeadLetters::redrive`"]
pub struct Redrive {
    filter: LetterFilter,
    to: Option<StreamKey>,
    per_second: Option<u32>,
    at_most: u64,
    batch: usize,
    make_streams: bool,
}

impl Default for Redrive {
    fn default() -> Self {
        Self {
            filter: LetterFilter::all(),
            to: None,
            per_second: None,
            at_most: u64::MAX,
            batch: PAGE,
            make_streams: false,
        }
    }
}

impl Redrive {
    /// All letters, to where they came from.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only these letters.
    pub fn filter(mut self, filter: LetterFilter) -> Self {
        self.filter = filter;
        self
    }

    /// To this stream instead of the original ones.
    pub fn to(mut self, stream: StreamKey) -> Self {
        self.to = Some(stream);
        self
    }

    /// At most this many in a second, on average; 0 counts as 1. Without it, handlers may get all at once.
    pub fn per_second(mut self, entries: u32) -> Self {
        self.per_second = Some(entries.max(1));
        self
    }

    /// At most this many in all.
    pub fn at_most(mut self, entries: u64) -> Self {
        self.at_most = entries;
        self
    }

    /// Entries added before their letters are deleted: how many a crash can send twice. 1 to 100, by default 100; smaller
    /// is slower.
    pub fn batch(mut self, entries: usize) -> Self {
        self.batch = entries.clamp(1, PAGE);
        self
    }

    /// Creates streams that do not exist. By default their letters stay: a stream that is gone has no group, and one that
    /// is made for it later would start after what was sent back.
    pub fn make_streams(mut self) -> Self {
        self.make_streams = true;
        self
    }

    fn target<'a>(&'a self, letter: &'a LetterContent) -> Option<&'a StreamKey> {
        self.to.as_ref().or(letter.stream.as_ref())
    }
}

/// What [`DeadLetters::redrive`] would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedrivePlan {
    /// Letters that would be sent back, by the stream they would go to.
    pub to: BTreeMap<StreamKey, u64>,
    /// Letters that do not tell the stream they came from: they would stay, unless [`Redrive::to`] names one.
    pub no_stream: u64,
    /// Letters that do not match.
    pub skipped: u64,
    /// Letters that cannot be read, or have no fields to be sent: they stay.
    pub unreadable: u64,
}

/// What was sent back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RedriveReport {
    /// Letters that were sent back and are gone from the dead letters.
    pub redriven: u64,
    /// Letters that do not match.
    pub skipped: u64,
    /// Letters that cannot be read, or have no fields to be sent: they stay.
    pub unreadable: u64,
    /// Letters whose stream does not exist, or that do not tell it: they stay.
    pub no_stream: u64,
    /// Letters whose stream takes none of them: its key holds something else, or this user may not write it. They stay, and
    /// the others go on.
    pub refused: u64,
    /// Letters that somebody else deleted while they were sent back: those entries may be there twice.
    pub deleted_meanwhile: u64,
}

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
    /// Of the connection or the server.
    pub async fn plan_redrive(&mut self, redrive: &Redrive) -> Result<RedrivePlan, Error> {
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
    /// on the [`trail`](Self::trail).
    ///
    /// Can be stopped at any time, also by dropping the future, and started again: whoever was stopped in the middle of a
    /// batch leaves up to a batch of entries that are sent again. On a stream, letters that arrive meanwhile are left alone.
    ///
    /// # Errors
    /// Of the connection or the server, for example that its memory is full. What was sent back until then is done; call
    /// it again to go on.
    pub async fn redrive(&mut self, redrive: &Redrive) -> Result<RedriveReport, Error> {
        let mut report = RedriveReport::default();
        let mut left = redrive.at_most;
        let mut walk = self.store.walk(&mut self.link, Span::Present).await?;
        loop {
            let chosen = self.choose(redrive, &mut walk, &mut left, &mut report).await?;
            let sent = chosen.len();
            if sent == 0 {
                break;
            }
            self.send_back(redrive, chosen, &mut report).await?;
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

    /// Deletes what is left of letters whose deletion was cut short: they were sent back, or purged, already.
    async fn finish(&mut self, walk: &mut Walk) -> Result<(), Error> {
        if !walk.half_deleted.is_empty() {
            let ids = std::mem::take(&mut walk.half_deleted);
            self.store.delete(&mut self.link, ids).await?;
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
                    Err(error) if matches!(error.kind(), ErrorKind::WrongType | ErrorKind::NoPermission) => {
                        report.refused += 1;
                        refused = Some(error);
                    }
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            if let Some(error) = refused {
                tracing::warn!(to = %target, %error, "dead letters were not taken back and stay");
            }
            // A trail that cannot be written, for example by an old permission, must not make letters go back twice.
            if let Err(error) = self.remember(&sent).await {
                tracing::warn!(%error, "where dead letters went could not be written down");
            }
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
}
