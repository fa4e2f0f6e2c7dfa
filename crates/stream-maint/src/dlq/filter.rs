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
    ///
    /// ```
    /// use stream_core::LetterContent;
    /// use stream_maint::LetterFilter;
    /// assert!(LetterFilter::all().matches(&LetterContent::default())); // even what tells nothing about itself
    /// ```
    pub fn all() -> Self {
        Self::default()
    }

    /// Only letters that were published to `stream`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use stream_core::{LetterContent, StreamKey};
    /// use stream_maint::LetterFilter;
    /// let (orders, users) = (StreamKey::new("orders")?, StreamKey::new("users")?);
    /// let mut letter = LetterContent::default();
    /// letter.stream = Some(orders.clone());
    /// assert!(LetterFilter::all().stream(orders).matches(&letter));
    /// assert!(!LetterFilter::all().stream(users).matches(&letter));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(mut self, stream: StreamKey) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Only letters that `group` gave up.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use stream_core::{GroupName, LetterContent};
    /// use stream_maint::LetterFilter;
    /// let (billing, mail) = (GroupName::new("billing")?, GroupName::new("mail")?);
    /// let mut letter = LetterContent::default();
    /// letter.group = Some(billing.clone());
    /// assert!(LetterFilter::all().group(billing).matches(&letter));
    /// assert!(!LetterFilter::all().group(mail).matches(&letter));
    /// # Ok(())
    /// # }
    /// ```
    pub fn group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Only letters given up for this reason, a code of [`DeadReason::as_str`](stream_core::DeadReason::as_str):
    /// `rejected`, `exhausted`, `owner-died` or `undecodable`. Any other text matches nothing.
    ///
    /// ```
    /// use stream_core::{DeadReason, LetterContent};
    /// use stream_maint::LetterFilter;
    /// let mut letter = LetterContent::default();
    /// letter.reason = Some(DeadReason::Rejected("no such customer".to_owned()));
    /// assert!(LetterFilter::all().reason("rejected").matches(&letter));
    /// assert!(!LetterFilter::all().reason("exhausted").matches(&letter));
    /// ```
    pub fn reason(mut self, code: impl Into<String>) -> Self {
        self.reason = Some(code.into());
        self
    }

    /// Only letters that were given up at this time or later, counted since 1970.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stream_core::LetterContent;
    /// use stream_maint::LetterFilter;
    /// let since_the_deployment = LetterFilter::all().since(Duration::from_secs(1_700_000_000));
    /// let mut letter = LetterContent::default();
    /// letter.dead_at_ms = Some(1_700_000_000_000);
    /// assert!(since_the_deployment.matches(&letter));
    /// letter.dead_at_ms = Some(1_699_999_999_999);
    /// assert!(!since_the_deployment.matches(&letter));
    /// ```
    pub fn since(mut self, time: Duration) -> Self {
        self.since_ms = Some(milliseconds(time));
        self
    }

    /// Only letters that were given up before this time, counted since 1970.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stream_core::LetterContent;
    /// use stream_maint::LetterFilter;
    /// let until_the_fix = LetterFilter::all().until(Duration::from_secs(1_700_000_000));
    /// let mut letter = LetterContent::default();
    /// letter.dead_at_ms = Some(1_699_999_999_999);
    /// assert!(until_the_fix.matches(&letter));
    /// letter.dead_at_ms = Some(1_700_000_000_000);
    /// assert!(!until_the_fix.matches(&letter));
    /// ```
    pub fn until(mut self, time: Duration) -> Self {
        self.until_ms = Some(milliseconds(time));
        self
    }

    /// Whether the letter is meant.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use stream_core::{DeadReason, LetterContent, StreamKey};
    /// use stream_maint::LetterFilter;
    /// let filter = LetterFilter::all().stream(StreamKey::new("orders")?).reason("owner-died");
    /// let mut letter = LetterContent::default();
    /// letter.stream = Some(StreamKey::new("orders")?);
    /// assert!(!filter.matches(&letter)); // it does not tell a reason
    /// letter.reason = Some(DeadReason::OwnerDied);
    /// assert!(filter.matches(&letter));
    /// # Ok(())
    /// # }
    /// ```
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
