//! A prompt hashed once, to be asked about many times.
//!
//! Invariant: one block hash and one content key for each full block, first block first. A trailing
//! partial block has no identity and is left out.

use super::Hasher;
use crate::model::{BlockHash, BlockSpec, ContentKey};

/// The identities of a prompt's full blocks (spec: content keys).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockKeys {
    spec: BlockSpec,
    block_hashes: Vec<BlockHash>,
    content_keys: Vec<ContentKey>,
}

impl BlockKeys {
    /// Hashes the full blocks of `tokens`.
    #[must_use]
    pub fn compute(tokens: &[u32], spec: BlockSpec) -> Self {
        let block_size = spec.block_size_tokens.get() as usize;
        let hasher = Hasher::new(spec.hash_seed);
        let mut block_hashes = vec![BlockHash(0); tokens.len() / block_size];
        hasher.blocks(tokens, block_size, &mut block_hashes);
        let mut parent = None;
        let content_keys = block_hashes.iter().map(|hash| {
            let key = hasher.key(parent, *hash);
            parent = Some(key);
            key
        });
        let content_keys = content_keys.collect();
        Self {
            spec,
            block_hashes,
            content_keys,
        }
    }

    /// The block size and seed that the blocks were hashed with.
    #[must_use]
    pub fn spec(&self) -> BlockSpec {
        self.spec
    }

    /// The hash of each block's own tokens, first block first.
    #[must_use]
    pub fn block_hashes(&self) -> &[BlockHash] {
        &self.block_hashes
    }

    /// The identity of the prefix that each block ends, first block first.
    #[must_use]
    pub fn content_keys(&self) -> &[ContentKey] {
        &self.content_keys
    }

    /// Full blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.content_keys.len()
    }

    /// Whether the prompt is shorter than a block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content_keys.is_empty()
    }
}
