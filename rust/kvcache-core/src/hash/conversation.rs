//! A prompt that grows: what a next turn appends is hashed, and nothing twice.
//!
//! Invariant: the keys are those of all tokens so far, and the tail is what is left of them behind the last full
//! block. Tokens of full blocks are not kept: 32 bytes stand for each block.

use super::BlockKeys;
use crate::model::BlockSpec;

/// The block keys of a prompt under construction (spec: content keys).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    keys: BlockKeys,
    /// Shorter than a block.
    tail: Vec<u32>,
}

impl Conversation {
    /// No tokens yet.
    #[must_use]
    pub fn new(spec: BlockSpec) -> Self {
        Self {
            keys: BlockKeys::empty(spec),
            tail: Vec::new(),
        }
    }

    /// A conversation that has come so far: the keys of its full blocks, and the tokens behind them.
    #[must_use]
    pub fn resume(keys: BlockKeys, tail: &[u32]) -> Self {
        let mut conversation = Self {
            keys,
            tail: Vec::new(),
        };
        conversation.extend(tail);
        conversation
    }

    /// The tokens of the last, partial block.
    #[must_use]
    pub fn tail(&self) -> &[u32] {
        &self.tail
    }

    /// The keys of the full blocks so far.
    #[must_use]
    pub fn keys(&self) -> &BlockKeys {
        &self.keys
    }

    /// Tokens so far, those of the last, partial block included.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.keys.token_count() + self.tail.len()
    }

    /// Appends tokens and hashes the blocks that they fill.
    pub fn extend(&mut self, tokens: &[u32]) {
        let block_size = self.block_size();
        let missing = block_size - self.tail.len();
        if tokens.len() < missing {
            self.tail.extend_from_slice(tokens);
            return;
        }
        let mut rest = tokens;
        if !self.tail.is_empty() {
            let (head, behind) = tokens.split_at(missing);
            self.tail.extend_from_slice(head);
            self.keys.extend(&self.tail);
            self.tail.clear();
            rest = behind;
        }
        let partial = self.keys.extend(rest);
        self.tail.extend_from_slice(partial);
    }

    /// Forgets the tokens from `token_count` on, and with the first of them the whole of its block if that is full: what
    /// it was made of is not kept. Returns how many tokens are left.
    pub fn truncate(&mut self, token_count: usize) -> usize {
        let full = self.keys.token_count();
        if let Some(partial) = token_count.checked_sub(full) {
            self.tail.truncate(partial);
        } else {
            self.tail.clear();
            self.keys.truncate(token_count / self.block_size());
        }
        self.token_count()
    }

    fn block_size(&self) -> usize {
        self.keys.spec().block_size_tokens.get() as usize
    }
}
