//! [`Entry`]: one stream entry, its fields in the server's order.
//!
//! Fields are bytes: neither names nor values need be UTF-8, a name may occur twice, and both may be empty. An entry is
//! one slice of shared memory and a list of offsets into it, so handing it around copies nothing and an entry of at most
//! two fields allocates nothing.

use std::fmt;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use crate::EntryId;

/// Where one field lies in the body of an [`Entry`], in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpan {
    /// Start of the name.
    pub name_start: u32,
    /// End of the name, exclusive.
    pub name_end: u32,
    /// Start of the value.
    pub value_start: u32,
    /// End of the value, exclusive.
    pub value_end: u32,
}

/// One entry of a stream: its id and its fields, as the publisher gave them.
///
/// ```
/// use stream_core::{Entry, EntryId};
/// let entry = Entry::new(EntryId::new(1, 0), [("a", "1"), ("a", "2"), ("", "")])?;
/// assert_eq!(entry.get("a"), Some(&b"1"[..]));
/// assert_eq!(entry.fields().count(), 3);
/// # Ok::<(), stream_core::TooLarge>(())
/// ```
#[derive(Clone)]
pub struct Entry {
    id: EntryId,
    body: Bytes,
    spans: SmallVec<[FieldSpan; 2]>,
}

/// An entry's body does not fit 4 GiB, the largest that is supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the entry's fields take more than 4 GiB together")]
pub struct TooLarge(());

impl Entry {
    /// An entry with a copy of `fields`, in their order.
    ///
    /// # Errors
    /// [`TooLarge`] when names and values take more than 4 GiB together.
    pub fn new<N, V>(id: EntryId, fields: impl IntoIterator<Item = (N, V)>) -> Result<Self, TooLarge>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut body = BytesMut::new();
        let mut spans = SmallVec::new();
        let mut push = |part: &[u8]| -> Result<(u32, u32), TooLarge> {
            let start = offset(body.len())?;
            body.extend_from_slice(part);
            Ok((start, offset(body.len())?))
        };
        for (name, value) in fields {
            let (name_start, name_end) = push(name.as_ref())?;
            let (value_start, value_end) = push(value.as_ref())?;
            spans.push(FieldSpan { name_start, name_end, value_start, value_end });
        }
        Ok(Self { id, body: body.freeze(), spans })
    }

    /// An entry over memory that a decoder already holds: `spans` are offsets into `body`.
    ///
    /// # Panics
    /// When a span does not lie within `body`: that is a bug of the decoder.
    pub fn from_parts(id: EntryId, body: Bytes, spans: &[FieldSpan]) -> Self {
        let spans: SmallVec<[FieldSpan; 2]> = SmallVec::from_slice(spans);
        for span in &spans {
            assert!(
                span.name_start <= span.name_end
                    && span.value_start <= span.value_end
                    && span.name_end as usize <= body.len()
                    && span.value_end as usize <= body.len(),
                "a field's span lies within the entry's body"
            );
        }
        Self { id, body, spans }
    }

    /// The id.
    pub fn id(&self) -> EntryId {
        self.id
    }

    /// The fields in the server's order, duplicates included.
    pub fn fields(&self) -> Fields<'_> {
        Fields { entry: self, next: 0 }
    }

    /// The value of the first field called `name`.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        self.fields().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// Like [`get`](Self::get), as shared memory: no copy, but it keeps the memory of the entry alive.
    pub fn get_bytes(&self, name: impl AsRef<[u8]>) -> Option<Bytes> {
        let name = name.as_ref();
        let span = self.spans.iter().find(|span| self.name(span) == name)?;
        Some(self.body.slice(span.value_start as usize..span.value_end as usize))
    }

    /// Like [`fields`](Self::fields), as shared memory: no copy, but each part keeps the memory of the entry alive.
    pub fn fields_bytes(&self) -> impl ExactSizeIterator<Item = (Bytes, Bytes)> {
        let part = |start: u32, end: u32| self.body.slice(start as usize..end as usize);
        self.spans
            .iter()
            .map(move |span| (part(span.name_start, span.name_end), part(span.value_start, span.value_end)))
    }

    /// Bytes that the entry's body takes in memory, the framing between fields included.
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// Copies the body out of memory that it may share with a whole batch of entries, so that a slow entry does not keep
    /// the batch's buffer alive.
    pub fn detach(&mut self) {
        self.body = Bytes::copy_from_slice(&self.body);
    }

    fn name(&self, span: &FieldSpan) -> &[u8] {
        &self.body[span.name_start as usize..span.name_end as usize]
    }
}

impl fmt::Debug for Entry {
    /// Names the id and the number of fields only: payloads do not belong in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("id", &self.id).field("fields", &self.spans.len()).finish_non_exhaustive()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.fields().eq(other.fields())
    }
}

impl Eq for Entry {}

/// The fields of an [`Entry`], made by [`Entry::fields`].
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    entry: &'a Entry,
    next: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let span = self.entry.spans.get(self.next)?;
        self.next += 1;
        Some((self.entry.name(span), &self.entry.body[span.value_start as usize..span.value_end as usize]))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.entry.spans.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

fn offset(length: usize) -> Result<u32, TooLarge> {
    u32::try_from(length).map_err(|_| TooLarge(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_duplicates_and_emptiness_are_kept() {
        let pairs: [(&[u8], &[u8]); 4] = [(b"z", b"1"), (b"a", b"\xff"), (b"z", b"2"), (b"", b"")];
        let entry = Entry::new(EntryId::new(1, 2), pairs).unwrap();
        assert!(entry.fields().eq(pairs));
        assert_eq!(entry.get("z"), Some(&b"1"[..]));
        assert_eq!(entry.get_bytes("a").as_deref(), Some(&b"\xff"[..]));
        assert_eq!(entry.get("none"), None);
    }

    #[test]
    fn detached_entries_are_equal_and_own_their_memory() {
        let batch = Bytes::from_static(b"....name:value....");
        let span = FieldSpan { name_start: 0, name_end: 4, value_start: 5, value_end: 10 };
        let mut entry = Entry::from_parts(EntryId::new(1, 0), batch.slice(4..14), &[span]);
        let before = entry.clone();
        entry.detach();
        assert_eq!(entry, before);
        assert_eq!(entry.get("name"), Some(&b"value"[..]));
    }

    #[test]
    fn debug_shows_no_payload() {
        let entry = Entry::new(EntryId::new(1, 0), [("card", "4111")]).unwrap();
        assert!(!format!("{entry:?}").contains("4111"));
    }
}
