//! Plays a decoded batch on a ledger.
//!
//! Turns tokens into block hashes on the way; everything else is the ledger's decision. A failing
//! event leaves the ledger as the events before it made it.

use super::ledger::{Ledger, Origin};
use crate::hash::block_hash;
use crate::model::{
    ApplyError, ApplyReport, Batch, BlockHash, BlockSpec, ContentKey, Event, Stored, Tier,
};

/// Hashes that stay allocated from one event to the next: a huge one must not be paid for ever.
const MAX_KEPT_HASHES: usize = 16_384;

/// Applies batches to ledgers; keeps its memory from one to the next.
#[derive(Debug)]
pub(super) struct Applier {
    spec: BlockSpec,
    hashes: Vec<BlockHash>,
}

impl Applier {
    pub(super) fn new(spec: BlockSpec) -> Self {
        Self {
            spec,
            hashes: Vec::new(),
        }
    }

    /// Applies every event in order; `sink` learns of each copy that appears or goes.
    ///
    /// # Errors
    /// The first event that cannot be applied; those before it stay.
    pub(super) fn apply(
        &mut self,
        ledger: &mut Ledger,
        batch: &Batch,
        origin: Origin,
        mut sink: impl FnMut(ContentKey, Tier, bool),
    ) -> Result<ApplyReport, ApplyError> {
        let mut report = ApplyReport::default();
        for event in &batch.events {
            report += match event {
                Event::Stored(stored) => self.store(ledger, batch, stored, origin, &mut sink)?,
                Event::Removed { wire_hashes, tier } => {
                    ledger.remove(&batch.wire_hashes[wire_hashes.clone()], *tier, &mut sink)
                }
                Event::Cleared => ledger.clear(&mut sink),
            };
        }
        Ok(report)
    }

    fn store(
        &mut self,
        ledger: &mut Ledger,
        batch: &Batch,
        stored: &Stored,
        origin: Origin,
        sink: &mut impl FnMut(ContentKey, Tier, bool),
    ) -> Result<ApplyReport, ApplyError> {
        let wires = &batch.wire_hashes[stored.wire_hashes.clone()];
        if stored.is_tokenless() {
            return ledger.store_tokenless(wires, stored.tier, origin, sink);
        }
        let tokens = &batch.token_ids[stored.token_ids.clone()];
        let block_size = self.spec.block_size_tokens.get() as usize;
        if wires.len().checked_mul(block_size) != Some(tokens.len()) {
            return Err(ApplyError::Shape {
                tokens: tokens.len(),
                blocks: wires.len(),
                block_size_tokens: self.spec.block_size_tokens.get(),
            });
        }
        let hashes = tokens
            .chunks_exact(block_size)
            .map(|block| block_hash(block, self.spec.hash_seed));
        self.hashes.clear();
        self.hashes.extend(hashes);
        let blocks = (wires, self.hashes.as_slice());
        let stored = ledger.store(stored.parent, blocks, stored.tier, origin, sink);
        self.hashes.clear();
        self.hashes.shrink_to(MAX_KEPT_HASHES);
        stored
    }
}
