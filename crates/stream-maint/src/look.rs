//! [`Look`]: what a server says about one stream and its groups, in the order that keeps it safe.
//!
//! The replies are of different moments. What must stay true: whatever happens between them makes a group look as if it
//! needed more than it does, never less. So a group's position is read before its pending list (what it reads in between
//! still follows the old position), and what cannot be read counts as needed.

use stream_core::{Elapsed, GroupState, StreamKey, StreamState};
use stream_redis::command::{
    Command, GroupInfo, PendingSummary, StreamInfo, Time, XInfoConsumers, XInfoGroups, XInfoStream, XPendingSummary,
};
use stream_redis::{Error, ErrorKind};
use tokio::time::Instant;

use crate::link::{Link, decoded};

/// Summaries asked for in one round trip.
const BATCH: usize = 100;

/// One stream and its groups.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) state: StreamState,
    pub(crate) info: StreamInfo,
    /// In the order of [`StreamState::groups`].
    pub(crate) groups: Vec<(GroupInfo, Option<PendingSummary>)>,
}

impl Look {
    /// Looks at the stream; `None` where there is none.
    pub(crate) async fn at(link: &mut Link) -> Result<Option<Self>, Error> {
        let key = link.key().clone();
        let (groups, stream) = (XInfoGroups { key: key.clone() }, XInfoStream { key: key.clone() });
        let requests = [groups.request(), stream.request(), Time.request()];
        let [groups_reply, stream_reply, time]: [_; 3] = link
            .send(&requests)
            .await?
            .try_into()
            .map_err(|_| Error::new(ErrorKind::Protocol, "another number of replies than requests"))?;
        let looked = (decoded(&groups, groups_reply), decoded(&stream, stream_reply));
        let (groups, info) = match looked {
            (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::Missing => return Ok(None),
            (groups, info) => (groups?, info?),
        };
        let now = decoded(&Time, time)?;
        let groups = summaries(link, &key, groups).await?;
        let state = StreamState {
            first: info.first_entry,
            last_generated: info.last_generated_id,
            length: info.length,
            newest_from: None,
            groups: groups.iter().map(|(group, summary)| group_state(group, summary.as_ref())).collect(),
            now_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        Ok(Some(Self { state, info, groups }))
    }
}

/// The time by which groups grow old: as much as has passed both on the server and here.
#[derive(Debug, Default)]
pub(crate) struct Age {
    began: Option<Instant>,
    elapsed: Elapsed,
}

impl Age {
    /// Milliseconds since the first of these looks, at one just now that has found this state.
    pub(crate) fn at(&mut self, state: &StreamState) -> u64 {
        let own = self.began.get_or_insert_with(Instant::now).elapsed();
        self.elapsed.at(state.now_ms, own)
    }
}

/// Lowers [`GroupState::unchanged`] of groups to the time since one of their consumers last asked for, or renewed, anything:
/// a handler that works on one entry for hours changes nothing else. What cannot be seen leaves it unknown.
pub(crate) async fn mind_consumers(link: &mut Link, groups: &mut [GroupState]) -> Result<(), Error> {
    let key = link.key().clone();
    for groups in groups.chunks_mut(BATCH) {
        let commands: Vec<_> =
            groups.iter().map(|group| XInfoConsumers { key: key.clone(), group: group.name.clone() }).collect();
        for (group, consumers) in groups.iter_mut().zip(link.run_all(&commands).await?) {
            group.unchanged = match consumers {
                // One with an empty name is not listed.
                Ok(consumers) if (consumers.len() as u64) < group.consumers => None,
                Ok(consumers) => consumers.iter().map(|one| one.idle).chain(group.unchanged).min(),
                Err(error) if error.kind() == ErrorKind::Missing => None,
                Err(error) => return Err(error),
            };
        }
    }
    Ok(())
}

async fn summaries(
    link: &mut Link,
    key: &StreamKey,
    groups: Vec<GroupInfo>,
) -> Result<Vec<(GroupInfo, Option<PendingSummary>)>, Error> {
    let mut looked = Vec::with_capacity(groups.len());
    for groups in groups.chunks(BATCH) {
        let commands: Vec<_> =
            groups.iter().map(|group| XPendingSummary { key: key.clone(), group: group.name.clone() }).collect();
        for (group, summary) in groups.iter().zip(link.run_all(&commands).await?) {
            let summary = match summary {
                Ok(summary) => Some(summary),
                // Destroyed a moment ago, perhaps to be made anew.
                Err(error) if error.kind() == ErrorKind::Missing => None,
                Err(error) => return Err(error),
            };
            looked.push((group.clone(), summary));
        }
    }
    Ok(looked)
}

fn group_state(group: &GroupInfo, summary: Option<&PendingSummary>) -> GroupState {
    let (pending, oldest_pending) = match summary {
        Some(summary) => (summary.total, summary.first),
        // Nothing is known about it now, so everything may be pending.
        None => (group.pending.max(1), None),
    };
    GroupState {
        name: group.name.clone(),
        last_delivered: group.last_delivered,
        pending,
        oldest_pending,
        consumers: group.consumers,
        unchanged: None,
    }
}
