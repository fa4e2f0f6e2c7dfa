//! [`Redriven`]: where letters went that were sent back.
//!
//! An entry that is sent back has its original fields and nothing else, or its handler would not know it again; so where
//! it comes from cannot travel with it. It is written down beside the dead letters instead, on the stream
//! `DEAD:redriven`: two fields of its own, then what the letter tells but for the original fields.

use bytes::Bytes;
use stream_core::{Entry, EntryId, LetterContent, StreamKey};
use stream_redis::Error;
use stream_redis::command::{Trim, XAdd, XRange};

use super::DeadLetters;

/// About how many letters the trail remembers.
const REMEMBERED: u64 = 10_000;

/// What was sent back, and as what.
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
/// use stream_maint::{DeadLetters, Redrive};
/// let mut dead = DeadLetters::new(&client, "orders:dead")?;
/// dead.redrive(&Redrive::new()).await?;
/// let trail = dead.trail(None, 10).await?;
/// assert_eq!((trail[0].to.to_string(), trail[0].letter.id), ("orders".to_owned(), Some(EntryId::new(1, 0))));
/// # assert_eq!(trail[0].id, server.entries("orders")[1].id());
/// assert!(dead.trail(Some(trail[0].at), 10).await?.is_empty()); // what came after that line
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redriven {
    /// Where this line lies on the trail: to go on after it.
    pub at: EntryId,
    /// The stream it was sent to.
    pub to: StreamKey,
    /// Its id there.
    pub id: EntryId,
    /// The letter it was, without its fields; [`redriven`](LetterContent::redriven) counts this time.
    pub letter: LetterContent,
}

impl DeadLetters {
    /// Up to `count` lines of the trail after the line `after`, oldest first: what was sent back, and as what. Remembers
    /// about the last 10,000. A line may be there twice, when its answer was lost. It is missing where the server did not take it
    /// within three tries, and for an entry whose re-drive died before, whose letter is sent back again.
    ///
    /// This is how the entry that a letter holds is followed back: when it dies again, the new letter names the id that it
    /// was sent back as, and the line with that [`id`](Redriven::id) tells what it was before.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = stream_testkit::MemoryServer::new().client();
    /// let mut dead = stream_maint::DeadLetters::new(&client, "orders:dead")?;
    /// for line in dead.trail(None, 100).await? {
    ///     println!("{} is {:?} of {:?}, given up by {:?}", line.id, line.letter.id, line.letter.stream, line.letter.group);
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Errors
    /// Of the connection or the server.
    pub async fn trail(&mut self, after: Option<EntryId>, count: usize) -> Result<Vec<Redriven>, Error> {
        let Some(from) = after.map_or(Some(EntryId::ZERO), EntryId::successor) else { return Ok(Vec::new()) };
        let key = trail_key(self.key());
        let entries = self.run_at(&key.clone(), &[XRange { key, from, to: EntryId::MAX, count }]).await?;
        let entries = entries.into_iter().next().transpose()?.unwrap_or_default();
        Ok(entries.iter().filter_map(line).collect())
    }

    /// Writes down what was sent back.
    pub(super) async fn remember(&mut self, sent: &[(&LetterContent, &StreamKey, EntryId)]) -> Result<(), Error> {
        let key = trail_key(self.key());
        let lines: Vec<_> = sent.iter().map(|(letter, to, id)| write(&key, letter, to, *id)).collect();
        self.run_at(&key, &lines).await?.into_iter().try_for_each(|line| line.map(drop))
    }
}

pub(super) fn trail_key(dead: &StreamKey) -> StreamKey {
    // A name with something after it is not empty.
    StreamKey::new([dead.as_bytes(), b":redriven"].concat()).unwrap_or_else(|_| dead.clone())
}

fn write(key: &StreamKey, letter: &LetterContent, to: &StreamKey, id: EntryId) -> XAdd {
    let mut provenance = letter.clone();
    provenance.redriven = letter.redriven.saturating_add(1);
    provenance.fields.clear();
    let mut fields = vec![
        (Bytes::from_static(b"to"), Bytes::copy_from_slice(to.as_bytes())),
        (Bytes::from_static(b"as"), Bytes::from(id.to_string())),
    ];
    fields.extend(provenance.provenance());
    XAdd { trim: Some(Trim::about(REMEMBERED)), ..XAdd::new(key.clone(), fields) }
}

fn line(entry: &Entry) -> Option<Redriven> {
    let mut fields = entry.fields();
    let (Some((b"to", to)), Some((b"as", id))) = (fields.next(), fields.next()) else { return None };
    let letter = LetterContent::from_provenance(fields).ok()?;
    Some(Redriven { at: entry.id(), to: StreamKey::new(to).ok()?, id: EntryId::parse(id).ok()?, letter })
}
