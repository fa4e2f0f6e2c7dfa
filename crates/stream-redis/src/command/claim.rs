//! `XAUTOCLAIM` and `XCLAIM`: take over entries that are pending.
//!
//! What must stay true: a deleted entry is told apart from a claimed one on every version. Redis 7.0 and later list
//! deleted ids in a third element; 6.2 leaves nil holes, and with `JUSTID` nothing at all.

use std::time::Duration;

use stream_core::{ConsumerName, Entry, EntryId, GroupName, StreamKey};

use super::{Command, decode, milliseconds};
use crate::{Error, Request, Value};

/// `XAUTOCLAIM`: one step of a walk over the pending list of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XAutoClaim {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// Who takes the entries over.
    pub consumer: ConsumerName,
    /// Only entries that nobody has touched for this long.
    pub min_idle: Duration,
    /// Where to go on: [`AutoClaimed::next`] of the step before.
    pub start: EntryId,
    /// At most this many, at least 1; the server looks at ten times as many.
    pub count: usize,
    /// `JUSTID`: ids alone, and the delivery count stays as it is.
    pub just_id: bool,
}

/// What one `XAUTOCLAIM` took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AutoClaimed {
    /// Where to go on; [`EntryId::ZERO`] at the end of the walk. A step may be empty long before that.
    pub next: EntryId,
    /// Claimed ids, in both modes. Redis 6.2 with `JUSTID` has deleted entries among them.
    pub ids: Vec<EntryId>,
    /// Claimed entries; empty with `JUSTID`.
    pub entries: Vec<Entry>,
    /// Entries that were deleted from the stream; the server has taken them out of the pending list (Redis 7.0 and later).
    pub deleted: Vec<EntryId>,
    /// Deleted entries that Redis 6.2 does not name. They are pending still, now for this consumer.
    pub holes: usize,
}

impl Command for XAutoClaim {
    type Reply = AutoClaimed;

    fn request(&self) -> Request {
        let request = Request::new("XAUTOCLAIM")
            .key(&self.key)
            .arg(&self.group)
            .arg(&self.consumer)
            .int(milliseconds(self.min_idle))
            .id(self.start)
            .arg("COUNT")
            .int(self.count);
        if self.just_id { request.arg("JUSTID") } else { request }
    }

    fn decode(&self, value: Value) -> Result<AutoClaimed, Error> {
        let mut parts = match value {
            Value::Array(parts) if matches!(parts.len(), 2 | 3) => parts.into_iter(),
            value => return Err(decode::unexpected("a cursor, entries and deleted ids", &value)),
        };
        let (next, claimed, deleted) = (parts.next(), parts.next(), parts.next());
        let next = decode::id(&next.unwrap_or(Value::Nil))?;
        let mut claimed = decode_claimed(claimed.unwrap_or(Value::Nil), self.just_id)?;
        if let Some(deleted) = deleted {
            claimed.deleted.extend(decode::ids(deleted)?);
        }
        let Claimed { ids, entries, deleted, holes } = claimed;
        Ok(AutoClaimed { next, ids, entries, deleted, holes })
    }
}

/// `XCLAIM`: take over the entries named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XClaim {
    /// The stream.
    pub key: StreamKey,
    /// The group.
    pub group: GroupName,
    /// Who takes the entries over.
    pub consumer: ConsumerName,
    /// Only entries that nobody has touched for this long.
    pub min_idle: Duration,
    /// At least one id.
    pub ids: Vec<EntryId>,
    /// `IDLE`: pretend that nobody has touched them for this long; `None` starts at 0.
    pub idle: Option<Duration>,
    /// `RETRYCOUNT`: set the delivery count to exactly this; `None` adds one (with `JUSTID` nothing).
    pub retry_count: Option<u64>,
    /// `FORCE`: make entries pending that are not.
    pub force: bool,
    /// `JUSTID`: ids alone.
    pub just_id: bool,
}

impl XClaim {
    /// Takes `ids` over whatever their idle time, without an option.
    pub fn new(key: StreamKey, group: GroupName, consumer: ConsumerName, ids: Vec<EntryId>) -> Self {
        Self {
            key,
            group,
            consumer,
            min_idle: Duration::ZERO,
            ids,
            idle: None,
            retry_count: None,
            force: false,
            just_id: false,
        }
    }
}

/// What `XCLAIM` took. Ids that are missing here were not pending, not idle enough, or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// Claimed ids, in both modes. Redis 6.2 with `JUSTID` has deleted entries among them.
    pub ids: Vec<EntryId>,
    /// Claimed entries; empty with `JUSTID`.
    pub entries: Vec<Entry>,
    /// Ids that came without fields.
    pub deleted: Vec<EntryId>,
    /// Deleted entries that Redis 6.2 does not name.
    pub holes: usize,
}

impl Command for XClaim {
    type Reply = Claimed;

    fn request(&self) -> Request {
        let mut request =
            Request::new("XCLAIM").key(&self.key).arg(&self.group).arg(&self.consumer).int(milliseconds(self.min_idle));
        for &id in &self.ids {
            request = request.id(id);
        }
        if let Some(idle) = self.idle {
            request = request.arg("IDLE").int(milliseconds(idle));
        }
        if let Some(count) = self.retry_count {
            request = request.arg("RETRYCOUNT").int(count);
        }
        if self.force {
            request = request.arg("FORCE");
        }
        if self.just_id { request.arg("JUSTID") } else { request }
    }

    fn decode(&self, value: Value) -> Result<Claimed, Error> {
        decode_claimed(value, self.just_id)
    }
}

fn decode_claimed(value: Value, just_id: bool) -> Result<Claimed, Error> {
    if just_id {
        return Ok(Claimed { ids: decode::ids(value)?, ..Claimed::default() });
    }
    let decode::Listing { entries, deleted, holes } = decode::entries(value)?;
    Ok(Claimed { ids: entries.iter().map(Entry::id).collect(), entries, deleted, holes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::{consumer, group, id, key, list, text, wire, words};

    fn auto(just_id: bool) -> XAutoClaim {
        XAutoClaim {
            key: key("s"),
            group: group("g"),
            consumer: consumer("c"),
            min_idle: Duration::from_secs(30),
            start: EntryId::ZERO,
            count: 10,
            just_id,
        }
    }

    fn entry(text_id: &str) -> Value {
        list([text(text_id), list([text("f"), text("v")])])
    }

    #[test]
    fn auto_claims_encode() {
        assert_eq!(
            wire(&auto(false)),
            "*8\r\n$10\r\nXAUTOCLAIM\r\n$1\r\ns\r\n$1\r\ng\r\n$1\r\nc\r\n$5\r\n30000\r\n$3\r\n0-0\r\n$5\r\nCOUNT\r\n\
             $2\r\n10\r\n"
        );
        assert_eq!(words(&auto(true)), "XAUTOCLAIM s g c 30000 0-0 COUNT 10 JUSTID");
    }

    #[test]
    fn auto_claims_decode_three_elements() {
        let got = auto(false).decode(list([text("9-0"), list([entry("1-0")]), list([text("2-0")])])).unwrap();
        assert_eq!((got.next, got.ids, got.deleted, got.holes), (id(9, 0), vec![id(1, 0)], vec![id(2, 0)], 0));
        assert_eq!(got.entries, [Entry::new(id(1, 0), [("f", "v")]).unwrap()]);
    }

    #[test]
    fn auto_claims_decode_two_elements_with_holes() {
        let got = auto(false).decode(list([text("0-0"), list([Value::Nil, entry("1-0"), Value::Nil])])).unwrap();
        assert_eq!((got.next, got.ids, got.deleted, got.holes), (EntryId::ZERO, vec![id(1, 0)], vec![], 2));
        let got = auto(true).decode(list([text("0-0"), list([text("1-0")])])).unwrap();
        assert_eq!((got.ids, got.entries), (vec![id(1, 0)], vec![]));
        let got = auto(true).decode(list([text("5-0"), list([]), list([])])).unwrap();
        assert_eq!(got, AutoClaimed { next: id(5, 0), ..AutoClaimed::default() });
    }

    #[test]
    fn unknown_shapes_are_refused() {
        for value in [Value::Nil, list([]), list([text("0-0")]), list([text("x"), list([])])] {
            assert!(auto(false).decode(value).is_err());
        }
    }

    #[test]
    fn claims_encode_and_decode() {
        let mut claim = XClaim::new(key("s"), group("g"), consumer("c"), vec![id(1, 0), id(2, 0)]);
        assert_eq!(words(&claim), "XCLAIM s g c 0 1-0 2-0");
        let got = claim.decode(list([entry("1-0"), Value::Nil])).unwrap();
        assert_eq!((got.ids, got.holes), (vec![id(1, 0)], 1));
        claim.idle = Some(Duration::from_hours(1));
        claim.retry_count = Some(2);
        claim.force = true;
        claim.just_id = true;
        assert_eq!(words(&claim), "XCLAIM s g c 0 1-0 2-0 IDLE 3600000 RETRYCOUNT 2 FORCE JUSTID");
        assert_eq!(claim.decode(list([text("2-0")])).unwrap().ids, [id(2, 0)]);
    }
}
