//! The decoder of read replies: a state machine that can stop at any byte and goes on where it stopped.
//!
//! What must stay true: each byte is looked at once (of an entry that is cut, twice at most), whatever the pieces it
//! arrives in, and bodies are skipped, not looked at; nothing is allocated because a length says so, only for bytes that are there; what is no reply to a read is
//! refused with its types and lengths, never with its bytes. Both protocols are accepted by content, so the machine
//! needs no setting.

use stream_core::{EntryId, FieldSpan};

use super::head::{Head, Malformed, PartialHead};
use super::quick::Run;

/// An error, or another string without a length, that is longer is noise.
const MAX_LINE: usize = 64 << 10;
/// Two 64-bit numbers and a hyphen have 41 digits.
pub(super) const MAX_ID: usize = 64;
/// Room for the fields of an entry that is kept for the next one.
const KEPT_SPANS: usize = 1 << 12;

/// What the bytes so far came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The bytes are used up in the middle of something.
    NeedMore,
    /// Entries that are there as a whole, in the run, up to `end` of the buffer; the first ends at `first`.
    Run { first: usize, end: usize },
    /// An entry: its fields are at `body` of the buffer and [`Decoder::spans`] tells where in it.
    Entry { id: EntryId, body: std::ops::Range<usize> },
    /// A pending entry whose fields are gone.
    Deleted(EntryId),
    /// The reply is complete.
    Complete { total: usize },
    /// The reply is an error, at this place of the buffer.
    Error { text: std::ops::Range<usize> },
}

/// What a string of the reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Id,
    Name,
    Value,
    Error,
    Skipped,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Before a reply.
    Reply,
    /// Before the pair of key and entries.
    Stream,
    /// Before the list of entries.
    Entries,
    /// Before an entry, or at the end of their list.
    Entry,
    /// Before the fields of an entry.
    Fields,
    /// Before a string.
    String(Part),
    /// In a string of known length.
    Bulk(Part, usize),
    /// In a string that ends with its line.
    Line(Part),
    /// Before something that is not wanted; then the entry is complete, or (after a push) the next reply comes.
    Skip(Then),
    /// In a string that is not wanted, with this many bytes to go.
    SkipBulk(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    EntryDone,
    NextReply,
}

#[derive(Debug)]
pub(super) struct Decoder {
    state: State,
    head: PartialHead,
    /// The first byte that was not looked at.
    position: usize,
    /// Where the fields of the entry begin,
    start: usize,
    /// and where they end, once they do.
    end: usize,
    /// Where the line begins that is being read,
    line_start: usize,
    /// and whether its carriage return was the byte before.
    line_ends: bool,
    id: EntryId,
    deleted: bool,
    spans: Vec<FieldSpan>,
    name: (u32, u32),
    entries_left: i64,
    /// Whether the entry at hand is known not to be there as a whole, or to be unusual.
    cut: bool,
    fields_left: i64,
    extras: u64,
    skip: u64,
    then: Then,
    total: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            state: State::Reply,
            head: PartialHead::default(),
            position: 0,
            start: 0,
            end: 0,
            line_start: 0,
            line_ends: false,
            id: EntryId::ZERO,
            deleted: false,
            spans: Vec::new(),
            name: (0, 0),
            entries_left: 0,
            cut: false,
            fields_left: 0,
            extras: 0,
            skip: 0,
            then: Then::NextReply,
            total: 0,
        }
    }

    /// Where the fields of the entry just decoded lie, from the start of its body.
    pub(super) fn spans(&self) -> &[FieldSpan] {
        &self.spans
    }

    /// Whether part of a reply has arrived.
    pub(super) fn in_reply(&self) -> bool {
        !matches!(self.state, State::Reply) || self.head.is_begun()
    }

    /// Whether nothing but the end of the reply is missing.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.state, State::Entry) && self.entries_left == 0
    }

    /// Entries of the present reply so far.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// How many bytes at the front of the buffer are done with.
    pub(super) fn done_with(&self) -> usize {
        self.kept().unwrap_or(self.position)
    }

    /// The caller has dropped this many bytes from the front of the buffer, at most [`done_with`](Self::done_with).
    pub(super) fn dropped(&mut self, count: usize) {
        self.position -= count;
        self.start = self.start.saturating_sub(count);
        self.end = self.end.saturating_sub(count);
        self.line_start = self.line_start.saturating_sub(count);
    }

    /// Goes on in `data`, which is what the step before was given, without what was [`dropped`](Self::dropped), and what came since.
    /// Of entries that are there as a whole, `most` at most are put into the `run`.
    #[inline]
    pub(super) fn step(&mut self, data: &[u8], run: &mut Run, most: usize) -> Result<Event, Malformed> {
        loop {
            match self.state {
                State::Entry => {
                    if self.entries_left == 0 {
                        self.state = State::Reply;
                        return Ok(Event::Complete { total: std::mem::take(&mut self.total) });
                    }
                    // Tried once for each entry, so bytes of one that is cut are looked at twice at most.
                    if !std::mem::take(&mut self.cut) {
                        let left = usize::try_from(self.entries_left).unwrap_or(usize::MAX);
                        if let Some((first, end)) = run.find(data, self.position, most.min(left)) {
                            self.position = end;
                            self.entries_left -= run.len() as i64;
                            self.total += run.len();
                            self.cut = run.len() < most.min(left);
                            return Ok(Event::Run { first, end });
                        }
                    }
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    if head.kind != b'*' || head.number < 2 {
                        return self.malformed("an entry", head);
                    }
                    self.extras = head.number as u64 - 2;
                    self.entries_left -= 1;
                    self.state = State::String(Part::Id);
                }
                State::String(part) => {
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    self.state = match head.kind {
                        b'$' | b'=' if head.number >= 0 => State::Bulk(part, head.number as usize),
                        b'+' => self.begin_line(part),
                        _ => return self.malformed("a string", head),
                    };
                }
                State::Bulk(part, length) => {
                    let end = self.position + length;
                    let Some(line_end) = data.get(end..end + 2) else { return Ok(Event::NeedMore) };
                    if line_end != b"\r\n" {
                        return Err(Malformed(format!("a string of {length} bytes does not end where it says")));
                    }
                    let begin = std::mem::replace(&mut self.position, end + 2);
                    if let Some(event) = self.string(part, data, begin, end)? {
                        return Ok(event);
                    }
                }
                State::Fields => {
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    if self.spans.capacity() > KEPT_SPANS {
                        self.spans = Vec::new();
                    }
                    self.spans.clear();
                    self.start = self.position;
                    self.end = self.position;
                    self.deleted = head.number < 0 || head.kind == b'_';
                    self.fields_left = match head.kind {
                        b'*' if head.number % 2 == 0 => head.number / 2,
                        b'%' => head.number,
                        b'*' | b'$' | b'_' if self.deleted => 0,
                        _ => return self.malformed("the fields of an entry", head),
                    };
                    if self.fields_left > 0 {
                        self.state = State::String(Part::Name);
                    } else if let Some(event) = self.fields_done() {
                        return Ok(event);
                    }
                }
                State::Reply => {
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    match (head.kind, head.number) {
                        (b'*' | b'%', 0) | (b'*' | b'$', -1) | (b'_', _) => return Ok(Event::Complete { total: 0 }),
                        (b'*', 1) => self.state = State::Stream,
                        (b'%', 1) => self.state = State::String(Part::Key),
                        (b'-', _) => self.state = self.begin_line(Part::Error),
                        (b'!', length) if (0..=MAX_LINE as i64).contains(&length) => {
                            self.state = State::Bulk(Part::Error, length as usize);
                        }
                        (b'>', elements) => {
                            self.skip = elements.max(0) as u64;
                            self.state = State::Skip(Then::NextReply);
                        }
                        _ => return self.malformed("the reply to a read", head),
                    }
                }
                State::Stream => {
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    if head.kind != b'*' || head.number != 2 {
                        return self.malformed("a key and its entries", head);
                    }
                    self.state = State::String(Part::Key);
                }
                State::Entries => {
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    self.entries_left = match head.kind {
                        b'*' => head.number.max(0),
                        b'_' => 0,
                        b'$' if head.number < 0 => 0,
                        _ => return self.malformed("a list of entries", head),
                    };
                    self.state = State::Entry;
                }
                State::Line(part) => {
                    let Some(end) = self.line(data)? else { return Ok(Event::NeedMore) };
                    if let Some(event) = self.string(part, data, self.line_start, end)? {
                        return Ok(event);
                    }
                }
                State::Skip(then) => {
                    if self.skip == 0 {
                        match then {
                            Then::NextReply => self.state = State::Reply,
                            Then::EntryDone => return Ok(self.entry_done()),
                        }
                        continue;
                    }
                    let Some(head) = self.head.read(data, &mut self.position)? else { return Ok(Event::NeedMore) };
                    self.then = then;
                    self.skip_element(head);
                }
                State::SkipBulk(left) => {
                    let used = left.min(data.len() - self.position);
                    self.position += used;
                    if used < left {
                        self.state = State::SkipBulk(left - used);
                        return Ok(Event::NeedMore);
                    }
                    self.state = State::Skip(self.then);
                }
            }
        }
    }

    /// The first byte that is still needed of those that were looked at already.
    fn kept(&self) -> Option<usize> {
        match self.state {
            State::String(Part::Name | Part::Value)
            | State::Bulk(Part::Name | Part::Value, _)
            | State::Line(Part::Name | Part::Value)
            | State::Skip(Then::EntryDone) => Some(self.start),
            State::SkipBulk(_) | State::Line(Part::Skipped) if self.then == Then::EntryDone => Some(self.start),
            State::Line(Part::Key | Part::Id | Part::Error) => Some(self.line_start),
            _ => None,
        }
    }

    fn begin_line(&mut self, part: Part) -> State {
        self.line_start = self.position;
        State::Line(part)
    }

    /// Looks for the end of the line that was begun; where its text ends.
    fn line(&mut self, data: &[u8]) -> Result<Option<usize>, Malformed> {
        for &byte in &data[self.position..] {
            self.position += 1;
            match (byte, std::mem::replace(&mut self.line_ends, byte == b'\r')) {
                // The bytes of a line that is skipped may be gone already; nobody asks where it was.
                (b'\n', true) => return Ok(Some(self.position.saturating_sub(2))),
                (b'\n', false) | (_, true) => return Err(Malformed("a line does not end with CRLF".to_owned())),
                _ if self.position - self.line_start > MAX_LINE => {
                    return Err(Malformed(format!("a line is longer than {MAX_LINE} bytes")));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// A string is complete: `data[begin..end]`.
    #[inline]
    fn string(&mut self, part: Part, data: &[u8], begin: usize, end: usize) -> Result<Option<Event>, Malformed> {
        match part {
            Part::Name => {
                self.name = (self.offset(begin)?, self.offset(end)?);
                self.state = State::String(Part::Value);
            }
            Part::Value => {
                let (name_start, name_end) = self.name;
                let (value_start, value_end) = (self.offset(begin)?, self.offset(end)?);
                self.spans.push(FieldSpan { name_start, name_end, value_start, value_end });
                self.fields_left -= 1;
                if self.fields_left > 0 {
                    self.state = State::String(Part::Name);
                } else {
                    self.end = end;
                    return Ok(self.fields_done());
                }
            }
            Part::Id => {
                let text = &data[begin..end];
                self.id = match EntryId::parse(text) {
                    Ok(id) if text.len() <= MAX_ID => id,
                    _ => return Err(Malformed(format!("expected an entry id, got text({})", text.len()))),
                };
                self.state = State::Fields;
            }
            Part::Key => self.state = State::Entries,
            Part::Error => {
                self.state = State::Reply;
                return Ok(Some(Event::Error { text: begin..end }));
            }
            Part::Skipped => {
                self.skip -= 1;
                self.state = State::Skip(self.then);
            }
        }
        Ok(None)
    }

    #[inline]
    fn fields_done(&mut self) -> Option<Event> {
        if self.extras > 0 {
            // An entry that CLAIM delivers goes on with its idle time and its delivery count.
            self.skip = self.extras;
            self.state = State::Skip(Then::EntryDone);
            return None;
        }
        Some(self.entry_done())
    }

    #[inline]
    fn entry_done(&mut self) -> Event {
        self.state = State::Entry;
        self.total += 1;
        if self.deleted { Event::Deleted(self.id) } else { Event::Entry { id: self.id, body: self.start..self.end } }
    }

    fn skip_element(&mut self, head: Head) {
        let number = head.number.max(0) as u64;
        let then = State::Skip(self.then);
        // Elements of a list are more to skip in place of the list itself; an attribute comes before an element.
        (self.skip, self.state) = match head.kind {
            b'*' | b'~' | b'>' => ((self.skip - 1).saturating_add(number), then),
            b'%' => ((self.skip - 1).saturating_add(2 * number), then),
            b'|' => (self.skip.saturating_add(2 * number), then),
            b'$' | b'=' | b'!' if head.number >= 0 => (self.skip - 1, State::SkipBulk(number as usize + 2)),
            b'+' | b'-' | b',' | b'(' | b'#' => (self.skip, self.begin_line(Part::Skipped)),
            _ => (self.skip - 1, then),
        };
    }

    /// Offset of a place in the buffer from the start of the entry's fields.
    #[inline]
    fn offset(&self, place: usize) -> Result<u32, Malformed> {
        u32::try_from(place - self.start).map_err(|_| Malformed("an entry takes more than 4 GiB".to_owned()))
    }

    #[cold]
    fn malformed<T>(&self, expected: &str, got: Head) -> Result<T, Malformed> {
        Err(Malformed(format!("expected {expected}, got {got} after {} entries", self.total)))
    }
}
