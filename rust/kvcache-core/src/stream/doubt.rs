//! Reasons to stop believing a view.

use std::fmt;

use crate::decode::{DecodeError, DecodeErrorKind};
use crate::model::ApplyError;

/// A kind of doubt; the label of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DoubtKind {
    /// A sequence was skipped.
    Gap,
    /// A sequence at or below the last one.
    SequenceReset,
    /// A live store below a block never announced.
    UnknownParent,
    /// A live tokenless store of a block never announced.
    UnknownTokenless,
    /// A message that is not of the protocol.
    Decode,
    /// Another rank's message.
    DpRank,
    /// Blocks of another size than configured.
    BlockSize,
    /// One wire hash with two contents.
    WireConflict,
    /// A message over `max_message_bytes`.
    MessageSize,
    /// Live messages beyond `max_buffered_bytes`.
    BufferLimit,
    /// Blocks beyond `max_blocks_per_stream`.
    BlockLimit,
    /// Live messages do not come, while snapshots advance.
    LiveChannel,
    /// The subscription was lost.
    Disconnect,
    /// No whole snapshot within `replay_timeout_ms`.
    ReplayTimeout,
    /// A snapshot that could not be fetched or used.
    Replay,
}

impl DoubtKind {
    /// Every kind, in the order of their counters.
    pub const ALL: [Self; 15] = [
        Self::Gap,
        Self::SequenceReset,
        Self::UnknownParent,
        Self::UnknownTokenless,
        Self::Decode,
        Self::DpRank,
        Self::BlockSize,
        Self::WireConflict,
        Self::MessageSize,
        Self::BufferLimit,
        Self::BlockLimit,
        Self::LiveChannel,
        Self::Disconnect,
        Self::ReplayTimeout,
        Self::Replay,
    ];

    /// The stable name, as status and metrics show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::SequenceReset => "sequence_reset",
            Self::UnknownParent => "unknown_parent",
            Self::UnknownTokenless => "unknown_tokenless",
            Self::Decode => "decode",
            Self::DpRank => "dp_rank",
            Self::BlockSize => "block_size",
            Self::WireConflict => "wire_conflict",
            Self::MessageSize => "message_size",
            Self::BufferLimit => "buffer_limit",
            Self::BlockLimit => "block_limit",
            Self::LiveChannel => "live_channel",
            Self::Disconnect => "disconnect",
            Self::ReplayTimeout => "replay_timeout",
            Self::Replay => "replay",
        }
    }
}

/// A doubt with its reason: one lower-case sentence that a person can act on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What it is counted as.
    pub kind: DoubtKind,
    /// The sentence.
    pub reason: String,
}

impl Doubt {
    /// A doubt of `kind` because of `reason`.
    #[must_use]
    pub fn new(kind: DoubtKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }

    /// The same doubt, saying what it was found in.
    #[must_use]
    pub fn within(self, place: &str) -> Self {
        Self {
            reason: format!("{place}: {}", self.reason),
            ..self
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<&DecodeError> for Doubt {
    fn from(error: &DecodeError) -> Self {
        let kind = match error.kind {
            DecodeErrorKind::Rank { .. } => DoubtKind::DpRank,
            DecodeErrorKind::BlockSize { .. } => DoubtKind::BlockSize,
            _ => DoubtKind::Decode,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<ApplyError> for Doubt {
    fn from(error: ApplyError) -> Self {
        let kind = match error {
            ApplyError::UnknownParent(_) => DoubtKind::UnknownParent,
            ApplyError::UnknownTokenless(_) => DoubtKind::UnknownTokenless,
            ApplyError::Conflict(_) => DoubtKind::WireConflict,
            ApplyError::Shape { .. } => DoubtKind::Decode,
            ApplyError::Limit(_) => DoubtKind::BlockLimit,
            ApplyError::NoSlot | ApplyError::ForeignDraft => DoubtKind::Replay,
        };
        Self::new(kind, error.to_string())
    }
}
