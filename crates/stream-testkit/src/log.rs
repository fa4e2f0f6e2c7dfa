//! [`Warnings`]: what is logged while a test runs, for tests whose subject is that trouble is told once, or not at all.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Keeps the warnings and errors that are logged where it is the subscriber. Clones are the same list.
///
/// ```
/// let warnings = stream_testkit::Warnings::default();
/// let _log = tracing::subscriber::set_default(warnings.clone()); // of this thread; see also `WithSubscriber`
/// tracing::info!("this is no warning");
/// tracing::warn!(stream = "orders", "trimming failed");
/// assert_eq!(warnings.lines(), ["trimming failed stream=\"orders\""]);
/// assert_eq!(warnings.count("orders"), 1);
/// ```
#[derive(Debug, Clone)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

/// While there is one subscriber alone, `tracing` asks the thread that comes to a line first, which may be another test's and
/// have none, and remembers for all threads that nobody wants that line. With two it asks both.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

impl Default for Warnings {
    fn default() -> Self {
        LazyLock::force(&SECOND);
        Self(Arc::default())
    }
}

impl Warnings {
    /// The lines so far: each is the message, then the fields as `name=value`.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many lines have `part` in them.
    pub fn count(&self, part: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(part)).count()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.message + &line.fields);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
