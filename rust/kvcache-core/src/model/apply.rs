//! What applying events to a view can answer.

use super::WireHash;

/// Why events could not be applied; each is a doubt about the stream (spec: a stream's life).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A live store continues a block that was never announced.
    #[error("unknown parent block: {0}")]
    UnknownParent(WireHash),
    /// A live store without tokens names a block that was never announced.
    #[error("tokenless store of an unknown block: {0}")]
    UnknownTokenless(WireHash),
    /// One wire hash arrived with two different contents.
    #[error("one wire hash with two contents: {0}")]
    Conflict(WireHash),
    /// Tokens are not `blocks × block size` many.
    #[error("{tokens} token ids for {blocks} blocks of {block_size_tokens}")]
    Shape {
        /// Token ids that came.
        tokens: usize,
        /// Wire hashes that came.
        blocks: usize,
        /// The stream's block size.
        block_size_tokens: u32,
    },
    /// Resident blocks and the ancestors that they need exceed `max_blocks_per_stream`.
    #[error("more than max_blocks_per_stream blocks: {0}")]
    Limit(usize),
    /// Every view slot is in use or still seen by a query; passes by itself.
    #[error("no free view slot; retrying")]
    NoSlot,
    /// A draft belongs to the index that it was made in.
    #[error("a draft of another index")]
    ForeignDraft,
}

/// What applying events did. Adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// Copies that appeared.
    pub stored: u64,
    /// Copies that went.
    pub removed: u64,
    /// Stores of a copy that was there: harmless, counted.
    pub already_stored: u64,
    /// Removals of an unknown hash, or of a copy that was not there: harmless, counted.
    pub already_removed: u64,
    /// Blocks named in a tier that is not counted.
    pub other_tier: u64,
    /// Blocks whose chain of parents is broken; they count as nothing.
    pub orphaned: u64,
}

impl std::ops::AddAssign for ApplyReport {
    fn add_assign(&mut self, other: Self) {
        self.stored += other.stored;
        self.removed += other.removed;
        self.already_stored += other.already_stored;
        self.already_removed += other.already_removed;
        self.other_tier += other.other_tier;
        self.orphaned += other.orphaned;
    }
}
