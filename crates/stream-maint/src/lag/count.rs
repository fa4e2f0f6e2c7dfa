//! [`Lag`]: how many entries a group has not been delivered, if anybody knows.
//!
//! Servers count what a group has read and lose count when entries are deleted, trimmed or skipped; Redis 6.2 does not
//! count at all. Where the ids alone tell the number, they are believed first.

use std::fmt;

use stream_redis::command::{GroupInfo, StreamInfo};

/// How many entries a group has not been delivered yet.
///
/// ```
/// use stream_maint::{Lag, WhyUnknown};
/// assert_eq!(Lag::Known(3).known(), Some(3));
/// assert_eq!(Lag::Unknown(WhyUnknown::NotCounted).known(), None); // and not 0
/// println!("nobody knows: {}", WhyUnknown::NotCounted);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lag {
    /// This many.
    Known(u64),
    /// Nobody knows; it may be none or very many. See [`GroupLag::distance`](super::GroupLag::distance) then.
    Unknown(WhyUnknown),
}

/// Why a lag is not known.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = stream_testkit::MemoryServer::new();
/// # let client = server.client();
/// # for n in ["1", "2", "3"] { server.add("orders", [("n", n)]); }
/// # server.command(["XGROUP", "CREATE", "orders", "billing", "99999999999999-0"])?;
/// use stream_maint::{Lag, LagMonitor, WhyUnknown};
/// // The stream was deleted and made anew, and the group was set to where it had been.
/// let report = LagMonitor::new(&client, "orders")?.look().await?.expect("the stream is there");
/// assert_eq!(report.groups[0].lag, Lag::Unknown(WhyUnknown::AheadOfStream));
/// assert!(WhyUnknown::AheadOfStream.to_string().contains("has not given yet"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhyUnknown {
    /// The server does not count (before Redis 7.0).
    NotCounted,
    /// The server lost count: entries were deleted, or the group was created or set in the middle of the stream.
    CountLost,
    /// The server gives a number that is greater than the stream is long: it counts entries that are gone.
    Contradicted,
    /// The group was delivered an id that the stream has not given yet: the stream is another one than it was, and the
    /// group waits for ids that may never come.
    AheadOfStream,
}

impl Lag {
    /// The number, if it is known.
    ///
    /// ```
    /// use stream_maint::{Lag, WhyUnknown};
    /// let lags = [Lag::Known(3), Lag::Unknown(WhyUnknown::CountLost)];
    /// let known: Vec<u64> = lags.iter().filter_map(|lag| lag.known()).collect();
    /// assert_eq!(known, [3]); // a gauge shows nothing for the other
    /// ```
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Known(entries) => Some(entries),
            Self::Unknown(_) => None,
        }
    }

    pub(super) fn of(group: &GroupInfo, stream: &StreamInfo) -> Self {
        let at = group.last_delivered;
        match (stream.first_entry, group.lag) {
            _ if at > stream.last_generated_id => Self::Unknown(WhyUnknown::AheadOfStream),
            (None, _) => Self::Known(0),
            _ if at == stream.last_generated_id => Self::Known(0),
            (Some(first), _) if first > at => Self::Known(stream.length),
            (_, Some(lag)) if lag <= stream.length => Self::Known(lag),
            (_, Some(_)) => Self::Unknown(WhyUnknown::Contradicted),
            (_, None) if stream.entries_added.is_none() => Self::Unknown(WhyUnknown::NotCounted),
            (_, None) => Self::Unknown(WhyUnknown::CountLost),
        }
    }
}

impl fmt::Display for WhyUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCounted => "the server does not count what groups have read",
            Self::CountLost => "the server lost count, since entries were deleted or the group began in the middle",
            Self::Contradicted => "the server counts entries that are gone",
            Self::AheadOfStream => "the group was delivered ids that the stream has not given yet",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream_core::{EntryId, GroupName};

    fn check(at: u64, counted: Option<u64>, first: Option<u64>, last: u64, length: u64, expected: Lag) {
        let group = GroupInfo {
            name: GroupName::new("g").unwrap(),
            consumers: 0,
            pending: 0,
            last_delivered: EntryId::new(at, 0),
            entries_read: None,
            lag: counted,
        };
        let stream = StreamInfo {
            length,
            last_generated_id: EntryId::new(last, 0),
            entries_added: Some(last),
            first_entry: first.map(|ms| EntryId::new(ms, 0)),
            last_entry: first.map(|_| EntryId::new(last, 0)),
            max_deleted: None,
            groups: 1,
        };
        assert_eq!(Lag::of(&group, &stream), expected);
        if counted.is_none() {
            let old = StreamInfo { entries_added: None, ..stream };
            let expected = match expected {
                Lag::Unknown(WhyUnknown::CountLost) => Lag::Unknown(WhyUnknown::NotCounted),
                other => other,
            };
            assert_eq!(Lag::of(&group, &old), expected);
        }
    }

    #[test]
    fn ids_are_believed_before_counters_and_nothing_is_made_up() {
        check(3, None, Some(1), 9, 5, Lag::Unknown(WhyUnknown::CountLost));
        check(3, Some(4), Some(1), 9, 5, Lag::Known(4));
        check(3, Some(6), Some(1), 9, 5, Lag::Unknown(WhyUnknown::Contradicted));
        check(9, Some(2), Some(1), 9, 5, Lag::Known(0));
        check(3, Some(0), Some(4), 9, 5, Lag::Known(5));
        check(0, None, Some(1), 9, 5, Lag::Known(5));
        check(3, None, None, 9, 0, Lag::Known(0));
        check(10, Some(0), Some(1), 9, 5, Lag::Unknown(WhyUnknown::AheadOfStream));
    }
}
