//! [`Profile`]: which generation of servers the model behaves like, where generations differ.

/// A generation of servers. What differs between them is what a client blocked in `XREADGROUP` sees, what becomes of
/// pending entries that were deleted, when consumers come to exist, and what `XINFO` tells.
///
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Profile {
    /// Redis 6.2: two-element `XAUTOCLAIM` with `nil` holes, deleted entries stay pending for ever, a deleted stream
    /// leaves its blocked readers blocked, no `lag`.
    Redis62,
    /// Redis 7.0: three-element `XAUTOCLAIM`, `lag`, `UNBLOCKED` for readers of a deleted stream.
    Redis70,
    /// Redis 7.2 and all of Valkey (8.1 and 9.1 were compared): blocked reads are carried out anew when their key
    /// changes, every poll creates and touches its consumer, `XINFO CONSUMERS` tells `inactive`.
    #[default]
    Redis72Plus,
    /// Redis 8.0 and later (8.0 and 8.6 were compared): like [`Redis72Plus`](Self::Redis72Plus), but `lag` and
    /// `entries-read` come out right after trimming and for groups made in the middle of a stream.
    Redis80Plus,
}

impl Profile {
    /// What `INFO` gives as `redis_version`.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Redis62 => "6.2.14",
            Self::Redis70 => "7.0.15",
            Self::Redis72Plus => "7.2.4",
            Self::Redis80Plus => "8.0.6",
        }
    }

    /// Blocked reads are carried out anew when their key changes, rather than served from a list.
    pub(super) fn reruns_blocked(self) -> bool {
        self >= Self::Redis72Plus
    }

    /// A poll or claim that gives nothing creates its consumer nevertheless and counts as a sign of life.
    pub(super) fn consumers_are_eager(self) -> bool {
        self >= Self::Redis72Plus
    }

    /// Claims drop pending entries whose stream entry is gone.
    pub(super) fn claims_clean_up(self) -> bool {
        self >= Self::Redis70
    }

    /// Streams count what was ever added, groups what they ever read.
    pub(super) fn has_lag(self) -> bool {
        self >= Self::Redis70
    }

    /// Lag after trimming is told from the length, and read counters look at the entry before.
    pub(super) fn has_repaired_lag(self) -> bool {
        self >= Self::Redis80Plus
    }

    /// Subcommands are commands of their own, with an arity and a name such as `xgroup|create`.
    pub(super) fn subcommands_are_commands(self) -> bool {
        self >= Self::Redis70
    }
}
