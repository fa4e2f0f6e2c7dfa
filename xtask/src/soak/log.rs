//! [`Log`]: what publishers, disturbers and watchers write down, on its way to the history.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use stream_testkit::history::{Event, What};

use crate::fleet::journal::now;

/// Writes events down, from any task.
#[derive(Debug, Clone)]
pub(crate) struct Log(UnboundedSender<Event>);

impl Log {
    pub(crate) fn new() -> (Self, UnboundedReceiver<Event>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// It happens now.
    pub(crate) fn write(&self, what: What) {
        self.write_at(now(), what);
    }

    /// It happened, or is over, at that time.
    pub(crate) fn write_at(&self, at: u64, what: What) {
        // Whoever reads is gone only at the very end, when nothing counts any more.
        let _ = self.0.send(Event { at, what });
    }
}
