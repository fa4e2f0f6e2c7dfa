//! [`Stream`]: what reading and handling of one stream share.

use std::sync::Arc;

use stream_core::EntryId;

use super::config::Config;
use crate::delivery::Source;
use crate::health::Pulse;
use crate::link::Link;
use crate::observe::{Counters, Event};

pub(crate) struct Stream {
    pub(crate) config: Arc<Config>,
    pub(crate) source: Arc<Source>,
    pub(crate) link: Arc<Link>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pulse: Arc<Pulse>,
    /// Where a former run has stopped, which goes before the start of the settings.
    pub(crate) resume: Option<EntryId>,
}

impl Stream {
    /// Tells the observer and the log.
    #[inline]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        crate::observe::tell(&self.source, self.config.observer.as_deref(), event);
    }
}
