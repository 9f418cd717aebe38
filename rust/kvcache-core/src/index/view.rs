//! What answers show of a published view besides what it holds of the prompt.
//!
//! Written by the stream's writer only.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ledger::Counts;
use super::slot_mask::Slot;
use crate::model::Sequence;

/// A published view's tier counts, as they are now.
#[derive(Debug)]
pub struct ViewStats {
    slot: Slot,
    device_blocks: AtomicU64,
    host_blocks: AtomicU64,
}

impl ViewStats {
    pub(super) fn new(slot: Slot, counts: Counts) -> Self {
        let stats = Self {
            slot,
            device_blocks: AtomicU64::new(0),
            host_blocks: AtomicU64::new(0),
        };
        stats.set_counts(counts);
        stats
    }

    /// Of a view that is not of this process.
    pub(super) fn elsewhere(device_blocks: u64, host_blocks: u64) -> Self {
        Self {
            slot: Slot::FIRST,
            device_blocks: device_blocks.into(),
            host_blocks: host_blocks.into(),
        }
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Blocks with a Device copy.
    #[must_use]
    pub fn device_blocks(&self) -> u64 {
        self.device_blocks.load(Ordering::Relaxed)
    }

    /// Blocks with a Host copy.
    #[must_use]
    pub fn host_blocks(&self) -> u64 {
        self.host_blocks.load(Ordering::Relaxed)
    }

    pub(super) fn set_counts(&self, counts: Counts) {
        self.device_blocks
            .store(counts.device_blocks as u64, Ordering::Relaxed);
        self.host_blocks
            .store(counts.host_blocks as u64, Ordering::Relaxed);
    }
}

/// The last sequence that each slot's view includes, side by side, as a query reads all of them.
///
/// Stored after the copies that it includes and read before the walk, so that an answer never claims more than it saw.
#[derive(Debug)]
pub(super) struct Sequences([AtomicU64; Slot::COUNT]);

impl Sequences {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(Sequence::END.0)))
    }

    /// By slot, the numbers of the first `slots`. [`Sequence::END`], which numbers no message, stands for none.
    #[inline]
    pub(super) fn read(&self, slots: usize) -> impl ExactSizeIterator<Item = u64> {
        let sequences = self.0.iter().take(slots);
        sequences.map(|sequence| sequence.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, slot: Slot, sequence: Option<Sequence>) {
        let sequence = sequence.unwrap_or(Sequence::END);
        self.0[slot.index()].store(sequence.0, Ordering::Release);
    }
}
