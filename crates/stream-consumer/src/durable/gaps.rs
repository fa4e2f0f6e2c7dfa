//! Gaps: entries that the group was never given, and that somebody else has trimmed or deleted.
//!
//! They are looked for whenever the group is: at the start, after each reconnect and at each claim interval.

use stream_core::{GroupFacts, UndeliveredGap};
use stream_redis::command::{GroupInfo, StreamInfo};

use super::stream::Stream;
use crate::observe::{Event, count};

/// What `info` and, asked for after it, `group` say; `exact` for a server that keeps a group's count right.
pub(crate) fn facts(info: &StreamInfo, group: &GroupInfo, exact: bool) -> GroupFacts {
    let (delivered, read) = (group.last_delivered, group.entries_read);
    GroupFacts { stream: info.facts(), last: info.last_entry, delivered, read, exact }
}

pub(crate) fn tell(stream: &Stream, UndeliveredGap { after, before, missed }: UndeliveredGap) {
    count(&stream.counters.gaps, 1);
    count(&stream.counters.missed, missed.unwrap_or(0));
    stream.tell(&Event::Gap { after, before, missed });
}

#[cfg(test)]
#[path = "gaps_tests.rs"]
mod tests;
