//! What the state machine needs of the index, and no more.

use crate::model::{ApplyError, ApplyReport, Batch, Sequence};

/// What a stream's view occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Resident blocks and kept mappings.
    pub known_blocks: usize,
    /// Remembered orphans.
    pub orphan_blocks: usize,
    /// Estimated heap bytes.
    pub memory_bytes: usize,
}

/// One stream's published view, and one *draft* beside it that no query sees.
///
/// The state machine is the only caller. A failing call may leave the draft half changed (it is discarded then); after a
/// failing [`Views::apply`] the view is unpublished before anything else happens.
pub trait Views {
    /// Applies a live batch to the published view, which then includes `sequence`.
    ///
    /// # Errors
    /// Whatever makes the batch impossible to place.
    fn apply(&mut self, batch: &Batch, sequence: Sequence) -> Result<ApplyReport, ApplyError>;

    /// Starts an empty draft; an older one is dropped.
    fn begin_draft(&mut self);

    /// Applies a snapshot, or the next piece of it, to the draft: what has no parent there is an orphan, not an error.
    ///
    /// # Errors
    /// Conflicts, shapes and limits.
    fn draft_snapshot(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError>;

    /// Applies a live batch to the draft, by the rules for live batches.
    ///
    /// # Errors
    /// As [`Views::apply`].
    fn draft_delta(&mut self, batch: &Batch) -> Result<ApplyReport, ApplyError>;

    /// Makes the draft the published view, in one step for every query. Says in how many copies the
    /// view that it replaces, if there was one, differed from it.
    ///
    /// # Errors
    /// [`ApplyError::NoSlot`].
    fn publish_draft(&mut self, sequence: Sequence) -> Result<u64, ApplyError>;

    /// Drops the draft, if any.
    fn discard_draft(&mut self);

    /// Takes the published view away at once; queries answer 0 hits and `error`.
    fn unpublish(&mut self, error: &str);

    /// What the published view occupies.
    fn sizes(&self) -> Sizes;
}
