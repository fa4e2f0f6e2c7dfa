//! [`DeadLetter`]: an entry that was given up, with where it came from and why.
//!
//! On the stream of dead letters it is one entry: a header of our own fields, then the original fields exactly as they
//! were, duplicates and order included. The header ends with the number of original fields, and everything is read by
//! position: an original field may have any name, ours included, and is never taken for one of ours.

use bytes::Bytes;

use crate::{ConsumerName, Entry, EntryId, GroupName, StreamKey};

/// The name of the first field of every dead letter; its value is the version of the layout.
pub(crate) const MARKER: &[u8] = b"streamkeeper";
pub(crate) const VERSION: &[u8] = b"1";

/// Why an entry was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadReason {
    /// Its handler rejected it, for this reason.
    Rejected(String),
    /// Its last allowed attempt failed.
    Exhausted {
        /// What the last attempt failed with, where that is known.
        error: Option<String>,
    },
    /// Its attempts were used up by owners that died while they handled it.
    OwnerDied,
    /// Its payload could not be decoded, for this reason.
    Undecodable(String),
}

impl DeadReason {
    /// The code that stands for the reason in a dead letter: `rejected`, `exhausted`, `owner-died` or `undecodable`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Rejected(_) => "rejected",
            Self::Exhausted { .. } => "exhausted",
            Self::OwnerDied => "owner-died",
            Self::Undecodable(_) => "undecodable",
        }
    }

    /// What is known beyond the code.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Rejected(detail) | Self::Undecodable(detail) => Some(detail),
            Self::Exhausted { error } => error.as_deref(),
            Self::OwnerDied => None,
        }
    }

    pub(crate) fn from_parts(code: &[u8], detail: Option<String>) -> Option<Self> {
        match (code, detail) {
            (b"rejected", Some(detail)) => Some(Self::Rejected(detail)),
            (b"exhausted", error) => Some(Self::Exhausted { error }),
            (b"owner-died", None) => Some(Self::OwnerDied),
            (b"undecodable", Some(detail)) => Some(Self::Undecodable(detail)),
            _ => None,
        }
    }
}

/// An entry that was given up, with its provenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The entry as it was: its id on its own stream and all of its fields.
    pub entry: Entry,
    /// The stream it was published to.
    pub stream: StreamKey,
    /// The group that gave it up.
    pub group: GroupName,
    /// The consumer that gave it up.
    pub consumer: ConsumerName,
    /// How often its handler was started.
    pub attempts: u32,
    /// Why it was given up.
    pub reason: DeadReason,
    /// When it was given up, in milliseconds since 1970.
    pub dead_at_ms: u64,
    /// How often it had been sent back from the dead letters before.
    pub redriven: u32,
}

/// An entry is not a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// It does not begin with our marker: somebody else wrote it.
    #[error("entry {id} is not a dead letter: its first field is not `streamkeeper`")]
    Foreign {
        /// The entry.
        id: EntryId,
    },
    /// It was written by a newer version of this library.
    #[error("entry {id} is a dead letter of a layout that this version does not know: upgrade to read it")]
    Version {
        /// The entry.
        id: EntryId,
    },
    /// A field of the header is missing or does not hold what it should.
    #[error("entry {id} is a damaged dead letter: its field `{field}` is missing or out of shape")]
    Field {
        /// The entry.
        id: EntryId,
        /// The field of the header.
        field: &'static str,
    },
    /// The header announces another number of original fields than there are.
    #[error("entry {id} is a damaged dead letter: it has {found} original fields where {announced} were announced")]
    Count {
        /// The entry.
        id: EntryId,
        /// Original fields announced by the header.
        announced: u64,
        /// Original fields found.
        found: u64,
    },
}

impl DeadLetter {
    /// The fields to publish it with. The original fields share the memory of [`entry`](Self::entry).
    pub fn to_fields(&self) -> Vec<(Bytes, Bytes)> {
        let mut fields = Vec::with_capacity(11 + self.entry.fields().len());
        let mut push = |name: &'static [u8], value: Bytes| fields.push((Bytes::from_static(name), value));
        push(MARKER, Bytes::from_static(VERSION));
        push(b"stream", Bytes::copy_from_slice(self.stream.as_bytes()));
        push(b"group", Bytes::copy_from_slice(self.group.as_bytes()));
        push(b"consumer", Bytes::copy_from_slice(self.consumer.as_bytes()));
        push(b"id", Bytes::from(self.entry.id().to_string()));
        push(b"attempts", decimal(self.attempts));
        push(b"reason", Bytes::from_static(self.reason.as_str().as_bytes()));
        if let Some(detail) = self.reason.detail() {
            push(b"detail", Bytes::copy_from_slice(detail.as_bytes()));
        }
        push(b"at", decimal(self.dead_at_ms));
        push(b"redriven", decimal(self.redriven));
        push(b"fields", decimal(self.entry.fields().len()));
        fields.extend(self.entry.fields_bytes());
        fields
    }

    /// Reads a dead letter back from the entry it was published as.
    ///
    /// # Errors
    /// [`DeadLetterError`] when the entry is somebody else's, of a newer layout, or damaged.
    pub fn from_entry(entry: &Entry) -> Result<Self, DeadLetterError> {
        let id = entry.id();
        let mut header = Header { id, fields: entry.fields() };
        match header.fields.next() {
            Some((MARKER, VERSION)) => {}
            Some((MARKER, _)) => return Err(DeadLetterError::Version { id }),
            _ => return Err(DeadLetterError::Foreign { id }),
        }
        let stream = header.read("stream", |value| StreamKey::new(value).ok())?;
        let group = header.read("group", |value| GroupName::new(value).ok())?;
        let consumer = header.read("consumer", |value| ConsumerName::new(value).ok())?;
        let source = header.read("id", |value| EntryId::parse(value).ok())?;
        let attempts = header.read("attempts", |value| number(value)?.try_into().ok())?;
        let code = header.read("reason", Some)?;
        let detail = header.read_if("detail", |value| String::from_utf8(value.to_vec()).ok())?;
        let reason = DeadReason::from_parts(code, detail).ok_or(DeadLetterError::Field { id, field: "reason" })?;
        let dead_at_ms = header.read("at", number)?;
        let redriven = header.read("redriven", |value| number(value)?.try_into().ok())?;
        let announced = header.read("fields", number)?;
        let found = header.fields.len() as u64;
        if announced != found {
            return Err(DeadLetterError::Count { id, announced, found });
        }
        // The original fields are a part of an entry that fits, so they fit.
        let entry = Entry::new(source, header.fields).map_err(|_| DeadLetterError::Field { id, field: "fields" })?;
        Ok(Self { entry, stream, group, consumer, attempts, reason, dead_at_ms, redriven })
    }
}

/// The fields of a header that have not been read yet.
struct Header<'a> {
    id: EntryId,
    fields: crate::Fields<'a>,
}

impl<'a> Header<'a> {
    /// The next field, which must be called `field` and hold what `parse` accepts.
    fn read<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<T, DeadLetterError> {
        self.fields
            .next()
            .filter(|(name, _)| *name == field.as_bytes())
            .and_then(|(_, value)| parse(value))
            .ok_or(DeadLetterError::Field { id: self.id, field })
    }

    /// Like [`read`](Self::read), for a field that need not be there.
    fn read_if<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&'a [u8]) -> Option<T>,
    ) -> Result<Option<T>, DeadLetterError> {
        match self.fields.clone().next() {
            Some((name, _)) if name == field.as_bytes() => self.read(field, parse).map(Some),
            _ => Ok(None),
        }
    }
}

pub(crate) fn decimal(number: impl itoa::Integer) -> Bytes {
    Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes())
}

/// A decimal number as [`decimal`] writes it: digits alone, and no leading zero, so that every number has one text.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    match text {
        [] | [b'0', _, ..] => None,
        _ => text.iter().try_fold(0_u64, |value, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn letter(pairs: &Pairs, reason: DeadReason) -> DeadLetter {
        DeadLetter {
            entry: Entry::new(EntryId::new(7, 1), pairs.iter().map(|(name, value)| (name, value))).unwrap(),
            stream: StreamKey::new("orders").unwrap(),
            group: GroupName::new("billing").unwrap(),
            consumer: ConsumerName::new("host-1").unwrap(),
            attempts: 8,
            reason,
            dead_at_ms: 1_700_000_000_000,
            redriven: 0,
        }
    }

    fn published(letter: &DeadLetter) -> Entry {
        Entry::new(EntryId::new(99, 0), letter.to_fields()).unwrap()
    }

    #[test]
    fn the_layout_is_this_one() {
        let pairs = vec![(b"z".to_vec(), b"1".to_vec()), (b"stream".to_vec(), b"mine".to_vec()), (vec![], vec![])];
        let text: Vec<String> = letter(&pairs, DeadReason::Rejected("no such order".to_owned()))
            .to_fields()
            .iter()
            .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
            .collect();
        assert_eq!(
            text,
            [
                "streamkeeper=1",
                "stream=orders",
                "group=billing",
                "consumer=host-1",
                "id=7-1",
                "attempts=8",
                "reason=rejected",
                "detail=no such order",
                "at=1700000000000",
                "redriven=0",
                "fields=3",
                "z=1",
                "stream=mine",
                "=",
            ]
        );
    }

    #[test]
    fn what_is_not_a_whole_dead_letter_is_refused() {
        let id = EntryId::new(99, 0);
        let foreign = Entry::new(id, [("data", "{}")]).unwrap();
        assert_eq!(DeadLetter::from_entry(&foreign), Err(DeadLetterError::Foreign { id }));
        let newer = Entry::new(id, [("streamkeeper", "2")]).unwrap();
        assert_eq!(DeadLetter::from_entry(&newer), Err(DeadLetterError::Version { id }));
        let whole = letter(&vec![(b"a".to_vec(), b"b".to_vec())], DeadReason::OwnerDied).to_fields();
        for kept in 1..whole.len() {
            let cut = Entry::new(id, whole[..kept].iter().cloned()).unwrap();
            assert!(DeadLetter::from_entry(&cut).is_err(), "{kept} of {} fields", whole.len());
        }
        let mut longer = whole;
        longer.push((Bytes::from_static(b"extra"), Bytes::new()));
        let error = DeadLetter::from_entry(&Entry::new(id, longer).unwrap()).unwrap_err();
        assert_eq!(error, DeadLetterError::Count { id, announced: 1, found: 2 });
    }

    #[test]
    fn a_detail_that_is_empty_is_not_one_that_is_missing() {
        for reason in [DeadReason::Exhausted { error: None }, DeadReason::Exhausted { error: Some(String::new()) }] {
            let letter = letter(&Vec::new(), reason);
            assert_eq!(DeadLetter::from_entry(&published(&letter)), Ok(letter));
        }
    }

    /// Names as users choose them, among them ours.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        const OURS: [&str; 10] =
            ["streamkeeper", "stream", "group", "consumer", "id", "attempts", "reason", "detail", "at", "fields"];
        prop_oneof![
            proptest::sample::select(&OURS[..]).prop_map(|name| name.as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
        ]
    }

    fn pairs() -> impl Strategy<Value = Pairs> {
        proptest::collection::vec((names(), proptest::collection::vec(any::<u8>(), 0..12)), 0..16)
    }

    fn reasons() -> impl Strategy<Value = DeadReason> {
        prop_oneof![
            ".*".prop_map(DeadReason::Rejected),
            proptest::option::of(".*").prop_map(|error| DeadReason::Exhausted { error }),
            Just(DeadReason::OwnerDied),
            ".*".prop_map(DeadReason::Undecodable),
        ]
    }

    fn name_bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 1..10)
    }

    proptest! {
        #[test]
        fn letters_round_trip_whatever_the_fields_are_called(
            pairs in pairs(),
            reason in reasons(),
            (stream, group, consumer) in (name_bytes(), name_bytes(), name_bytes()),
            (ms, seq, attempts, dead_at_ms, redriven) in any::<(u64, u64, u32, u64, u32)>(),
        ) {
            let letter = DeadLetter {
                entry: Entry::new(EntryId::new(ms, seq), pairs.iter().map(|(name, value)| (name, value))).unwrap(),
                stream: StreamKey::new(stream).unwrap(),
                group: GroupName::new(group).unwrap(),
                consumer: ConsumerName::new(consumer).unwrap(),
                attempts,
                reason,
                dead_at_ms,
                redriven,
            };
            let read = DeadLetter::from_entry(&published(&letter)).unwrap();
            prop_assert!(read.entry.fields().eq(pairs.iter().map(|(name, value)| (&name[..], &value[..]))));
            prop_assert_eq!(read, letter);
        }

        /// Also a dead letter of a dead letter, which a group that reads the dead letters may write.
        #[test]
        fn letters_nest(pairs in pairs(), inner in reasons(), outer in reasons()) {
            let inner = letter(&pairs, inner);
            let mut outer = letter(&Vec::new(), outer);
            outer.entry = published(&inner);
            let read = DeadLetter::from_entry(&published(&outer)).unwrap();
            prop_assert_eq!(DeadLetter::from_entry(&read.entry), Ok(inner));
        }

        /// Reading any fields never panics, and what is read is written again as it was.
        #[test]
        fn damaged_letters_are_refused_or_read_exactly(
            pairs in pairs(),
            reason in reasons(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), names(), 0_u8..4), 0..4),
        ) {
            let mut fields = letter(&pairs, reason).to_fields();
            for (at, bytes, change) in changes {
                if fields.is_empty() {
                    break;
                }
                let at = at.index(fields.len());
                match change {
                    0 => fields[at].0 = bytes.into(),
                    1 => fields[at].1 = bytes.into(),
                    2 => drop(fields.remove(at)),
                    _ => fields.insert(at, (bytes.into(), Bytes::new())),
                }
            }
            let entry = Entry::new(EntryId::new(1, 0), fields.iter().cloned()).unwrap();
            if let Ok(read) = DeadLetter::from_entry(&entry) {
                // An id may be written without its second number: that one text is not kept.
                let rewritten = Entry::new(entry.id(), read.to_fields()).unwrap();
                prop_assert_eq!(DeadLetter::from_entry(&rewritten), Ok(read));
            }
        }

        #[test]
        fn numbers_have_one_text(text in "[0-9]{0,4}|.{0,4}", value: u64) {
            prop_assert_eq!(number(&decimal(value)), Some(value));
            if let Some(value) = number(text.as_bytes()) {
                prop_assert_eq!(&decimal(value)[..], text.as_bytes());
            }
        }
    }
}
