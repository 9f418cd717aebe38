//! Why bytes are not what the protocol says, in words that an operator can act on.
//!
//! Text that came from a peer is made printable and cut before it gets here; the offset lets a captured message be
//! looked at.

use std::num::NonZeroU32;

use crate::model::{DpRank, Sequence};

/// A payload that could not be decoded; nothing of it counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at byte {offset})")]
pub struct DecodeError {
    /// Where in the payload the offending value begins.
    pub offset: usize,
    /// What is wrong with it.
    pub kind: DecodeErrorKind,
}

impl DecodeError {
    pub(super) fn new(offset: usize, kind: DecodeErrorKind) -> Self {
        Self { offset, kind }
    }

    /// The value at `offset`, called `name`, is not what was `expected`.
    pub(super) fn field(offset: usize, name: &'static str, expected: &'static str) -> Self {
        Self::new(offset, DecodeErrorKind::Field { name, expected })
    }
}

/// What is wrong with a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The payload ends before the value that was begun or announced.
    #[error("message ends within a value")]
    Truncated,
    /// A byte that begins no `MessagePack` value.
    #[error("not MessagePack, byte: 0x{0:02x}")]
    Malformed(u8),
    /// A value to be ignored contains values within values beyond all reason.
    #[error("values nested deeper than: {0}")]
    Depth(usize),
    /// The batch is complete and more bytes follow.
    #[error("bytes after the batch: {0}")]
    Trailing(usize),
    /// An event in the positional form of another engine family.
    #[error("event is an array, not a map with a type; the engine does not publish xLLM's format")]
    ArrayEvent,
    /// An event of a type that the protocol does not have. The name is printable and cut.
    #[error("unknown event type: {0}")]
    UnknownType(String),
    /// A value of the wrong type or out of range.
    #[error("{name} must be {expected}")]
    Field {
        /// The key, or what stands at the place.
        name: &'static str,
        /// What should have been there.
        expected: &'static str,
    },
    /// An event without a key that its type needs.
    #[error("event without key: {0}")]
    Missing(&'static str),
    /// A key that came twice in one event.
    #[error("duplicate key: {0}")]
    Duplicate(&'static str),
    /// Tokens of blocks of another size than the stream's, or of a size not told.
    #[error("block size {}, configured {configured}", or_missing(*.found))]
    BlockSize {
        /// What came; `None` when the key was absent or nil.
        found: Option<i128>,
        /// The stream's block size, in tokens.
        configured: NonZeroU32,
    },
    /// Tokens are not `blocks × block size` many.
    #[error("{tokens} token ids for {blocks} blocks of {block_size_tokens}")]
    Shape {
        /// Token ids that came.
        tokens: usize,
        /// Wire hashes that came.
        blocks: usize,
        /// The stream's block size.
        block_size_tokens: NonZeroU32,
    },
    /// Another rank's batch.
    #[error("dp_rank {found}, configured {configured}")]
    Rank {
        /// What came; an absent rank counts as 0.
        found: i128,
        /// The stream's rank.
        configured: DpRank,
    },
}

/// Frames that are no message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A live message is topic, sequence, payload.
    #[error("live message must have 3 frames, got: {0}")]
    LiveFrames(usize),
    /// A replay reply is delimiter, optional topic, sequence, payload.
    #[error("replay reply must have 3 or 4 frames, got: {0}")]
    ReplayFrames(usize),
    /// The first frame of a replay reply is not the empty delimiter.
    #[error("replay reply must begin with an empty frame, got bytes: {0}")]
    Delimiter(usize),
    /// The sequence frame has a length other than 8 bytes.
    #[error("sequence must have 8 bytes, got: {0}")]
    SequenceBytes(usize),
    /// A live message that carries the number of the end marker.
    #[error(
        "live message with the sequence of the replay end marker: {}",
        Sequence::END
    )]
    LiveEnd,
    /// No batch, though the sequence is an ordinary one.
    #[error("replay reply without payload, sequence: {0}")]
    EmptySnapshot(Sequence),
    /// The end marker's sequence with a payload.
    #[error("replay end marker with a payload of bytes: {0}")]
    EndPayload(usize),
}

fn or_missing(found: Option<i128>) -> String {
    found.map_or_else(|| "missing".to_owned(), |found| found.to_string())
}
