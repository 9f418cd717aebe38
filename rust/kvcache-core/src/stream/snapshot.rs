//! What comes back from a replay endpoint.

use bytes::Bytes;

use super::{Doubt, DoubtKind};
use crate::model::Sequence;

/// A snapshot as it came from the replay endpoint, not yet decoded.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The last message that it includes.
    pub watermark: Sequence,
    /// The batch that describes every block.
    pub payload: Bytes,
}

/// Why a snapshot could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayFailure {
    /// Not complete within `replay_timeout_ms`.
    Timeout(String),
    /// Larger than `max_message_bytes`.
    TooLarge(String),
    /// Anything else: refused, closed, not of the protocol.
    Other(String),
}

impl From<ReplayFailure> for Doubt {
    fn from(failure: ReplayFailure) -> Self {
        match failure {
            ReplayFailure::Timeout(reason) => Self::new(DoubtKind::ReplayTimeout, reason),
            ReplayFailure::TooLarge(reason) => Self::new(DoubtKind::MessageSize, reason),
            ReplayFailure::Other(reason) => Self::new(DoubtKind::Replay, reason),
        }
    }
}
