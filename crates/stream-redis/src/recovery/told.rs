//! [`Told`]: which failures of something that is tried again and again were told.

use crate::{Error, ErrorKind};

/// Which kinds of failure were told, so that one that lasts is told once and another beside it as well.
///
/// ```
/// use stream_redis::{Error, ErrorKind, ServerError, Told};
///
/// let cut = Error::new(ErrorKind::Io, "the connection is gone");
/// let denied = Error::from(ServerError::parse("NOPERM this user may not"));
/// let mut told = Told::default();
/// assert!(told.failed(Some(&cut)));
/// assert!(!told.failed(Some(&cut)));
/// assert!(told.failed(Some(&denied)));
/// // The server has answered: the next outage is another one.
/// told.answered();
/// assert!(told.failed(Some(&cut)));
/// assert!(!told.failed(Some(&denied)));
/// assert!(told.mended());
/// assert!(told.failed(Some(&denied)));
/// ```
#[derive(Debug, Default)]
pub struct Told(Vec<Option<(ErrorKind, Option<String>)>>);

impl Told {
    /// Whether this failure is news; one without an [`Error`] is of one kind with all such.
    pub fn failed(&mut self, error: Option<&Error>) -> bool {
        let kind = error.map(|error| (error.kind(), error.code().map(str::to_owned)));
        let news = !self.0.contains(&kind);
        if news {
            self.0.push(kind);
        }
        news
    }

    /// The server has answered, though nothing was done: what was told of the way to it is over.
    pub fn answered(&mut self) {
        self.0.retain(|kind| kind.as_ref().is_none_or(|(_, code)| code.is_some()));
    }

    /// It works: what fails from now on is news. Returns whether something had failed.
    pub fn mended(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}
