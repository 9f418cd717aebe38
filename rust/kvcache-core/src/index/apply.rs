//! Plays a decoded batch on a ledger.
//!
//! Turns tokens into block hashes on the way, before it asks for the tree; everything else is the
//! ledger's decision.

use super::ledger::{Ledger, Origin};
use super::trie::Trie;
use crate::hash::Hasher;
use crate::model::{ApplyError, ApplyReport, Batch, BlockHash, BlockSpec, Event, Stored};

/// Hashes that stay allocated from one event to the next: a huge one must not be paid for ever.
const MAX_KEPT_HASHES: usize = 16_384;

/// Applies batches to ledgers; keeps its memory from one to the next.
#[derive(Debug)]
pub(super) struct Applier {
    spec: BlockSpec,
    hasher: Hasher,
    hashes: Vec<BlockHash>,
}

impl Applier {
    pub(super) fn new(spec: BlockSpec) -> Self {
        Self {
            spec,
            hasher: Hasher::new(spec.hash_seed),
            hashes: Vec::new(),
        }
    }

    /// Applies every event in order.
    ///
    /// # Errors
    /// The first event that cannot be applied; those before it stay.
    pub(super) fn apply(
        &mut self,
        trie: &Trie,
        ledger: &mut Ledger,
        batch: &Batch,
        origin: Origin,
    ) -> Result<ApplyReport, ApplyError> {
        let mut report = ApplyReport::default();
        for event in &batch.events {
            report += match event {
                Event::Stored(stored) => self.store(trie, ledger, batch, stored, origin)?,
                Event::Removed { wire_hashes, tier } => {
                    let wires = &batch.wire_hashes[wire_hashes.clone()];
                    ledger.remove(&mut trie.edit(), wires, *tier)
                }
                Event::Cleared => ledger.clear(&mut trie.edit(), origin),
            };
        }
        Ok(report)
    }

    fn store(
        &mut self,
        trie: &Trie,
        ledger: &mut Ledger,
        batch: &Batch,
        stored: &Stored,
        origin: Origin,
    ) -> Result<ApplyReport, ApplyError> {
        let wires = &batch.wire_hashes[stored.wire_hashes.clone()];
        if stored.is_tokenless() {
            return ledger.store_tokenless(&mut trie.edit(), wires, stored.tier, origin);
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
        self.hashes.resize(wires.len(), BlockHash(0));
        self.hasher.blocks(tokens, block_size, &mut self.hashes);
        let blocks = (wires, self.hashes.as_slice());
        let stored = ledger.store(&mut trie.edit(), stored.parent, blocks, stored.tier, origin);
        self.hashes.clear();
        self.hashes.shrink_to(MAX_KEPT_HASHES);
        stored
    }
}
