//! [`chain`]: an error with its causes, for texts that stand alone.

use std::error::Error;

/// An error and what caused it, one after the other.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
