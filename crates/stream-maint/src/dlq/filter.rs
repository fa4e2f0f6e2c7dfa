//! [`LetterFilter`]: which dead letters are meant.

use std::time::Duration;

use stream_core::{DeadReason, GroupName, LetterContent, StreamKey};

/// Which dead letters are meant: all, less what each rule leaves out. A letter that does not tell what a rule asks for does
/// not match it; one that cannot be read matches only when there is no rule.
///
/// ```
/// use stream_core::{GroupName, StreamKey};
/// use stream_maint::LetterFilter;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filter = LetterFilter::all()
///     .stream(StreamKey::new("orders")?)
///     .group(GroupName::new("billing")?)
///     .reason("exhausted"); // not those that a handler rejected
/// # let _ = filter;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a filter does nothing until it is passed on"]
pub struct LetterFilter {
    stream: Option<StreamKey>,
    group: Option<GroupName>,
    reason: Option<String>,
    since_ms: Option<u64>,
    until_ms: Option<u64>,
}

impl LetterFilter {
    /// Every letter.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only letters that were published to `stream`.
    pub fn stream(mut self, stream: StreamKey) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Only letters that `group` gave up.
    pub fn group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Only letters given up for this reason, a code of [`DeadReason::as_str`](stream_core::DeadReason::as_str):
    /// `rejected`, `exhausted`, `owner-died` or `undecodable`. Any other text matches nothing.
    pub fn reason(mut self, code: impl Into<String>) -> Self {
        self.reason = Some(code.into());
        self
    }

    /// Only letters that were given up at this time or later, counted since 1970.
    pub fn since(mut self, time: Duration) -> Self {
        self.since_ms = Some(milliseconds(time));
        self
    }

    /// Only letters that were given up before this time, counted since 1970.
    pub fn until(mut self, time: Duration) -> Self {
        self.until_ms = Some(milliseconds(time));
        self
    }

    /// Whether the letter is meant.
    pub fn matches(&self, letter: &LetterContent) -> bool {
        self.stream.as_ref().is_none_or(|stream| Some(stream) == letter.stream.as_ref())
            && self.group.as_ref().is_none_or(|group| Some(group) == letter.group.as_ref())
            && self.reason.as_ref().is_none_or(|code| Some(&**code) == letter.reason.as_ref().map(DeadReason::as_str))
            && self.since_ms.is_none_or(|since| letter.dead_at_ms.is_some_and(|at| at >= since))
            && self.until_ms.is_none_or(|until| letter.dead_at_ms.is_some_and(|at| at < until))
    }

    /// Whether there is no rule, so that even unreadable letters are meant.
    pub(super) fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
