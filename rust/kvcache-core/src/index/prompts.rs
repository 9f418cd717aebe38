//! The two ways to ask: with tokens, hashed while walking, and with hashes made before.

use super::prefetch::prefetch_at;
use super::trie::Prompt;
use crate::hash::{BlockKeys, Hasher};
use crate::model::{BlockHash, ContentKey};

/// Blocks that are hashed ahead of the walk: independent of each other, they overlap.
const AHEAD: usize = 16;

/// Tokens of a cache line.
const LINE: usize = 16;

/// Longest blocks, in tokens, of which a window's are asked for ahead: a longer one is a stream that the processor itself
/// sees coming, and is disturbed by requests.
const MAX_PREFETCHED: usize = 32;

/// A prompt's tokens. Hashes no more than [`AHEAD`] blocks beyond what somebody holds.
pub(super) struct TokenPrompt<'a> {
    tokens: &'a [u32],
    hasher: &'a Hasher,
    block_size: usize,
    blocks: usize,
    /// Hashes of the blocks from `first` on, as far as they are made.
    window: [BlockHash; AHEAD],
    first: usize,
    made: usize,
}

impl<'a> TokenPrompt<'a> {
    pub(super) fn new(tokens: &'a [u32], block_size: usize, hasher: &'a Hasher) -> Self {
        Self {
            tokens,
            hasher,
            block_size,
            blocks: tokens.len() / block_size,
            window: [BlockHash(0); AHEAD],
            first: 0,
            made: 0,
        }
    }

    /// Asks for `count` tokens from the block at `block` on.
    #[inline]
    fn prefetch_tokens(&self, block: usize, count: usize) {
        let first = block * self.block_size;
        for place in (first..first + count).step_by(LINE) {
            prefetch_at(self.tokens, place);
        }
    }
}

impl Prompt for TokenPrompt<'_> {
    fn len(&self) -> usize {
        self.blocks
    }

    #[inline]
    fn hashes(&mut self, from: usize) -> &[BlockHash] {
        if from < self.first || from >= self.first + self.made {
            // Often nobody has the first block: it is hashed alone.
            let count = if from == 0 {
                1
            } else {
                AHEAD.min(self.blocks - from)
            };
            if count > 1 && self.block_size <= MAX_PREFETCHED {
                self.prefetch_tokens(from + count, AHEAD * self.block_size);
            }
            let tokens = &self.tokens[from * self.block_size..];
            self.hasher
                .blocks(tokens, self.block_size, &mut self.window[..count]);
            (self.first, self.made) = (from, count);
        }
        &self.window[from - self.first..self.made]
    }

    #[inline]
    fn prefetch(&self) {
        let count = AHEAD * self.block_size.min(MAX_PREFETCHED);
        self.prefetch_tokens(1, count);
    }

    fn key(&self, _: usize) -> Option<ContentKey> {
        None
    }
}

/// A prompt hashed before.
pub(super) struct HashedPrompt<'a>(pub(super) &'a BlockKeys);

impl Prompt for HashedPrompt<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn hashes(&mut self, from: usize) -> &[BlockHash] {
        &self.0.block_hashes()[from..]
    }

    #[inline]
    fn key(&self, block: usize) -> Option<ContentKey> {
        self.0.content_keys().get(block).copied()
    }
}
