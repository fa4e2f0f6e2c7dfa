//! What a [`Host`](super::Host) tells: [`HostEvent`] while it runs, [`HostReport`] at its end.

use std::time::Duration;

use stream_consumer::{ConfigError, DrainReport, EphemeralReport, RunError};

/// Something that happened to a member.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostEvent<'a> {
    /// A consumer has failed and is started anew after `after`.
    Restarting {
        /// The member.
        member: &'a str,
        /// Why it had ended.
        error: &'a RunError,
        /// The pause.
        after: Duration,
    },
    /// A consumer has failed for good.
    Failed {
        /// The member.
        member: &'a str,
        /// Why.
        error: &'a RunError,
    },
    /// A member has panicked outside of its handler, and is not started anew.
    Panicked {
        /// The member.
        member: &'a str,
    },
    /// Maintenance has failed. Told once, until it works again; consumers are not disturbed, and it is tried again.
    MaintenanceFailed {
        /// The member.
        member: &'a str,
        /// Why.
        error: &'a (dyn std::error::Error + Send + Sync),
    },
    /// Maintenance that had failed works again.
    MaintenanceMended {
        /// The member.
        member: &'a str,
    },
}

/// How the members of a host have ended, in the order in which they were added.
#[derive(Debug)]
#[non_exhaustive]
pub struct HostReport {
    /// Each member.
    pub members: Vec<MemberReport>,
}

/// How a member has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct MemberReport {
    /// Its name.
    pub name: String,
    /// How it has ended.
    pub end: MemberEnd,
    /// How often it was started anew. A report of a consumer is that of its last run.
    pub restarts: u64,
}

/// How a member has ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemberEnd {
    /// A durable consumer has stopped as it was asked to.
    Durable(DrainReport),
    /// An ephemeral consumer has stopped as it was asked to.
    Ephemeral(EphemeralReport),
    /// Maintenance has stopped as it was asked to.
    Maintenance(Maintained),
    /// A consumer could not go on, and was not started anew (again).
    Failed(RunError),
    /// The member's own task has panicked, which is a bug of the library.
    Panicked,
}

/// What a maintenance schedule did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintained {
    /// Runs that succeeded; for a trimmer, those in which it was this process's turn.
    pub runs: u64,
    /// Runs that failed or panicked.
    pub failures: u64,
}

impl HostReport {
    /// The report of a member.
    pub fn member(&self, name: &str) -> Option<&MemberReport> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The report, or the first consumer that has failed as an error: for a `main` that returns it.
    ///
    /// # Errors
    /// [`HostError`] when a consumer has failed. Maintenance that has failed is none: see [`Maintained::failures`].
    pub fn into_result(mut self) -> Result<Self, HostError> {
        let failed = |member: &MemberReport| matches!(member.end, MemberEnd::Failed(_) | MemberEnd::Panicked);
        let Some(place) = self.members.iter().position(failed) else { return Ok(self) };
        let MemberReport { name: member, end, .. } = self.members.swap_remove(place);
        match end {
            MemberEnd::Failed(source) => Err(HostError::Failed { member, source }),
            _ => Err(HostError::Panicked { member }),
        }
    }
}

/// Why a host could not be built, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The settings of a member cannot work.
    #[error("the member `{member}` of the host is refused")]
    Refused {
        /// The member.
        member: String,
        /// Why.
        source: ConfigError,
    },
    /// Two members have one name, by which reports could not tell them apart.
    #[error("two members of the host are called `{member}`: give each a name of its own")]
    NamedTwice {
        /// The name.
        member: String,
    },
    /// A restart policy names a member that was not added.
    #[error("there is a restart policy for `{member}`, and no consumer of that name: add it, or mend the name")]
    NoSuchMember {
        /// The name.
        member: String,
    },
    /// A host without members has nothing to do.
    #[error("the host has no members: add a consumer or a maintenance schedule")]
    Empty,
    /// A schedule without a pause would hammer the server.
    #[error("the schedule `{member}` runs every {every:?}: give 10 ms or more")]
    TooOften {
        /// The member.
        member: String,
        /// What was given.
        every: Duration,
    },
    /// A consumer could not go on.
    #[error("the member `{member}` of the host has failed")]
    Failed {
        /// The member.
        member: String,
        /// Why.
        source: RunError,
    },
    /// A member's own task has panicked.
    #[error("the task of the member `{member}` of the host panicked, which is a bug of the library")]
    Panicked {
        /// The member.
        member: String,
    },
}
