//! What queries read of one published view besides its bits.
//!
//! Written by the stream's writer only. The sequence is stored after the bits that it includes and
//! read before the walk, so an answer never claims more than it saw.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ledger::Counts;
use super::slot_mask::Slot;
use crate::model::Sequence;

/// A published view's slot, sequence and tier counts.
#[derive(Debug)]
pub struct ViewStats {
    slot: Slot,
    /// [`Sequence::END`], which numbers no message, stands for none.
    sequence: AtomicU64,
    device_blocks: AtomicU64,
    host_blocks: AtomicU64,
}

impl ViewStats {
    pub(super) fn new(slot: Slot, sequence: Option<Sequence>, counts: Counts) -> Self {
        let stats = Self {
            slot,
            sequence: AtomicU64::new(Sequence::END.0),
            device_blocks: AtomicU64::new(0),
            host_blocks: AtomicU64::new(0),
        };
        stats.set_counts(counts);
        stats.set_sequence(sequence);
        stats
    }

    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// The last sequence that the view includes.
    #[must_use]
    pub fn sequence(&self) -> Option<Sequence> {
        Some(Sequence(self.sequence.load(Ordering::Acquire)))
            .filter(|sequence| *sequence != Sequence::END)
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

    pub(super) fn set_sequence(&self, sequence: Option<Sequence>) {
        self.sequence
            .store(sequence.unwrap_or(Sequence::END).0, Ordering::Release);
    }

    pub(super) fn set_counts(&self, counts: Counts) {
        self.device_blocks
            .store(counts.device_blocks as u64, Ordering::Relaxed);
        self.host_blocks
            .store(counts.host_blocks as u64, Ordering::Relaxed);
    }
}
