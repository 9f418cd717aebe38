//! A prompt hashed once, to be asked about many times.
//!
//! Invariant: one block hash and one content key for each full block, first block first. A trailing
//! partial block has no identity and is left out.

use super::Hasher;
use crate::model::{BlockHash, BlockSpec, ContentKey};

/// The identities of a prompt's full blocks (spec: content keys).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockKeys {
    spec: BlockSpec,
    block_hashes: Vec<BlockHash>,
    content_keys: Vec<ContentKey>,
}

impl BlockKeys {
    /// Of no blocks.
    #[must_use]
    pub fn empty(spec: BlockSpec) -> Self {
        Self {
            spec,
            block_hashes: Vec::new(),
            content_keys: Vec::new(),
        }
    }

    /// The keys of blocks whose own hashes are known.
    #[must_use]
    pub fn from_block_hashes(spec: BlockSpec, block_hashes: Vec<BlockHash>) -> Self {
        let mut keys = Self {
            spec,
            block_hashes,
            content_keys: Vec::new(),
        };
        keys.chain(&Hasher::new(spec.hash_seed));
        keys
    }

    /// Hashes the full blocks of `tokens`.
    #[must_use]
    pub fn compute(tokens: &[u32], spec: BlockSpec) -> Self {
        let mut keys = Self::empty(spec);
        keys.extend(tokens);
        keys
    }

    /// Hashes the full blocks of `tokens`, which follow the blocks so far. Returns the tokens of the partial block behind
    /// them.
    pub fn extend<'a>(&mut self, tokens: &'a [u32]) -> &'a [u32] {
        let block_size = self.spec.block_size_tokens.get() as usize;
        let first = self.block_hashes.len();
        let blocks = tokens.len() / block_size;
        if blocks > 0 {
            let hasher = Hasher::new(self.spec.hash_seed);
            self.block_hashes.resize(first + blocks, BlockHash(0));
            hasher.blocks(tokens, block_size, &mut self.block_hashes[first..]);
            self.chain(&hasher);
        }
        &tokens[blocks * block_size..]
    }

    /// Makes the content keys of the block hashes that have none yet.
    fn chain(&mut self, hasher: &Hasher) {
        let first = self.content_keys.len();
        let mut parent = self.content_keys.last().copied();
        let keys = self.block_hashes[first..].iter().map(|hash| {
            let key = hasher.key(parent, *hash);
            parent = Some(key);
            key
        });
        self.content_keys.extend(keys);
    }

    /// Forgets the blocks from `blocks` on.
    pub fn truncate(&mut self, blocks: usize) {
        self.block_hashes.truncate(blocks);
        self.content_keys.truncate(blocks);
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

    /// Tokens of the full blocks.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.len() * self.spec.block_size_tokens.get() as usize
    }

    /// Whether the prompt is shorter than a block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.content_keys.is_empty()
    }
}
